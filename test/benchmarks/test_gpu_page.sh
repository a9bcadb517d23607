#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# benchmarks/gpu_page: the estimates written by `plan`, and the page generated from them and from measurements.
. "$TEST_SOURCE/test/support/program.sh"
needs python3
gpu_page=$TEST_SOURCE/benchmarks/gpu_page
header=date,host_cpu,commit,framework,version,work,model,batch,precision,strategy,ranks,threads,metric,value,unit,nodes,host,cores,memory_gib,gpu,load

# ---- Estimates.
synthetic="data.format=synthetic run.backend=cpu train.precision=bf16 plan.machine=none"
run 1 plan plan $synthetic model.name=vit_cifar data.image=32 train.batch=6 plan.operations="$work/operations.csv"
# The plan prints GFLOP of an image to four decimals.
result 'their operations are those of the plan' "$(awk -F'[ ,]+' '
    FNR == NR { if ($1 == "step") planned = ($2 + $3) * 6; next }
    FNR > 1 { flops += $(NF - 1) }
    END { gap = flops / 1e9 - planned; if (planned <= 0 || gap * gap > 1e-6) print flops / 1e9 " GFLOP, planned " planned }
    ' plan.log operations.csv 2>&1)" plan.log
# 6 images of 65 tokens: qkv has 390 rows of 192 and 576 columns, no bias, 2 bytes per number.
has() { # TEXT...: what no row of the estimates ends with
    for text; do grep -q -- "$text\$" operations.csv || echo "no $text"; done
}
result 'operations and bytes of kernels' "$(
    has ',blocks.0,linear_forward,product,y,390x576x192,86261760,820224' \
        ',blocks.0,linear_backward,product,dweight,390x576x192,86261760,1483776' \
        ',blocks.0,linear_backward,product,dx,390x576x192,86261760,820224' \
        ',blocks.0,linear_forward,gelu,y,390x768x192,0,1198080' \
        ',blocks.0,linear_forward,dropout,y,390x192x768,0,449280' \
        ',blocks.0,linear_backward,gelu_gradient,dx,390x192x768,0,1797120')" operations.csv
result 'a backward pass is two products, the gradient of the weights first, and the gradient of gelu' "$(
    awk -F, '$5 == "blocks.0" && $6 == "linear_backward" { printf "%s %s;", $7, $8 }' operations.csv |
        grep -q '^product dweight;product dx;gelu_gradient dx;product dweight;product dx;product dweight;' || echo other)" operations.csv
run 1 convnet plan $synthetic model.name=resnet50 data.image=64 train.batch=2 plan.operations="$work/convnet.csv"
# 53 convolutions, of which 33 are 1 x 1 with stride 1.
result 'a convolution turns its filters before, one of single pixels is a product' "$(
    awk -F, '$6 == "convolution_forward" { printf "%s %s;", $7, $8 }' convnet.csv >kernels
    [ "$(grep -o 'transpose filters;convolution y;' kernels | wc -l)" = 20 ] || echo "not 20 convolutions"
    [ "$(grep -o 'product y;' kernels | wc -l)" = 33 ] || echo "not 33 products")" convnet.csv
run 1 failing plan $synthetic model.name=vit_cifar data.image=32 plan.operations="$work/none/operations.csv"
result 'estimates that cannot be written' "$(failed_otherwise 5 'cannot write .*none/operations.csv')"

