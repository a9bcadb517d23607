#!/bin/bash
# How much of a training run's communication between two nodes hides behind computation: the trainer's own
# figures, 1 - exposed_comm_seconds / comm_seconds of metrics.csv, over the steps after the first three. Two nodes of
# one machine, a cable of the given rate between them (two_nodes.sh; needs root), one rank on each. Prints rows of
# the benchmarks' CSV (README.md).
#
#   benchmarks/overlap.sh STRATEGY [RATE] [SETTING...] >> benchmarks/results/overlap.csv     # RATE: 1gbit
#
# Environment: VITTRAIN, STEPS (20), BATCH (a rank's, 128), THREADS (1).
set -euo pipefail

strategy=${1:?STRATEGY} rate=${2:-1gbit}
shift $(($# > 2 ? 2 : $#))
here=$(dirname "$(readlink -f "$0")")
vittrain=$(readlink -f "${VITTRAIN:-$here/../vittrain}")
steps=${STEPS:-20} batch=${BATCH:-128} threads=${THREADS:-1}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

bash "$here/two_nodes.sh" "$rate" 1 "$vittrain" train "run.dir=$scratch/run" "run.threads=$threads" \
    model.name=vit_cifar "mesh.strategy=$strategy" data.format=synthetic data.val=none \
    "data.samples=$((2 * batch * (steps + 3)))" "train.batch=$batch" "train.steps=$((steps + 3))" \
    checkpoint.every=0 output.weights=off output.tensorboard=off output.log_every=1 "$@" \
    >"$scratch/log" 2>&1 || { tail -3 "$scratch/log" >&2; exit 1; }

name=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -1 | tr -d ',')
version=$("$vittrain" --version)
version=${version#vittrain }
commit=$(sed -n 's/.*commit \([^)]*\).*/\1/p' <<<"$version")
precision=$(sed -n 's/.*computing in \(fp32\|bf16\).*/\1/p' "$scratch/log" | head -1)
awk -F, -v begin="$(date +%FT%T),$name ($(nproc) cores),$commit,vittrain,$version" \
    -v work="training step over $rate between 2 nodes,vit_cifar,$((2 * batch)),$precision,$strategy,2,$threads" '
    NR == 1 { for (i = 1; i <= NF; i++) column[$i] = i; next }
    $column["split"] == "train" && $column["step"] > 3 {
        step += $column["step_seconds"]; comm += $column["comm_seconds"]
        exposed += $column["exposed_comm_seconds"]; rows++
    }
    function row(metric, value, unit) { print begin "," work "," metric "," value "," unit }
    END {
        row("mean step", step / rows, "s")
        row("mean communication", comm / rows, "s")
        row("mean exposed communication", exposed / rows, "s")
        row("communication hidden", 100 * (1 - exposed / comm), "%")
    }' "$scratch/run/metrics.csv"
