#!/bin/bash
# Weak scaling on one machine: 2 ranks x 1 thread, in turn with two independent one-rank runs with the same batch
# per rank. Prints rows of the benchmarks' CSV (README.md); the last row is the speed relative to the
# independent runs.
#
#   benchmarks/scaling.sh MODEL BATCH_A_RANK STRATEGY [TURNS] >> benchmarks/results/scaling-HOST.csv
#
# Environment: VITTRAIN, MPIRUN, STEPS, EXTRA (more settings for both).
set -euo pipefail

model=${1:?MODEL} batch=${2:?BATCH_A_RANK} strategy=${3:?STRATEGY} turns=${4:-3}
here=$(dirname "$(readlink -f "$0")")
. "$here/common.sh"
steps=${STEPS:-6}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

report() { # WORK STRATEGY RANKS METRIC VALUE UNIT
    row "$1" "$model" $((batch * $3)) "$(precision_used "$scratch/together.log")" "$2" "$3" 1 "$4" "$5" "$6"
}

for ((turn = 0; turn < turns; turn++)); do
    # shellcheck disable=SC2086
    train_steps together 2 1 "$model" $((2 * batch)) "$steps" "mesh.strategy=$strategy" ${EXTRA:-}
    # shellcheck disable=SC2086
    { train_steps left 1 1 "$model" "$batch" "$steps" ${EXTRA:-} & train_steps right 1 1 "$model" "$batch" "$steps" ${EXTRA:-}; }
    wait $!
    together=$(median_step "$scratch/together")
    alone=$({ median_step "$scratch/left"; median_step "$scratch/right"; } | awk '{ sum += $1 } END { print sum / NR }')
    report "weak scaling: together" "$strategy" 2 step "$together" s
    report "weak scaling: together" "$strategy" 2 "exposed communication" \
        "$(column_of "$scratch/together/metrics.csv" exposed_comm_seconds 2 | median)" s
    report "weak scaling: two alone" none 1 step "$alone" s
    awk "BEGIN { print $alone / $together }" >>"$scratch/ratios"
done
report "weak scaling" "$strategy" 2 efficiency "$(median <"$scratch/ratios")" x