# ---- The page. Ceilings of 1 TB/s and 100 TFLOP/s; a product at the ceiling, one at half of it, and a norm.
row() { # FRAMEWORK WORK MODEL BATCH METRIC VALUE UNIT
    echo "2026-01-02T03:04:05,cpu,abc,$1,1,$2,$3,$4,bf16,none,1,1,$5,$6,$7,1,host,4,16,A GPU,0"
}
{
    echo $header
    row vittrain "copy of 1 GB" "" "" bandwidth 1000 GB/s
    row vittrain "product 8192x8192x8192" "" "" speed 100 TFLOP/s
    row vittrain "training step" m 8 step 0.010 s
    row pytorch-eager "training step" m 8 step 0.030 s
    row pytorch-compiled "training step" m 8 step 12.5 ms
    row vittrain "attention_forward 8x12x197x64" "" "" time 100 us
    row pytorch-cudnn "attention_forward 8x12x197x64" "" "" time 0.05 ms
} >gpu.csv
cat >estimates.csv <<END
model,batch,precision,call,unit,operation,kernel_family,result,shape,flops,bytes
m,8,bf16,0,a,linear_forward,product,pre,10x20x30,100000000000,1000000
m,8,bf16,0,a,linear_forward,gelu,y,10x20x30,0,50000000
m,8,bf16,1,a,linear_forward,product,y,10x30x20,100000000000,1000000
m,8,bf16,2,a,norm_forward,norm_forward,,,0,1000000000
END
cat >gpu-kernels.csv <<'END'
model,kernel,launch,time_ns,dram_bytes,tensor_pipe_percent,grid,block
m,"void forward_kernel<bf16, (int)3>(norm_forward)",9,2000000,1100000000,0,1,1
m,nvjet_hsh_128x256,5,1000000,1000000,90,1,1
m,nvjet_hsh_128x128,7,2000000,1000000,45,1,1
m,void gelu_kernel<bf16>(octets),6,4000,90000000,0,1,1
END
"$gpu_page" gpu.csv gpu-kernels.csv estimates.csv >page.md 2>page.log
status=$?
cells() { # KERNEL FILE: a row of the page, without spaces
    grep "^| $1" "$2" | head -n 1 | tr -d ' '
}
result 'a kernel at half of the product ceiling' "$(
    [ $status -eq 0 ] || echo "exit status $status"
    [ "$(cells 'product y' page.md)" = '|producty10x30x20|1|2.000|40.0|1.0|1.0|45|50|50.0|1.000|2.00|1.000|nvjet_hsh_128x128|' ] || echo other
)" page.md
result 'a kernel that memory limits' "$(
    [ "$(cells 'norm_forward' page.md)" = '|norm_forward|1|2.000|40.0|1100.0|1000.0|0|||1.000|2.00|1.000|forward_kernel<bf16,3>|' ] || echo other
)" page.md
result 'the reasons: matrices, memory, launches; none for a kernel at the ceiling' "$(
    sed -n '/what to do next/,/^##/p' page.md | tr -d ' ' >next
    grep -q '^|producty10x30x20|matrix-bound|50%oftheproductceiling|1.000|$' next || echo matrix
    grep -q '^|norm_forward|memory-bound|55%ofthebandwidth|1.000|$' next || echo memory
    ! grep -q productpre next || echo "the good product")" page.md
result 'sums, steps and attention of PyTorch' "$(
    grep -q '^Kernels: 5.004 ms. Roofline of the step: 3.050 ms' page.md || echo sums
    grep -q '^Measured step: 10.000 ms, +4.996 ms .*; 20.0 % of the product ceiling, 2.0 % of the nominal' page.md || echo step
    [ "$(cells 'm  *|' page.md)" = '|m|8|bf16|10.000|800|1.25|3.00|' ] || echo PyTorch
    [ "$(cells '197 tokens, forward' page.md)" = '|197tokens,forward|100.0|50.0|0.50|' ] || echo attention)" page.md
