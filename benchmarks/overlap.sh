#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Share of a training run's communication between two nodes that is hidden by computation: 1 - exposed_comm_seconds /
# comm_seconds of metrics.csv, over the steps after the first three. Two nodes of one machine, connected at the given
# rate (two_nodes.sh; needs root), one rank on each. Prints rows of
# the benchmarks' CSV (README.md).
#
#   benchmarks/overlap.sh STRATEGY [RATE] [SETTING...] >> benchmarks/results/overlap.csv     # RATE: 1gbit
#
# Environment: VITTRAIN, STEPS (20), BATCH (a rank's, 128), THREADS (1).
set -euo pipefail

strategy=${1:?STRATEGY} rate=${2:-1gbit}
shift $(($# > 2 ? 2 : $#))
here=$(dirname "$(readlink -f "$0")")
. "$here/common.sh"
steps=${STEPS:-20} batch=${BATCH:-128} threads=${THREADS:-1}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

bash "$here/two_nodes.sh" "$rate" 1 "$vittrain" train "run.dir=$scratch/run" output.logbook= "run.threads=$threads" \
    model.name=vit_cifar "mesh.strategy=$strategy" data.format=synthetic data.val=none \
    "data.samples=$((2 * batch * (steps + 3)))" "train.batch=$batch" "train.steps=$((steps + 3))" \
    checkpoint.every=0 output.weights=off output.tensorboard=off output.log_every=1 "$@" \
    >"$scratch/log" 2>&1 || { tail -3 "$scratch/log" >&2; exit 1; }

mean_of() { column_of "$scratch/run/metrics.csv" "$1" 3 | awk '{ sum += $1 } END { print sum / NR }'; } # COLUMN
report() { # METRIC VALUE UNIT
    nodes=2 row "training step over $rate between 2 nodes" vit_cifar $((2 * batch)) "$(precision_used "$scratch/log")" "$strategy" \
        2 "$threads" "$@"
}
communication=$(mean_of comm_seconds) exposed=$(mean_of exposed_comm_seconds)
report "mean step" "$(mean_of step_seconds)" s
report "mean communication" "$communication" s
report "mean exposed communication" "$exposed" s
report "communication hidden" "$(awk "BEGIN { print 100 * (1 - $exposed / $communication) }")" %
