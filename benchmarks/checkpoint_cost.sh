#!/bin/sh
# What checkpoints by the clock cost: the CIFAR ViT on two ranks with one every ten seconds, written at once and in
# the background. Prints a CSV row each: the share of the time without set-up that the run stood still for them.
#   benchmarks/checkpoint_cost.sh DIR CIFAR10 [section.key=value ...] >>cost.csv     CIFAR10: folder of the binary version
set -eu
top=$(cd "$(dirname "$0")/.." && pwd) dir=$1 data=$2
shift 2
echo background,checkpoints,bytes_each,stood_still_seconds,share_percent,run_seconds
for background in no yes; do
    run=$dir/cost-$background
    ${MPIRUN:-mpirun} -np 2 "$top/vittrain" "$top/input/vit_cifar.ini" output.logbook= data.root="$data" train.steps=400 data.val=none \
        checkpoint.every=0 checkpoint.every_seconds=10 checkpoint.background=$background run.threads=1 run.dir="$run" "$@" >&2
    awk -v background=$background -v bytes="$(stat -Lc %s "$run/checkpoints/last.h5")" '
        / checkpoints: / {
            count = $3
            for (i = 1; i <= NF; i++) {
                if ($i == "for" && $(i + 1) ~ /^[0-9.]+$/) stood = $(i + 1)
                if ($i ~ /^\(/) share = substr($i, 2)
            }
        }
        END { printf "%s,%d,%d,%s,%s,%.1f\n", background, count, bytes, stood, share, (share > 0 ? 100 * stood / share : 0) }' "$run/train.log"
done