# Measured by CUDA events per operation: no counters.
cat >events.csv <<END
model,kernel,launch,time_ns,dram_bytes,tensor_pipe_percent,grid,block
m,linear_forward,0,1100000,,,,
m,linear_forward,1,2000000,,,,
m,norm_forward,2,2000000,,,,
END
"$gpu_page" gpu.csv events.csv estimates.csv >events.md 2>&1
result 'times of operations instead of kernels' "$(
    [ "$(cells 'linear_forward 10x20x30' events.md)" = '|linear_forward10x20x30|1|1.100|21.6||51.0||91|90.9|1.050|1.05|0.050|linear_forward|' ] || echo other
)" events.md
sed '/nvjet_hsh_128x128/d' gpu-kernels.csv >fewer.csv
"$gpu_page" fewer.csv estimates.csv >fewer.md 2>&1
result 'launches that differ in number are paired by family' "$(
    grep -q 'product (1 launches, 2 estimates)' fewer.md || echo "not named"
    grep -q '3350 GB/s (nominal), 989 TFLOP/s .*(nominal)' fewer.md || echo "nominal ceilings")" fewer.md

# ---- Invalid files.
bad=
refused() { # PATTERN FILE...
    pattern=$1
    shift
    "$gpu_page" "$@" >page.out 2>page.err && bad="$bad; $pattern: accepted"
    [ "$(wc -l <page.err)" = 1 ] && grep -q "^gpu_page: .*$pattern" page.err || bad="$bad; $pattern: $(head -c 300 page.err)"
}
sed 's/,4000,/,4k,/' gpu-kernels.csv >broken.csv
refused "broken.csv:5: time_ns='4k' is not a number" broken.csv estimates.csv
sed '$s/,4000.*//' gpu-kernels.csv >broken.csv
refused 'broken.csv:5: 3 cells where the header has 8' broken.csv estimates.csv
sed 's/,ms,/,minutes,/' gpu.csv >broken.csv
refused "broken.csv:6: unit='minutes' is not one of" broken.csv
echo 'epoch,loss' >broken.csv
refused 'broken.csv: unknown columns' broken.csv
refused 'nothing.csv: cannot be read' nothing.csv
refused 'no estimates of m' gpu-kernels.csv
result 'a damaged file gives one line of error' "$bad"

# ---- Names.
cat >names.py <<'END'
import glob, importlib.machinery, importlib.util, re, sys
loader = importlib.machinery.SourceFileLoader("gpu_page", sys.argv[1])
page = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_page", loader))
loader.exec_module(page)
names = [name for path in glob.glob(sys.argv[2] + "/cuda/*.cu") for name in re.findall(r"(\w+_kernel)\(", re.sub(
    r"KERNEL_LAUNCH.*", "", open(path).read()))]
names = [name + "<bf16>(x)" for name in set(names)]
print("\n".join(name for name in names if page.family_of(name, set())[0] == page.short_name(name)))
for name, family in (("void forward_kernel<bf16, (int)3>(norm_forward)", "norm_forward"),
                     ("void backward_kernel<bf16, 6>(norm_backward, long)", "norm_backward"),
                     ("norm_backward_kernel<bf16, 768>", "norm_backward"),
                     ("void forward_kernel<bf16>(grid, batch_norm_forward)", "batch_norm_forward"),
                     ("void backward_kernel<fp16, (bool)1, (bool)0>(grid, batch_norm_backward)", "batch_norm_backward"),
                     ("void finish_kernel<(bool)1>(batch_norm_backward_sums, x)", "batch_norm_backward_sums"),
                     ("void finish_kernel<(bool)0>(batch_norm_backward_sums, x)", "batch_norm_sums"),
                     ("sm90_xmma_wgrad_implicit_gemm_indexed_bf16bf16", "convolution"),
                     ("void cutlass__5x_cudnn::Kernel<x>", "convolution"),
                     ("void cublasLt::splitKreduce_kernel<32>", "product")):
    if page.family_of(name, set())[0] != family:
        print(name, "is", page.family_of(name, set())[0])
sys.exit(len(names) < 40)
END
result 'each kernel of cuda/ belongs to a family; norms and batch norms are told apart' \
    "$(python3 -B names.py "$gpu_page" "$TEST_SOURCE" 2>&1 || echo "status $?")"
