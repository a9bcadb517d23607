#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Images per second from JPEG files with RandomResizedCrop to 224 x 224. vittrain's loader with 2 threads runs in turn with
# torchvision's DataLoader with 2 workers. The ratio is the median of images per second of CPU time, which other programs
# hardly affect. Prints rows of the benchmarks' CSV.
#   input.sh ROOT [PAIRS]       ROOT/train/CLASS/FILE; build first: make benchmarks/bench_input
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"
root=$1 pairs=${2:-5}
build=${BUILD:-$here/..}
PYTHON=${PYTHON:-python3}
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
speed() { grep "$1"' in processor time,' "$2" | cut -d, -f14; } # METRIC FILE

for pair in $(seq "$pairs"); do
    "$build/benchmarks/bench_input" data.format=imagefolder data.root="$root" data.val=none model.image=224 \
        augment.random_resized_crop=on data.workers=2 run.threads=1 train.batch=32 >"$work/own"
    "$PYTHON" -W ignore "$here/pytorch_input.py" "$root/train" --workers 2 --seconds 3 --normalise >"$work/other"
    [ "$pair" != 1 ] || head -1 "$work/own"
    tail -q -n +2 "$work/own"
    cat "$work/other"
    echo "$(speed ',loader (2 workers)' "$work/own") $(speed '' "$work/other")" | awk '{ print $1 / $2 }' >>"$work/ratios"
done
grep ' in processor time,' "$work/other" |
    sed "s/,torchvision,\([^,]*\),/,vittrain over torchvision,\1,/
        s/,crop (2 workers)\([^,]*\),[^,]*,[^,]*/,loader (2 workers)\1: median of $pairs pairs,$(median <"$work/ratios"),ratio/"
