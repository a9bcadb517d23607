#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Images per second from JPEG files with RandomResizedCrop to 224 x 224. vittrain's loader with 2 threads, from folders and
# from packed files with restart markers, runs in turn with torchvision's DataLoader with 2 workers. The ratios are medians
# of images per second of CPU time, which other programs hardly affect. Prints rows of the benchmarks' CSV.
#   input.sh ROOT [PAIRS]       ROOT/train/CLASS/FILE; build first: make vittrain benchmarks/bench_input
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"
root=$1 pairs=${2:-5}
build=${BUILD:-$here/..}
PYTHON=${PYTHON:-python3}
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
folders="data.format=imagefolder data.root=$root"
restarts="data.format=packed data.root=$work/restarts.h5"
speed() { grep "$1"' in processor time,' "$2" | cut -d, -f14; } # METRIC FILE

# shellcheck disable=SC2086 # the settings are several words
"$build/vittrain" convert data $folders data.val=none convert.kind=restarts convert.output="$work/restarts.h5" >"$work/log" 2>&1
for pair in $(seq "$pairs"); do
    for source in files restarts; do
        [ $source = files ] && settings=$folders || settings=$restarts
        # shellcheck disable=SC2086
        "$build/benchmarks/bench_input" $settings data.val=none model.image=224 augment.random_resized_crop=on \
            data.workers=2 run.threads=1 train.batch=32 | sed "s/,files to/,$source to/" >"$work/$source"
    done
    "$PYTHON" -W ignore "$here/pytorch_input.py" "$root/train" --workers 2 --seconds 3 --normalise >"$work/other"
    [ "$pair" != 1 ] || head -1 "$work/files"
    tail -q -n +2 "$work/files" "$work/restarts"
    cat "$work/other"
    for source in files restarts; do
        echo "$(speed ',loader (2 workers)' "$work/$source") $(speed '' "$work/other")" |
            awk '{ print $1 / $2 }' >>"$work/$source.ratios"
    done
done
for source in files restarts; do
    grep ' in processor time,' "$work/other" |
        sed "s/,torchvision,\([^,]*\),/,vittrain over torchvision,\1,/; s/,files to/,$source to/
            s/,crop (2 workers)\([^,]*\),[^,]*,[^,]*/,loader (2 workers)\1: median of $pairs pairs,$(median <"$work/$source.ratios"),ratio/"
done
