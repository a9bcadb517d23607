#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Seconds of one training step: vittrain and PyTorch in turn on the same cores, several times, so that other
# programs affect both. Prints rows of the benchmarks' CSV (README.md); the last row is the speed relative to
# PyTorch's fastest variant.
#
#   benchmarks/step.sh MODEL GLOBAL_BATCH RANKS [TURNS] >> benchmarks/results/step-HOST.csv
#
# First finds PyTorch's fastest variant: eager and compiled, fp32 and bf16, once each; variants that take longer
# than LIMIT seconds are skipped. Environment: PYTHON (with torch and timm), VITTRAIN, MPIRUN, LIMIT, STEPS,
# STRATEGY (ddp, or fsdp against fully_shard), VARIANTS ("fp32 fp32,compiled bf16 bf16,compiled": fewer save time),
# IMAGE (height and width of the images).
set -euo pipefail

model=${1:?MODEL} batch=${2:?GLOBAL_BATCH} ranks=${3:?RANKS} turns=${4:-3}
here=$(dirname "$(readlink -f "$0")")
. "$here/common.sh"
python=${PYTHON:-python3}
limit=${LIMIT:-300} steps=${STEPS:-6}
variants=${VARIANTS:-fp32 fp32,compiled bf16 bf16,compiled}
strategy=${STRATEGY:-ddp}
threads=$(($(nproc) / ranks))
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Prints one row from PyTorch; nothing if it takes too long or fails.
pytorch_row() { # VARIANT
    local compile=()
    [[ $1 == *,compiled ]] && compile=(--compile)
    timeout "$limit" "$python" "$here/pytorch_step.py" --model "$model" --batch "$batch" --ranks "$ranks" \
        --strategy "$strategy" --precision "${1%,*}" --steps "$steps" \
        ${IMAGE:+--image "$IMAGE"} "${compile[@]}" 2>"$scratch/pytorch.log" || true
}

value_of() { cut -d, -f14; }

report() { # METRIC VALUE UNIT
    row "training step${IMAGE:+ at $IMAGE pixels}" "$model" "$batch" "$(precision_used "$scratch/own.log")" "$( ((ranks > 1)) && echo "$strategy" || echo none)" \
        "$ranks" "$threads" "$@"
}

best="" best_seconds=""
for variant in $variants; do
    line=$(pytorch_row "$variant" | tail -n 1)
    [[ -z $line ]] && continue
    echo "$line"
    seconds=$(value_of <<<"$line")
    if [[ -z $best ]] || awk "BEGIN { exit !($seconds < $best_seconds) }"; then
        best=$variant best_seconds=$seconds
    fi
done
[[ -n $best ]] || { echo "step.sh: no variant of PyTorch ran; see LIMIT, PYTHON" >&2; tail -n 3 "$scratch/pytorch.log" >&2; exit 1; }

for ((turn = 0; turn < turns; turn++)); do
    train_steps own "$ranks" "$threads" "$model" "$batch" "$steps" "mesh.strategy=$strategy" "train.precision=${PRECISION:-auto}"
    seconds=$(median_step "$scratch/own")
    report step "$seconds" s
    echo "$seconds" >>"$scratch/ours"
    line=$(pytorch_row "$best" | tail -n 1)
    echo "$line"
    value_of <<<"$line" >>"$scratch/theirs"
done

framework="vittrain over pytorch (${best/,/ })" report speed \
    "$(awk "BEGIN { printf \"%.3f\", $(median <"$scratch/theirs") / $(median <"$scratch/ours") }")" x
