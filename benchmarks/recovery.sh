#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Recovery time with checkpoints in memory: seconds from a fault to the end of the first step that was not
# computed before it. Also the cost of these checkpoints. Prints rows of the benchmarks' CSV. The cases with nodes need root
# (test/support/cluster.sh).
#
#   benchmarks/recovery.sh [TURNS] [CASE...] >> benchmarks/results/recovery-DATE.csv
#
# Cases, with the nodes emulated on this machine. Environment: VITTRAIN, EVERY (checkpoint.memory; default 5).
#   rank        a rank is killed: small ViT, 4 ranks
#   rank_nodes  a rank is killed: ViT-B/32, FSDP, 8 ranks on 2 nodes
#   node        a node is lost and replaced by a spare node: as rank_nodes
#   cost        ViT-B/32, FSDP, 2 ranks, with and without checkpoints in memory
set -euo pipefail

turns=${1:-3} every=${EVERY:-5}
shift || true
[ $# -gt 0 ] || set -- rank rank_nodes node cost
here=$(dirname "$(readlink -f "$0")")
. "$here/common.sh"
scratch=$(mktemp -d)
cluster() { TEST_BUILD=$(dirname "$vittrain") TEST_SOURCE=$here/.. sh "$here/../test/support/cluster.sh" "$scratch" "$@"; }
up=
trap '[ -z "$up" ] || cluster down; rm -rf "$scratch"' EXIT
common="train.steps=24 data.format=synthetic data.val=none output.weights=off output.logbook= output.tensorboard=off output.log_every=1 \
    run.threads=1 checkpoint.every=0 checkpoint.keep=1 output.monitor=0"
small="model.name=vit_cifar model.dim=64 model.depth=3 model.heads=2 train.batch=8 $common"
large="model.name=vit_base_patch32_224 train.batch=2 data.samples=400 mesh.strategy=fsdp $common"

nodes_up() {
    [ -z "$up" ] || return 0
    cluster up 3
    up=yes
    cluster env >"$scratch/env.sh"
    for parameter in OMPI_MCA_oob_tcp PRTE_MCA_oob_tcp; do
        echo "export ${parameter}_keepalive_time=1 ${parameter}_keepalive_probes=2"
    done >>"$scratch/env.sh"
    cluster hosts 4 >"$scratch/hosts"
}

# start COMMAND...: run a command in the background and write its output to `log`, with the time in front of each line.
start() {
    "$@" 2>&1 </dev/null | while read -r line; do echo "$(date +%s.%N) $line"; done >"$scratch/log" &
}

# wait_for PATTERN FILE: wait until a line of the file matches.
wait_for() {
    local try
    for ((try = 0; try < 30000; try++)); do
        ! grep -asqE "$1" "$2" || break
        sleep 0.01
    done
}

# when PATTERN: wait for a line of `log` that matches, and print the time of the last such line.
when() {
    wait_for "$1" "$scratch/log"
    grep -aE "$1" "$scratch/log" | tail -n 1 | cut -d ' ' -f 1
}

# recovered RUN FAULT_TIME: wait for the row of step 14 and append the seconds of each phase of the recovery to `parts`.
recovered() {
    wait_for '^[0-9]+,14,train,' "$1/metrics.csv"
    end=$(date +%s.%N)
    echo "$2 $(when 'launch: restart') $(when '^[0-9.]* options: ') $(when 'resuming from /dev/shm') $(when 'set-up took') $end" |
        awk '{ for (i = 2; i <= 6; i++) printf "%.3f ", $i - $(i - 1); printf "%.3f\n", $6 - $1 }' >>"$scratch/parts"
    wait
}

# report MODEL BATCH PRECISION STRATEGY RANKS NAME: print the medians of `parts`.
report() {
    column=1
    for part in detection 'launcher and MPI' 'set-up before reading' reading 'steps to the first new one' total; do
        row "$6 (checkpoint.memory=$every): $part" "$1" "$2" "$3" "$4" "$5" 1 recovery "$(cut -d ' ' -f $column "$scratch/parts" | median)" s
        column=$((column + 1))
    done
    rm "$scratch/parts"
}

# pid_of RANK: wait until the rank waits for the file `go` (debug.pause), and print its process.
pid_of() {
    until [ -s "$scratch/go.$1" ]; do sleep 0.01; done
    cat "$scratch/go.$1"
}

case_rank() {
    for ((turn = 0; turn < turns; turn++)); do
        rm -f "$scratch/go"*
        start "$vittrain" launch -- $mpirun -np 4 "$vittrain" $small checkpoint.memory=$every run.dir="$scratch/small$turn" debug.pause="backward:14:$scratch/go:3"
        victim=$(pid_of 3)
        fault=$(date +%s.%N)
        kill -9 "$victim"
        touch "$scratch/go"
        recovered "$scratch/small$turn" "$fault"
    done
    report vit_cifar 8 bf16 ddp 4 'a rank is killed'
}

# on_nodes NAME COMMAND...: train on two nodes; the command causes the fault.
on_nodes() {
    name=$1
    shift
    nodes_up
    for ((turn = 0; turn < turns; turn++)); do
        rm -f "$scratch/go"*
        start cluster exec 1 sh -c '. "$0/env.sh" && cd "$0" && exec "$@"' "$scratch" "$vittrain" launch -- mpirun -np 8 \
            -hostfile "$scratch/hosts" "$vittrain" $large checkpoint.memory=$every run.dir="$scratch/$name$turn" debug.pause="backward:14:$scratch/go:7"
        pid_of 7 >/dev/null
        fault=$(date +%s.%N)
        "$@"
        touch "$scratch/go"
        recovered "$scratch/$name$turn" "$fault"
        rm -rf "${scratch:?}/$name$turn"
    done
}

case_rank_nodes() {
    kill_rank() { cluster exec 2 kill -9 "$(pid_of 7)"; }
    on_nodes rank kill_rank
    nodes=2 report vit_base_patch32_224 2 bf16 fsdp 8 'a rank is killed'
}

case_node() {
    lose() { cluster crash 2; }
    saved=$turns turns=1
    for ((try = 0; try < saved; try++)); do
        on_nodes node lose
        cluster boot 2
    done
    turns=$saved
    nodes=2 report vit_base_patch32_224 2 bf16 fsdp 8 'a node is lost'
}

# Interleaved runs; the median of the ratios of steps 12 to 26, after the first two checkpoints, which allocate their memory.
case_cost() {
    step() {
        $mpirun -np 2 "$vittrain" model.name=vit_base_patch32_224 train.batch=16 data.samples=400 mesh.strategy=fsdp $common train.steps=26 \
            run.dir="$scratch/cost" checkpoint.memory="$1" >"$scratch/cost.log" 2>&1 </dev/null
        awk -F , '$2 == 11 { begin = $16 } $2 == 26 { print ($16 - begin) / 15 }' "$scratch/cost/metrics.csv"
        rm -rf "$scratch/cost"
    }
    for ((turn = 0; turn < turns; turn++)); do
        without=$(step 0) with=$(step "$every")
        echo "$without $with" | awk '{ print $1, $2, $2 / $1 }' >>"$scratch/costs"
    done
    for column in 1 2 3; do
        names=(- 'step without checkpoints in memory' "step with one every $every steps" ratio) units=(- s s x)
        row 'checkpoints in memory' vit_base_patch32_224 16 bf16 fsdp 2 1 "${names[$column]}" \
            "$(cut -d ' ' -f $column "$scratch/costs" | median)" "${units[$column]}"
    done
}

for case; do "case_$case"; done
