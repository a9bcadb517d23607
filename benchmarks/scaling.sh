#!/bin/bash
# Weak scaling on one machine: 2 ranks x 1 thread against two independent one-rank runs of the same batch a
# rank that are started together, in turn. Prints rows of the benchmarks' CSV (README.md); the last row is the
# share of the independent runs' speed that is left when they work together.
#
#   benchmarks/scaling.sh MODEL BATCH_A_RANK STRATEGY [TURNS] >> benchmarks/results/scaling-HOST.csv
#
# Environment: PYTHON (any, for the rows), VITTRAIN, MPIRUN, STEPS, EXTRA (more settings for both).
set -euo pipefail

model=${1:?MODEL} batch=${2:?BATCH_A_RANK} strategy=${3:?STRATEGY} turns=${4:-3}
here=$(dirname "$(readlink -f "$0")")
python=${PYTHON:-python3}
vittrain=${VITTRAIN:-$here/../vittrain}
mpirun=${MPIRUN:-mpirun --oversubscribe}
steps=${STEPS:-6}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

case $model in
vit_cifar | cnn_*) image=32 ;;
*) image=224 ;;
esac

train() { # RANKS NAME WORD...
    local ranks=$1 name=$2
    shift 2
    rm -rf "$scratch/$name"
    $mpirun -np "$ranks" "$vittrain" train "run.dir=$scratch/$name" run.threads=1 "model.name=$model" \
        model.classes=10 data.format=synthetic "data.image=$image" data.val=none \
        "data.samples=$((batch * ranks * (steps + 2)))" augment.flip=0 augment.rotate=0 augment.translate=0 \
        augment.erase=0 "train.batch=$batch" "train.steps=$((steps + 2))" train.clip_norm=1 \
        optim.weight_decay=0.05 checkpoint.every=0 output.weights=off output.tensorboard=off \
        output.log_every=1 ${EXTRA:-} "$@" >"$scratch/$name.log" 2>&1 || { tail -3 "$scratch/$name.log" >&2; return 1; }
}

# The median of what metrics.csv has of the steps after the first two.
median_step() { # NAME
    awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) column[$i] = i; next }
             $column["split"] == "train" && $column["step"] > 2 { print $column["step_seconds"] }' \
        "$scratch/$1/metrics.csv" | sort -g | awk '{ value[NR] = $1 } END { print value[int((NR + 1) / 2)] }'
}

row() { # WORK STRATEGY RANKS METRIC VALUE UNIT
    "$python" - "$@" <<END
import sys
sys.path.insert(0, "$here")
from bench_common import print_row
work, strategy, ranks, metric, value, unit = sys.argv[1:]
precision = "$(sed -n 's/.*computing in \(fp32\|bf16\).*/\1/p' "$scratch"/together.log | head -1)"
print_row(framework="vittrain", version="$version", work=work, model="$model", batch=$batch * int(ranks),
          precision=precision, strategy=strategy, ranks=ranks, threads=1, metric=metric, value=value, unit=unit)
END
}

version=$("$vittrain" --version | head -1 | tr -d , | sed "s|^vittrain ||")
for ((turn = 0; turn < turns; turn++)); do
    train 2 together "mesh.strategy=$strategy"
    train 1 left & train 1 right
    wait $!
    together=$(median_step together)
    alone=$(printf '%s\n' "$(median_step left)" "$(median_step right)" |
        awk '{ sum += $1 } END { print sum / NR }')
    row "weak scaling: together" "$strategy" 2 step "$together" s
    row "weak scaling: two alone" none 1 step "$alone" s
    awk "BEGIN { print $alone / $together }" >>"$scratch/ratios"
done
ratio=$(sort -g "$scratch/ratios" | awk '{ value[NR] = $1 } END { printf "%.3f", value[int((NR + 1) / 2)] }')
row "weak scaling" "$strategy" 2 efficiency "$ratio" x
