#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Seconds of one training step with each optimizer, in turn with AdamW on the same cores, so that other programs affect
# both. Prints rows of the benchmarks' CSV (README.md). The last rows have the step time of each optimizer divided by
# AdamW's: the median over the turns.
#
#   benchmarks/optimizers.sh MODEL BATCH_PER_RANK RANKS TURNS OPTIMIZER... >> benchmarks/results/optimizers-HOST.csv
#
# Environment: VITTRAIN, MPIRUN, STEPS, STRATEGY (fsdp), PRECISION, EXTRA (more settings).
set -euo pipefail

model=${1:?MODEL} batch=${2:?BATCH_PER_RANK} ranks=${3:?RANKS} turns=${4:?TURNS}
shift 4
here=$(dirname "$(readlink -f "$0")")
. "$here/common.sh"
strategy=${STRATEGY:-fsdp} steps=${STEPS:-4}
threads=$(($(nproc) > ranks ? $(nproc) / ranks : 1))
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

report() { # METRIC VALUE UNIT
    row "training step with optimizers" "$model" $((batch * ranks)) "$(precision_used "$scratch/run.log")" \
        "$( ((ranks > 1)) && echo "$strategy" || echo none)" "$ranks" "$threads" "$@"
}

# Sets `seconds` to the median step.
measure() { # OPTIMIZER
    train_steps run "$ranks" "$threads" "$model" $((batch * ranks)) "$steps" "mesh.strategy=$strategy" \
        "train.precision=${PRECISION:-auto}" "optim.name=$1" ${EXTRA:-}
    seconds=$(median_step "$scratch/run")
    report "$1" "$seconds" s
}

for ((turn = 0; turn < turns; turn++)); do
    for optimizer; do
        measure adamw
        reference=$seconds
        measure "$optimizer"
        awk "BEGIN { print $seconds / $reference }" >>"$scratch/$optimizer.ratios"
    done
done
for optimizer; do
    report "$optimizer over adamw" "$(median <"$scratch/$optimizer.ratios")" x
done
