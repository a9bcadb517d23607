#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Seconds from `mpirun` to the update of the first step, on the last of 8 ranks, on 2 nodes of this machine
# (namespaces with separate sshd, network and shared memory: test/support/cluster.sh). As root. Prints rows of the benchmarks' CSV.
#
#   benchmarks/start_nodes.sh [TURNS] >> benchmarks/results/start-DATE.csv
#
# Environment: VITTRAIN.
set -euo pipefail

turns=${1:-5}
here=$(dirname "$(readlink -f "$0")")
. "$here/common.sh"
scratch=$(mktemp -d)
cluster() { TEST_BUILD=$(dirname "$vittrain") TEST_SOURCE=$here/.. sh "$here/../test/support/cluster.sh" "$scratch" "$@"; }
trap 'cluster down; rm -rf "$scratch"' EXIT
cluster up 2
cluster env >"$scratch/env.sh"
cluster hosts 4 >"$scratch/hosts"

# With debug.pause each rank prints a line when it reaches the update of step 1. It does not wait, because the file exists.
cat >"$scratch/job.sh" <<END
. "$scratch/env.sh" && cd "$scratch" && exec mpirun -np 8 -hostfile hosts "$vittrain" train train.steps=2 run.threads=1 \
    train.global_batch=64 data.format=synthetic data.val=none output.weights=off train.precision=fp32 run.dir="$scratch/run\$1" \
    debug.pause="update:1:$scratch/go"
END
touch "$scratch/go"
for ((turn = 0; turn <= turns; turn++)); do
    begin=$(date +%s.%N)
    cluster exec 1 sh "$scratch/job.sh" $turn 2>&1 >/dev/null </dev/null | while read -r line; do
        case $line in *debug.pause:*) date +%s.%N ;; esac
    done >"$scratch/times"
    [ "$(wc -l <"$scratch/times")" = 8 ] || { echo "not 8 ranks" >&2; exit 1; }
    # The first turn loads the program into the page cache.
    ((turn == 0)) || tail -n 1 "$scratch/times" | awk -v begin="$begin" '{ print $1 - begin }' >>"$scratch/seconds"
done
nodes=2 row "start on 2 nodes" vit_cifar 64 fp32 ddp 8 1 "mpirun to update of step 1" "$(median <"$scratch/seconds")" s
