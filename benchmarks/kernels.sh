#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Table of the kernels in a built module: registers, threads, stack, memory accesses and tensor-core
# instructions, by `cuobjdump`. CSV on standard output, one row per kernel and architecture.
#   benchmarks/kernels.sh [FILE...] >TABLE     (a module or objects; default: vittrain-cuda.so)
# Columns: threads: the largest block that __launch_bounds__ allows, 0 without it; local_accesses:
# instructions that spill or use a stack (LDL, STL); loads_16, stores_16: instructions that move 16 bytes of global
# memory per thread; warps_by_registers: the number of warps per multiprocessor that the registers allow;
# dependency_waits: instructions that wait for the preceding kernel (cuda.dependent_launch).
# Exit status 77 without cuobjdump. CUOBJDUMP names it; it is part of the CUDA toolkit and of PyPI's package triton.
set -eu
tool=${CUOBJDUMP:-$(PATH=$PATH:/usr/local/cuda/bin command -v cuobjdump || true)}
[ -x "$tool" ] || { echo "kernels.sh: no cuobjdump" >&2; exit 77; }
[ $# -gt 0 ] || set -- "$(dirname "$0")/../vittrain-cuda.so"
release() { grep -a -m 1 -o 'Cuda compilation tools, release [0-9.]*' "$1" | sed -n '1s/.* //p'; }

for file; do
    for dump in res-usage elf sass; do
        echo "dump $dump $(release "$file")"
        "$tool" -$dump "$file" 2>/dev/null || echo "kernels.sh: $tool -$dump $file failed" >&2
    done
done | awk -v date="$(date -u +%Y-%m-%d)" '
    function hexadecimal(text,   i, value) {
        for (i = 3; i <= length(text); i++) value = 16 * value + index("0123456789abcdef", substr(text, i, 1)) - 1
        return value
    }
    function field(text, name) {
        return match(text, name ":[0-9]+") ? substr(text, RSTART + length(name) + 1, RLENGTH - length(name) - 1) : 0
    }
    $1 == "dump" { dump = $2; release = $3; kernel = ""; next }
    $1 == "arch" { architecture = $3; source = "" }
    $1 == "identifier" { source = $3; sub(/.*\//, "", source) }
    dump == "res-usage" && $1 == "Function" {
        kernel = $2
        sub(/:$/, "", kernel)
    }
    dump == "res-usage" && /REG:/ {
        at = architecture SUBSEP kernel
        order[++count] = at
        used[at] = field($0, "REG"); stack[at] = field($0, "STACK"); shared[at] = field($0, "SHARED")
        head[at] = date "," release "," architecture "," source
    }
    dump == "elf" && /^\.nv\.info\./ { at = architecture SUBSEP substr($1, 10) }
    dump == "elf" { if (bound && $1 == "Value:") { threads[at] = hexadecimal($2) * hexadecimal($3) * hexadecimal($4); bound = 0 } }
    dump == "elf" && /EIATTR_MAX_THREADS/ { bound = 1 }
    dump == "sass" && $1 == "Function" { at = architecture SUBSEP $3; disassembled[at] = 1 }
    dump == "sass" && / (LDL|STL)[. ]/ { local[at]++ }
    dump == "sass" && / (HMMA|HGMMA|UTCHMMA)[. ]/ { tensor[at]++ }
    dump == "sass" && / ACQBULK[ ;]/ { waits[at]++ }
    dump == "sass" && / LDG[.A-Z0-9]*\.128/ { loads[at]++ }
    dump == "sass" && / STG[.A-Z0-9]*\.128/ { stores[at]++ }
    END {
        print "date,nvcc,architecture,source,kernel,registers,threads,stack_bytes,shared_bytes,local_accesses," \
            "tensor_instructions,loads_16,stores_16,warps_by_registers,dependency_waits"
        for (i = 1; i <= count; i++) {
            at = order[i]
            split(at, part, SUBSEP)
            if (!disassembled[at]) {
                print "kernels.sh: no machine code of " part[2] >"/dev/stderr"
                continue
            }
            most = part[1] == "sm_75" ? 32 : part[1] ~ /sm_(86|89|12)/ ? 48 : 64
            # A warp gets registers in units of 256.
            warps = int(65536 / (int((used[at] * 32 + 255) / 256) * 256))
            printf "%s,\"%s\",%d,%d,%d,%d,%d,%d,%d,%d,%d,%d\n", head[at], part[2], used[at], threads[at], stack[at], shared[at],
                local[at], tensor[at], loads[at], stores[at], warps < most ? warps : most, waits[at]
        }
    }' | c++filt | sed 's/"void /"/; s/([^"]*"/"/'
