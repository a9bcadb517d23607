#!/bin/bash
# Seconds from `mpirun` to the end of a run of one step of vit_cifar on 2 ranks, its checkpoint and the end of
# the processes included: an upper bound of the time to the end of the first step. pytorch_start.py is
# PyTorch's. Prints a row of the benchmarks' CSV (README.md).
#
#   benchmarks/start.sh [TURNS] >> benchmarks/results/start-DATE.csv
#
# Environment: VITTRAIN, MPIRUN.
set -euo pipefail

turns=${1:-5}
here=$(dirname "$(readlink -f "$0")")
. "$here/common.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

for ((turn = 0; turn <= turns; turn++)); do
    begin=$(date +%s.%N)
    $mpirun -np 2 "$vittrain" train train.steps=1 run.threads=1 train.global_batch=64 data.format=synthetic \
        data.val=none output.weights=off train.precision=fp32 "run.dir=$scratch/run$turn" >"$scratch/log" 2>&1 ||
        { tail -n 3 "$scratch/log" >&2; exit 1; }
    end=$(date +%s.%N)
    # The first turn loads the program into the page cache.
    ((turn == 0)) || awk "BEGIN { print $end - $begin }" >>"$scratch/seconds"
done
row "start and one step" vit_cifar 64 fp32 ddp 2 1 "whole run" "$(median <"$scratch/seconds")" s
