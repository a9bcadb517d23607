#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Compares predictions of `vittrain plan` with measurements: two ranks of this machine with each strategy, and two nodes
# of one rank each at a given network rate (two_nodes.sh; needs root), relative to one of two independent ranks. Each turn
# measures the steps and the machine (`bench device`, `bench comm`), because other programs affect both. Prints rows of the
# benchmarks' CSV (README.md): predicted and measured steps (medians of the turns), the efficiency of both, and the difference.
#
#   benchmarks/plan_check.sh [TURNS] > benchmarks/results/plan-DATE.csv       # 3
#
# Environment: VITTRAIN, MPIRUN, STEPS (6), RATE (1gbit; none: no two nodes), WORK ("vit_cifar:64 ..." models and batches
# per rank), STRATEGIES (ddp fsdp). Use `nice -n -19` on a shared machine.
set -euo pipefail

turns=${1:-3}
here=$(dirname "$(readlink -f "$0")")
. "$here/common.sh"
steps=${STEPS:-6} rate=${RATE:-1gbit} work=${WORK:-vit_cifar:64 vit_base_patch32_224:16} strategies=${STRATEGIES:-ddp fsdp}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
echo "$bench_header"

nodes_run() { bash "$here/two_nodes.sh" "$rate" 1 "$@"; }

# machine_add NAME LAUNCHER...: adds the measurements to NAME.ini.
machine_add() {
    local file=$scratch/$1.ini topic
    shift
    for topic in device comm; do
        "$@" "$vittrain" bench $topic run.threads=1 bench.max=32MiB bench.seconds=0.05 bench.machine="$file" >"$scratch/log" 2>&1 ||
            { tail -3 "$scratch/log" >&2; exit 1; }
    done
}

# machine_measure: inside.ini, between.ini; and, for a rank that shares the machine but not its work, single.ini.
machine_measure() {
    machine_add inside $mpirun -np 2
    sed 's/^node_ranks = .*/node_ranks = 1/' "$scratch/inside.ini" >"$scratch/single.ini"
    [ "$rate" = none ] || machine_add between nodes_run
}

# deck MODEL BATCH RANKS: settings of both measured and predicted steps.
deck() {
    case $1 in
    vit_cifar | cnn_*) image=32 ;;
    *) image=224 ;;
    esac
    echo "run.threads=1 model.name=$1 model.classes=10 data.format=synthetic data.image=$image data.val=none
        data.samples=$(($2 * $3 * (steps + 3))) augment.flip=0 augment.rotate=0 augment.translate=0 augment.erase=0
        train.batch=$2 train.clip_norm=1 optim.weight_decay=0.05"
}

# predicted FILE MODEL BATCH RANKS NODE_RANKS STRATEGY: prints seconds.
predicted() {
    # shellcheck disable=SC2046
    "$vittrain" plan $(deck "$2" "$3" "$4") plan.machine="$scratch/$1.ini" plan.ranks="$4" plan.node_ranks="$5" \
        mesh.strategy="$6" 2>/dev/null | sed -n 's/^Predicted with .* a step takes \([0-9.e+]*\) ms.*/\1/p' | awk '{ print $1 / 1000 }'
}

# measured NAME MODEL BATCH RANKS STRATEGY LAUNCHER...: runs; the median of its steps is added to NAME.
measured() {
    local name=$1 model=$2 batch=$3 ranks=$4 strategy=$5
    shift 5
    rm -rf "$scratch/run-$name"
    # shellcheck disable=SC2046
    "$@" "$vittrain" train $(deck "$model" "$batch" "$ranks") run.dir="$scratch/run-$name" train.steps=$((steps + 2)) \
        mesh.strategy="$strategy" checkpoint.every=0 output.weights=off output.tensorboard=off output.log_every=1 \
        output.logbook= >"$scratch/$name.log" 2>&1 || { tail -3 "$scratch/$name.log" >&2; return 1; }
    median_step "$scratch/run-$name" >>"$scratch/$name"
}

medians() { median <"$scratch/$1"; }

# compare WHAT MODEL BATCH RANKS STRATEGY MEASURED PREDICTED
compare() {
    local precision seconds expected efficiency predicted
    precision=$(precision_used "$scratch/together-ddp.log") seconds=$(medians "$6") expected=$(medians "$7")
    efficiency=$(awk "BEGIN { print $(medians alone) / $seconds }") predicted=$(awk "BEGIN { print $(medians predicted-alone) / $expected }")
    say() { row "plan against measured: $what" "$model" $((batch * ranks)) "$precision" "$strategy" "$ranks" 1 "$@"; }
    local what=$1 model=$2 batch=$3 ranks=$4 strategy=$5
    say "step measured" "$seconds" s
    say "step predicted" "$expected" s
    say "step error" "$(awk "BEGIN { printf \"%.1f\", 100 * ($expected / $seconds - 1) }")" %
    [ "$ranks" = 1 ] && return
    say "efficiency measured" "$efficiency" x
    say "efficiency predicted" "$predicted" x
    say "efficiency error" "$(awk "BEGIN { printf \"%.1f\", 100 * ($predicted / $efficiency - 1) }")" %
}

for item in $work; do
    model=${item%:*} batch=${item#*:}
    rm -f "$scratch"/{alone,predicted-,together-,nodes-}*
    for ((turn = 0; turn < turns; turn++)); do
        machine_measure
        measured alone "$model" "$batch" 1 ddp & measured beside "$model" "$batch" 1 ddp
        wait $!
        cat "$scratch/beside" >>"$scratch/alone" && rm "$scratch/beside"
        predicted single "$model" "$batch" 1 1 ddp >>"$scratch/predicted-alone"
        for strategy in $strategies; do
            measured "together-$strategy" "$model" "$batch" 2 "$strategy" $mpirun -np 2
            predicted inside "$model" "$batch" 2 2 "$strategy" >>"$scratch/predicted-together-$strategy"
            [ "$rate" != none ] || continue
            measured "nodes-$strategy" "$model" "$batch" 2 "$strategy" nodes_run
            predicted between "$model" "$batch" 2 1 "$strategy" >>"$scratch/predicted-nodes-$strategy"
        done
    done
    compare "one rank beside another" "$model" "$batch" 1 none alone predicted-alone
    for strategy in $strategies; do
        compare "2 ranks of a node" "$model" "$batch" 2 "$strategy" "together-$strategy" "predicted-together-$strategy"
        [ "$rate" = none ] || nodes=2 compare "2 nodes by $rate" "$model" "$batch" 2 "$strategy" "nodes-$strategy" "predicted-nodes-$strategy"
    done
done
