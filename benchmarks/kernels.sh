#!/bin/sh
# What nvcc makes of each kernel: registers, spills, stack, and how many warps of a multiprocessor
# the registers leave room for. CSV on standard output, one row a kernel and architecture.
#   benchmarks/kernels.sh [ARCHITECTURE...] >FILE     (default: 80 90)
# spill_bytes are what is stored and what is loaded again, together. Every kernel is in the table;
# exit status 1 is for those that a step's time hangs on and that spill, named on standard error: all
# but attention and the norm's way back in fp32, and attention of heads of 128. 77 without nvcc. NVCC
# names the compiler.
set -eu
cd "$(dirname "$0")/.."
nvcc=${NVCC:-$(PATH=$PATH:/usr/local/cuda/bin command -v nvcc || true)}
[ -n "$nvcc" ] || { echo "kernels.sh: no nvcc" >&2; exit 77; }
[ $# -gt 0 ] || set -- 80 90
said=$(mktemp)
trap 'rm -f "$said"' EXIT

for architecture; do
    for source in cuda/*.cu; do
        echo "source $(basename "$source") $architecture"
        "$nvcc" -std=c++17 -O3 -arch="sm_$architecture" -Icuda -Isrc -Xptxas -v -cubin -o /dev/null \
            "$source" 2>&1 || { echo "kernels.sh: $source does not compile for sm_$architecture" >&2; exit 1; }
    done
done | c++filt | awk -v date="$(date -u +%Y-%m-%d)" -v compiler="$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')" '
    BEGIN {
        print "date,nvcc,architecture,source,kernel,registers,spill_bytes,stack_bytes,warps_by_registers"
    }
    $1 == "source" { source = $2; architecture = $3 }
    /Compiling entry function/ {
        kernel = $0
        sub(/^[^\047]*\047/, "", kernel)
        sub(/\047 for .*/, "", kernel)
        sub(/^void /, "", kernel)
        sub(/\(.*/, "", kernel)
    }
    /bytes stack frame/ {
        stack = $1
        for (i = 1; i <= NF; i++) if ($i == "spill") spill += $(i - 2)
    }
    /Used [0-9]+ registers/ {
        for (i = 1; i <= NF; i++) if ($i == "registers,") registers = $(i - 1)
        most = architecture == 75 ? 32 : architecture == 86 || architecture == 89 ? 48 : 64
        # Registers are given to a warp by 256.
        warps = int(65536 / (int((registers * 32 + 255) / 256) * 256))
        printf "%s,%s,sm_%s,%s,\"%s\",%d,%d,%d,%d\n", date, compiler, architecture, source, kernel,
            registers, spill, stack, warps < most ? warps : most
        if (spill > 0 && kernel !~ /^(attention_(float_.*|.*128>$)|backward_kernel<float)/) {
            print "kernels.sh: " kernel " spills for sm_" architecture >"/dev/stderr"
            failed = 1
        }
        spill = stack = 0
    }
    END { exit failed }'
