#!/bin/bash
# Seconds of one training step: vittrain and PyTorch in turn on the same cores, several times, so that what
# else the machine does falls on both. Prints rows of the benchmarks' CSV (README.md); the last row of a case
# is how many times as fast as PyTorch's best vittrain is.
#
#   benchmarks/step.sh MODEL GLOBAL_BATCH RANKS [TURNS] >> benchmarks/results/step-HOST.csv
#
# PyTorch's best is looked for first: eager and compiled, fp32 and bf16, each once; what takes longer than
# LIMIT seconds is left out. Environment: PYTHON (with torch and timm), VITTRAIN, MPIRUN, LIMIT, STEPS,
# STRATEGY (ddp, or fsdp against fully_shard), VARIANTS ("fp32 fp32,compiled bf16 bf16,compiled": fewer save time).
set -euo pipefail

model=${1:?MODEL} batch=${2:?GLOBAL_BATCH} ranks=${3:?RANKS} turns=${4:-3}
here=$(dirname "$(readlink -f "$0")")
python=${PYTHON:-python3}
vittrain=${VITTRAIN:-$here/../vittrain}
mpirun=${MPIRUN:-mpirun --oversubscribe}
limit=${LIMIT:-300} steps=${STEPS:-6}
variants=${VARIANTS:-fp32 fp32,compiled bf16 bf16,compiled}
strategy=${STRATEGY:-ddp}
threads=$(($(nproc) / ranks))
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

case $model in
vit_cifar | cnn_*) image=32 ;;
*) image=224 ;;
esac

# One row from PyTorch; nothing when it takes too long or fails.
pytorch_row() { # VARIANT
    local compile=()
    [[ $1 == *,compiled ]] && compile=(--compile)
    timeout "$limit" "$python" "$here/pytorch_step.py" --model "$model" --batch "$batch" --ranks "$ranks" \
        --strategy "$strategy" --precision "${1%,*}" --steps "$steps" "${compile[@]}" 2>"$scratch/pytorch.log" || true
}

value_of() { cut -d, -f14; }

# The median of what metrics.csv has of the steps after the first two.
median_step() {
    awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) column[$i] = i; next }
             $column["split"] == "train" && $column["step"] > 2 { print $column["step_seconds"] }' "$1" |
        sort -g | awk '{ value[NR] = $1 } END { print value[int((NR + 1) / 2)] }'
}

vittrain_seconds() {
    rm -rf "$scratch/run"
    $mpirun -np "$ranks" "$vittrain" train "run.dir=$scratch/run" "run.threads=$threads" "model.name=$model" \
        "mesh.strategy=$strategy" \
        model.classes=10 data.format=synthetic "data.image=$image" data.val=none \
        "data.samples=$((batch * (steps + 2)))" augment.flip=0 augment.rotate=0 augment.translate=0 \
        augment.erase=0 "train.global_batch=$batch" "train.steps=$((steps + 2))" train.clip_norm=1 \
        optim.weight_decay=0.05 checkpoint.every=0 output.weights=off output.tensorboard=off \
        output.log_every=1 "train.precision=${PRECISION:-auto}" >"$scratch/vittrain.log" 2>&1 ||
        { tail -3 "$scratch/vittrain.log" >&2; return 1; }
    median_step "$scratch/run/metrics.csv"
}

# What train.precision=auto chose here.
precision_used() { sed -n 's/.*computing in \(fp32\|bf16\).*/\1/p' "$scratch/vittrain.log" | head -1; }

row() { # FRAMEWORK VERSION METRIC VALUE UNIT
    "$python" - "$@" <<END
import sys
sys.path.insert(0, "$here")
from bench_common import print_row
framework, version, metric, value, unit = sys.argv[1:]
print_row(framework=framework, version=version, work="training step", model="$model", batch="$batch",
          precision="$(precision_used)", strategy="$strategy" if $ranks > 1 else "none", ranks=$ranks,
          threads=$threads, metric=metric, value=value, unit=unit)
END
}

best="" best_seconds=""
for variant in $variants; do
    line=$(pytorch_row "$variant" | tail -1)
    [[ -z $line ]] && continue
    echo "$line"
    seconds=$(value_of <<<"$line")
    if [[ -z $best ]] || awk "BEGIN { exit !($seconds < $best_seconds) }"; then
        best=$variant best_seconds=$seconds
    fi
done
[[ -n $best ]] || { echo "step.sh: no variant of PyTorch ran; see LIMIT, PYTHON" >&2; tail -3 "$scratch/pytorch.log" >&2; exit 1; }

version=$("$vittrain" --version | head -1 | tr -d , | sed "s|^vittrain ||")
for ((turn = 0; turn < turns; turn++)); do
    seconds=$(vittrain_seconds)
    row vittrain "$version" step "$seconds" s
    echo "$seconds" >>"$scratch/ours"
    line=$(pytorch_row "$best" | tail -1)
    echo "$line"
    value_of <<<"$line" >>"$scratch/theirs"
done

median() { sort -g "$1" | awk '{ value[NR] = $1 } END { print value[int((NR + 1) / 2)] }'; }
ratio=$(awk "BEGIN { printf \"%.3f\", $(median "$scratch/theirs") / $(median "$scratch/ours") }")
row "vittrain over pytorch (${best/,/ })" "$version" speed "$ratio" x
