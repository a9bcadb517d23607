#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Table of registers and spills of the kernels in cuda/*.cu, as nvcc reports them. Needs a configured build and nvcc, but no GPU.
# CSV on standard output, one row per kernel and architecture: registers of a thread, bytes of its stack, bytes that it writes to
# and reads from local memory because registers are too few, bytes of static shared memory of a block.
#   benchmarks/registers.sh [SOURCE...] >TABLE     (default: all)
# Environment: ARCHITECTURES (80 90a 100), NVCC, JOBS. Exit status 77 without nvcc, 1 if a source does not compile.
set -eu
cd "$(dirname "$0")/.."
nvcc=${NVCC:-$(PATH=$PATH:/usr/local/cuda/bin command -v nvcc || true)}
[ -x "$nvcc" ] || { echo "registers.sh: no nvcc" >&2; exit 77; }
[ $# -gt 0 ] || set -- cuda/*.cu
objects=$(mktemp -d)
trap 'rm -rf "$objects"' EXIT
flags=$(make -s nvcc-flags | sed 's/-gencode [^ ]*//g; s/-lineinfo//')
for architecture in ${ARCHITECTURES:-80 90a 100}; do
    for source; do printf '%s\n' "$architecture $source"; done
done | xargs -P "${JOBS:-2}" -L 1 sh -c '
    name=$(basename "$4" .cu)-$3
    case $3 in *a) more=-DWITH_SM_90A ;; *) more= ;; esac
    $1 $2 $more -Xptxas -v -gencode "arch=compute_$3,code=sm_$3" -c -o "$0/$name.o" "$4" 2>"$0/$name.log" || { cat "$0/$name.log" >&2; exit 1; }
    rm "$0/$name.o"' "$objects" "$nvcc" "$flags" || exit 1
echo kernel,architecture,registers,stack_bytes,spill_store_bytes,spill_load_bytes,shared_bytes
cat "$objects"/*.log | awk '
    / Compiling entry function / { split($0, name, "\047"); kernel = name[2]; architecture = name[4] }
    /bytes spill stores/ { spills = $1 "," $5 "," $9 }
    / Used [0-9]+ registers/ {
        shared = match($0, /[0-9]+ bytes smem/) ? substr($0, RSTART, RLENGTH) + 0 : 0
        match($0, /Used [0-9]+/)
        print "\"" kernel "\"," architecture "," substr($0, RSTART + 5, RLENGTH - 5) "," spills "," shared
    }' | c++filt | sed 's/"void /"/; s/([^"]*"/"/' | sort
