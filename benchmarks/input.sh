#!/bin/sh
# Images per second from folders of JPEG files, 224 x 224 by RandomResizedCrop: vittrain's loader with 2 threads
# in turn with torchvision's DataLoader with 2 workers, and the median of the ratios per second of CPU time, which
# other programs hardly affect. Prints rows of the benchmarks' CSV.
#   input.sh ROOT [PAIRS]       ROOT/train/CLASS/FILE; build first: make benchmarks/bench_input
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"
root=$1 pairs=${2:-5}
build=${BUILD:-$here/..}
PYTHON=${PYTHON:-python3}
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT

for pair in $(seq "$pairs"); do
    "$build/benchmarks/bench_input" data.format=imagefolder data.root="$root" model.image=224 \
        augment.random_resized_crop=on data.workers=2 run.threads=1 train.batch=32 >"$work/own"
    "$PYTHON" -W ignore "$here/pytorch_input.py" "$root/train" --workers 2 --seconds 3 --normalise >"$work/other"
    [ "$pair" != 1 ] || head -1 "$work/own"
    tail -n +2 "$work/own"
    cat "$work/other"
    own=$(grep ',loader (2 workers) in processor time,' "$work/own" | cut -d, -f14)
    other=$(grep ' in processor time,' "$work/other" | cut -d, -f14)
    awk -v a="$own" -v b="$other" 'BEGIN { print a / b }' >>"$work/ratios"
done
grep ' in processor time,' "$work/other" |
    sed "s/,torchvision,\([^,]*\),/,vittrain over torchvision,\1,/; s/,crop (2 workers).*/,loader (2 workers) in processor time: median of $pairs pairs,$(median <"$work/ratios"),ratio/"
