#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# Machine code of the GPU kernels: tensor cores in attention, no spills in 16-bit kernels, registers within the launch
# bounds, 16-byte accesses in memory-bound kernels, the wait for the preceding kernel. Needs cuobjdump, but no GPU.
#   MACHINE_CODE="FILE..." names other files than vittrain-cuda.so; CUOBJDUMP names the program.
. "$TEST_SOURCE/test/support/program.sh"
files=${MACHINE_CODE:-$TEST_BUILD/vittrain-cuda.so}
[ -e "${files%% *}" ] || skip_all 'the build has no module for GPUs'
sh "$TEST_SOURCE/benchmarks/kernels.sh" $files >kernels.csv 2>kernels.log
status=$?
if [ $status -eq 77 ]; then
    skip_all 'no cuobjdump: it is in the CUDA toolkit and in the Python package triton'
fi

# broken RULE: print the kernels that violate it. bf16 kernels for GPUs without bf16 (before sm_80) are empty.
broken() {
    awk -F, '
        # Commas between template arguments are not separators.
        function cells(   rest) {
            kernel = $0
            sub(/^[^"]*"/, "", kernel)
            rest = kernel
            sub(/".*/, "", kernel)
            sub(/^[^"]*",/, "", rest)
            split(rest, cell, ",")
        }
        NR > 1 {
            cells()
            architecture = $3; source = $4
            registers = cell[1]; threads = cell[2]; shared = cell[4]; local = cell[5]
            tensor = cell[6]; loads = cell[7]; stores = cell[8]; waits = cell[10]
            is_16 = kernel ~ /<(bf16|fp16)/
            if (architecture == "sm_75" && kernel ~ /bf16/) next
            if ('"$1"') print architecture " " kernel " (" source "): " '"$2"'
        }' kernels.csv
}

result 'the table has every kernel' "$(
    [ $status -eq 0 ] || echo "exit status $status"
    # Kernels with wgmma exist only in builds for sm_90.
    for source in "$TEST_SOURCE"/cuda/*.cu; do
        case $source in *_wgmma.cu) grep -q ',sm_90a,' kernels.csv || continue ;; esac
        grep -v KERNEL_LAUNCH "$source"
    done | grep -o '[a-z_]*_kernel(' | tr -d '(' | sort -u >sources
    sed '1d; s/^[^"]*"//; s/[<"].*//' kernels.csv | sort -u >names
    [ -s sources ] || echo "no sources"
    [ -n "${MACHINE_CODE:-}" ] || comm -23 sources names
    [ -s names ] || echo "no kernels")" kernels.log
result '16-bit attention uses the tensor cores' "$(
    broken 'is_16 && kernel ~ /^attention/ && tensor == 0' '"no HMMA or HGMMA"')"
# Attention is known to spill registers with eight warps per block; its backward pass also with heads of 128, before sm_80
# and on sm_100.
known='(kernel ~ /^attention.* 8>$/ || kernel ~ /^attention_backward_kernel<.*128, 4>$/ || (kernel ~ /^attention_backward/ && architecture ~ /sm_(75|100)/)) && local < 160'
result 'no 16-bit kernel spills' "$(broken "is_16 && local > 0 && !($known)" 'local " accesses to local memory"')"
# Without __launch_bounds__ a block has at most 512 threads.
result 'the registers of a block fit a multiprocessor' "$(
    broken 'registers * (threads > 0 ? threads : 512) > 65536' 'registers " registers, " threads " threads"')"
# All shared memory is dynamic; from sm_90 on the system reserves 1 KiB.
result 'no kernel has static shared memory' "$(
    broken 'shared > (architecture ~ /sm_[78]/ ? 0 : 1024)' 'shared " bytes"')"
reading='^(add|attention|backward|bias_relu|column_sums|drop|dropout|forward|gelu|glu|max|mix|pool|relu|rotary|scale|squares|sums|tokens|update)'
writing='^(add|attention|backward_kernel|backward_sums_kernel|bias_relu|drop|dropout|forward|gelu|glu|max|mix|pool|relu|rotary|scale|tokens_forward|tokens_backward|update)'
# Batch norm and max pooling have other kernels for tensors that do not fit vectors.
vectors='!(source ~ /^(batch_norm|pool)\.cu$/ && kernel ~ /false>$/)'
result '16-bit kernels that memory limits move 16 bytes at a time' "$(
    broken "(is_16 || kernel ~ /^(add|squares)_kernel/) && kernel ~ /$reading/ && $vectors && loads == 0" '"no load of 16 bytes"'
    broken "(is_16 || kernel ~ /^add_kernel/) && kernel ~ /$writing/ && $vectors && stores == 0" '"no store of 16 bytes"')"
result 'kernels wait for the preceding one, from sm_90 on' "$(
    broken 'waits != (architecture !~ /sm_[78]/)' 'waits " waits"')"
