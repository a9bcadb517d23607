#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The measurements that need a GPU, in parts that each fit one call of a borrowed machine (README.md, "On a GPU"):
#
#   benchmarks/gpu.sh PART ...
#
#   check    4 min  doctor, ceilings of copies and products, tests of operations, a few steps with and without CUDA graphs
#   losses   5 min  20 steps against the CPU's losses, in three precisions, recorded, on 2 ranks; compute-sanitizer
#   speed    9 min  steps of five models beside PyTorch's, in turns
#   kernels  8 min  every kernel of a step, by ncu; attention beside PyTorch's
#   plan     9 min  the most valuable measurements of all parts, in lists for calls of 10 minutes (gpu/plan.sh)
#   build           vittrain-cuda.so from cuda/*.cu, with nvcc
#
# Runs in a checkout that was built with nvcc, or in one in which a bundle (bundle.sh) was unpacked: the folder BUNDLE
# (vittrain-bundle). Writes at most 8 files to the folder OUT (gpu-results); each result is written when it is measured. What gpu-done.txt
# there lists is not measured again, so a part that reached its limit continues in the next call.
#
# Exit status: 77 without a GPU, 1 if a test or comparison failed, 2 for a wrong call. The last lines list what was not reached. Environment: OUT, BUNDLE, PYTHON (with torch and timm), LIMIT (seconds of each part), LISTS (of plan), and what the
# parts in gpu/ name in their first lines.
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")/.." || exit 1
here=$PWD/benchmarks

if (($# == 0)); then
    sed -n '2,/^set/{/^# /s/^# //p}' "$0" >&2
    exit 2
fi
for part in "$@"; do
    [[ $part =~ ^(check|losses|speed|kernels|plan|build)$ ]] || { echo "gpu.sh: no part $part" >&2; exit 2; }
done
if ! nvidia-smi -L >/dev/null 2>&1; then
    echo "gpu.sh: no GPU here (nvidia-smi -L finds none): nothing was measured" >&2
    exit 77
fi

. "$here/gpu/common.sh"
. "$here/common.sh"
for part in check losses speed kernels plan soak build; do . "$here/gpu/$part.sh"; done
exec > >(tee -a "$out/gpu.log") 2>&1
logger=$!
table_open "$csv" || exit 1
program_look
printf '\n==== %s: gpu.sh %s; vittrain %s (commit %s); %s\n' "$(date +%FT%T)" "$*" "$program_version" "$program_commit" \
    "$VITTRAIN_BENCH_GPU"
network_open
for part in "$@"; do
    part_begin "$part"
    "part_$part"
    choices_keep
done
cat "$misses" "$failures"
failed=$(grep -c . "$failures")
echo "$failed failed; $SECONDS s"
exec >&- 2>&-
wait "$logger"
((failed == 0))
