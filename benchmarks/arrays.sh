#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Samples per second of float32 fields [8, 128, 128] in HDF5 and Zarr, in random order: vittrain's loader with 2 threads in
# turn with h5py or xarray and DataLoader with 2 spawned workers, for each layout of pytorch_arrays.py; chunks of 16 samples
# also with data.shuffle=chunks. The ratios are medians of samples per second of CPU time, which other programs affect less.
# Prints rows of the benchmarks' CSV.
#   arrays.sh [PAIRS]       build first: make vittrain benchmarks/bench_input. SAMPLES: of each file (960, 500 MB)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"
pairs=${1:-5}
build=${BUILD:-$here/..}
PYTHON=${PYTHON:-python3}
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
speed() { grep 'loader (2 workers) in processor time,' "$1" | cut -d, -f14; } # FILE

# ours FILE NAME SHUFFLE: rows of vittrain.
ours() {
    "$build/benchmarks/bench_input" data.format=arrays data.root="$1" data.x=x data.y=y data.val=none data.shuffle="$3" \
        data.workers=2 run.threads=1 train.batch=32 | grep -E '^date,|,loader \(2 workers\)' | sed "s/,input,[^,]*,/,arrays,$2,/"
}
# compared FILE OURS: note the ratio to the last measurement of DataLoader, and its row.
compared() {
    echo "$(speed "$2") $(speed "$work/theirs")" | awk '{ print $1 / $2 }' >>"$1.ratios"
    grep ' in processor time,' "$work/theirs" | sed "s/,\(h5py\|xarray\),\([^,]*\),arrays,[^,]*,/,vittrain over \1,\2,arrays,${3:-&},/" >"$1.last"
}

"$PYTHON" "$here/pytorch_arrays.py" --make "${SAMPLES:-960}" "$work" >"$work/layouts"
for pair in $(seq "$pairs"); do
    while IFS=$'\t' read -r file name chunk; do
        ours "$file" "$name" on >"$work/on"
        "$PYTHON" -W ignore "$here/pytorch_arrays.py" "$file" --name "$name" >"$work/theirs"
        [ "$pair" != 1 ] || [ "$name" != contiguous ] || head -1 "$work/on"
        tail -q -n +2 "$work/on"
        cat "$work/theirs"
        compared "$work/$name" "$work/on" "$name"
        [ "$chunk" -gt 1 ] || continue
        ours "$file" "$name: data.shuffle=chunks" chunks >"$work/chunks"
        tail -q -n +2 "$work/chunks"
        compared "$work/$name: data.shuffle=chunks" "$work/chunks" "$name: data.shuffle=chunks"
    done <"$work/layouts"
done
for ratios in "$work"/*.ratios; do
    sed "s/,loader (2 workers)\([^,]*\),[^,]*,[^,]*/,loader (2 workers)\1: median of $pairs pairs,$(median <"$ratios"),ratio/" \
        "${ratios%.ratios}.last"
done
