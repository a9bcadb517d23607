#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Samples per second of float32 fields [8, 128, 128] in HDF5, in random order: vittrain's loader with 2 threads in turn with
# h5py and DataLoader with 2 spawned workers, for each layout of pytorch_arrays.py. The ratios are medians of samples per
# second of CPU time, which other programs hardly affect. Prints rows of the benchmarks' CSV.
#   arrays.sh [PAIRS]       build first: make vittrain benchmarks/bench_input. SAMPLES: of each file (320, 168 MB)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"
pairs=${1:-5}
build=${BUILD:-$here/..}
PYTHON=${PYTHON:-python3}
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
speed() { grep 'loader (2 workers) in processor time,' "$1" | cut -d, -f14; } # FILE

"$PYTHON" "$here/pytorch_arrays.py" --make "${SAMPLES:-320}" "$work" >"$work/layouts"
for pair in $(seq "$pairs"); do
    while IFS=$'\t' read -r number name; do
        "$build/benchmarks/bench_input" data.format=arrays data.root="$work/$number.h5" data.x=/x data.y=/y data.val=none \
            data.workers=2 run.threads=1 train.batch=32 >"$work/all"
        grep -E '^date,|,loader \(2 workers\)' "$work/all" | sed "s/,input,[^,]*,/,arrays,$name,/" >"$work/ours"
        "$PYTHON" -W ignore "$here/pytorch_arrays.py" "$work/$number.h5" --name "$name" >"$work/theirs"
        [ "$pair$number" != 10 ] || head -1 "$work/ours"
        tail -q -n +2 "$work/ours"
        cat "$work/theirs"
        echo "$(speed "$work/ours") $(speed "$work/theirs")" | awk '{ print $1 / $2 }' >>"$work/$number.ratios"
        grep ' in processor time,' "$work/theirs" >"$work/$number.last"
    done <"$work/layouts"
done
while IFS=$'\t' read -r number name; do
    sed "s/,h5py,\([^,]*\),/,vittrain over h5py,\1,/
        s/,loader (2 workers)\([^,]*\),[^,]*,[^,]*/,loader (2 workers)\1: median of $pairs pairs,$(median <"$work/$number.ratios"),ratio/" \
        "$work/$number.last"
done <"$work/layouts"
