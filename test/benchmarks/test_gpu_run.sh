#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# system
# The GPU benchmarks as they run on another machine: bundle.sh packs the build with the emulated GPU's module, the bundle is
# unpacked in another tree, and each part of gpu.sh runs there, without loopback interface and without this machine's MPI
# if namespaces are permitted. nvidia-smi, ncu, compute-sanitizer, nvcc and Python are replaced by scripts.
. "$TEST_SOURCE/test/support/program.sh"

take_emulated_gpu
[ -e "$TEST_SOURCE/Makefile" ] || skip_all 'bundle.sh packs builds in the source folder only'
case $(mpirun --version 2>&1) in
*'(Open MPI) 4'*) ;;
*)
    skip_all 'bundle.sh packs Open MPI 4'
    ;;
esac
tree=$work/tree out=$work/out
mkdir -p "$tree" bin nvidia/cu13/lib
unset VITTRAIN_CUDA_MODULE VITTRAIN_TEST_DEVICE srcdir

# ---- Replacements.
stand_in() { # NAME: a script from standard input
    { echo '#!/bin/bash'; cat; } >"$work/bin/$1"
    chmod +x "$work/bin/$1"
}
stand_in nvidia-smi <<'END'
case $* in
*-lms*)
    [[ -z $NO_CLOCK ]] || { echo "Field is not valid"; exit 2; }
    printf '1980, 90.00, 0x0000000000000001\n1500, 690.00, 0x0000000000000004\n1530, 700.00, 0x0000000000000044\n1560, 680.00, 0x0000000000000000\n'
    exec sleep 600
    ;;
-L) echo "GPU 0: an emulated one" ;;
--query-gpu*) echo "emulated GPU, 1.0" ;;
esac
END
stand_in ncu <<'END'
echo "==ERROR== ERR_NVGPUCTRPERM - no permission"
exit 1
END
stand_in compute-sanitizer <<'END'
[[ -z $LD_LIBRARY_PATH ]] || { echo "========= libraries of the bundle in the sanitizer's environment"; exit 9; }
[[ -z $SANITIZER_FINDS ]] || { echo "========= Invalid read"; exit 9; }
until [[ $1 == */gpu/run ]]; do shift; done
exec "$@"
END
stand_in nvcc <<END
echo "\$*" >>$work/compiled
while [[ \$# -gt 0 && \$1 != -o ]]; do shift; done
cp '$module' "\$2"
END
stand_in python <<END
[[ -z \$LD_LIBRARY_PATH ]] || echo "Python has \$LD_LIBRARY_PATH" >>$work/leaked
[[ \$2 == *'import nvidia'* ]] && echo $work/nvidia
END
touch nvidia/cu13/lib/libcublasLt.so.13 nvidia/cu13/lib/libcudnn.so.9 nvidia/cu13/lib/libnccl.so.2

# ---- Execution.
# Hide the network and this machine's MPI.
isolate=
if unshare -nm true 2>/dev/null; then
    isolate="unshare -nm $work/bin/isolated"
    stand_in isolated <<'END'
for folder in $(ompi_info --parsable --path pkglibdir --path pkgdatadir 2>/dev/null | sed 's/.*://') /usr/lib/*/pmix2; do
    [[ ! -d $folder ]] || mount -t tmpfs none "$folder" 2>/dev/null
done
exec "$@"
END
fi
small="model.dim=32 model.depth=1 model.heads=2 model.patch=16 run.threads=1"
# gpu NAME PART...: writes the output to $work/NAME.log and the exit status to $status.
gpu() {
    run_log=$work/$1.log
    shift
    (cd "$tree" && exec env PATH="$work/bin:$PATH" OUT="$out" PYTHON=python TESTS="device/test_loss device/test_cut device/test_planes" STEP_WORKS=vit_cifar:8 \
        PLAN_WORKS=vit_cifar:8 LAUNCH_WORK="${launch_work:-vit_cifar:8}" LISTS="${lists:-A B}" STEPS=12 RACE_WORKS=vit_cifar:bf16 \
        FP16_STEPS=40 EQUAL_STEPS=6 RUN_LIMIT=90 LOSS_LIMIT=90 \
        SPEED_WORKS=vit_cifar:8 KERNEL_WORKS=vit_cifar:8 LOSS_WORKS=vit_cifar:8 LOSS_PRECISIONS="fp32 bf16${fp16:-}" SIDE=64 TOKENS=5 \
        ATTENTION_ROWS=8 TURNS=1 SPEED_SECONDS=0.2 PROFILE_STEPS=4 SANITIZER_TESTS="${sanitized:-device/test_planes}" MODEL_SETTINGS="$small" \
        LOSS_SETTINGS="$small" $isolate benchmarks/gpu.sh "$@") >"$run_log" 2>&1 </dev/null
    status=$?
}
lacks() { ! grep -qE -- "$2" "$1" || echo "$1 has: $2;"; }

# ---- The bundle.
(cd "$TEST_SOURCE" && LOSS_WORKS=vit_cifar:8 LOSS_PRECISIONS="fp32 bf16 fp16" LOSS_SETTINGS="$small" MODULE=test/emulated-cuda.so \
    BUNDLE_LEVEL=1 BUNDLE_MOST=1000 benchmarks/bundle.sh "$work/bundle.tar.gz") >bundle.log 2>&1
status=$?
result 'a bundle is made; one that is too large is an error' "$(ended 1; has bundle.log 'bundle.tar.gz is larger than')" bundle.log
cp -r "$TEST_SOURCE/benchmarks" "$tree"
for folder in cuda src test input; do ln -s "$TEST_SOURCE/$folder" "$tree"; done
tar -C "$tree" -xzf bundle.tar.gz
bundle=$tree/vittrain-bundle
result 'it has losses of the CPU, headers and flags, and no tables of ICU' "$(
    [ "$(cat "$bundle/losses/vit_cifar-8-fp32" "$bundle/losses/vit_cifar-8-bf16" | wc -l)" = 40 ] || echo "losses;"
    [ -e "$bundle/include/Random123/philox.h" ] || echo "no Random123;"
    has "$bundle/nvcc.flags" '-std=c\+\+17'
    find "$bundle" -name 'libicudata*' -size +100k)" bundle.log

# ---- check.
PATH=/usr/bin:/bin "$tree/benchmarks/gpu.sh" check >none.log 2>&1
status=$?
result 'no GPU: exit status 77' "$(ended 77; has none.log 'no GPU here')" none.log
# The test is a child of `timeout`, which is a child of the stage, a child of gpu.sh.
cat >"$bundle/test/device/test_cut" <<END
#!/bin/sh
parent() { sed -n 's/^PPid:\t//p' "/proc/\$1/status"; }
if [ ! -e $work/was_cut ]; then
    touch $work/was_cut
    until [ "\$(grep -c 'operations:' $out/gpu-done.txt)" = 2 ]; do sleep 0.1; done
    kill -9 "\$(parent "\$(parent \$PPID)")"
    exit 1
fi
printf '# device: a stand-in\n1..1\nok 1 - cut\n'
END
chmod +x "$bundle/test/device/test_cut"
gpu cut check
result 'a part is cut' "$(ended 137; has "$out/gpu-done.txt" 'operations: device/test_loss')" cut.log
gpu check check
result 'the rest of it is done by the next call' "$(
    ended
    lacks check.log '== operations: device/test_(loss|planes)'
    has check.log '^device/test_cut: 1 passed on a stand-in'
    has check.log '^0 failed'
    lacks check.log 'FAILED')" check.log
result 'operations ran on the device' "$(
    has cut.log '^device/test_loss: [1-9][0-9]* passed on emulated GPU'
    has cut.log '^device/test_planes: [1-9][0-9]* passed on emulated GPU'
    has check.log 'losses [0-9.]+ [0-9.]+ [0-9.]+ [0-9.]+ $')" check.log
result 'ceilings are rows of the table, what is not possible is named' "$(
    [ "$(grep -c ',ceiling: product 64x64x64,.*,speed,[0-9.]*,GFLOP/s,.*,emulated GPU' "$out/gpu.csv")" = 1 ] || echo "rows;"
    grep -q ',ceiling: copy,.*,bandwidth,' "$out/gpu.csv" || echo "no copy;"
    has check.log '^not measured: ceilings of PyTorch')" "$out/gpu.csv"

# ---- losses.
gpu losses losses
result 'losses are those of the CPU, by two ranks that share a GPU, too' "$(
    ended
    for case in 'fp32, recorded' 'bf16, recorded' 'fp32, eager' 'fp32, ddp' 'fp32, fsdp'; do
        has losses.log "^vit_cifar in $case: 20 losses, at most"
    done
    [ "$(grep -c . "$out/gpu-losses.csv")" = 101 ] || echo "rows;"
    has losses.log '^memcheck device/test_planes: clean'
    has losses.log '^racecheck device/test_planes: clean')" losses.log
sed -i.right 's/^./9/' "$bundle/losses/vit_cifar-8-fp32"
[ -z "$isolate" ] || echo 'exit 1' | stand_in ip
rm "$out/gpu-done.txt"
sanitized=device/test_none gpu differ losses
result 'other losses are a failure; without a loopback interface one rank runs' "$(
    ended 1
    has differ.log 'FAILED: vit_cifar in fp32, recorded: losses differ'
    has differ.log '^vit_cifar in bf16, recorded: 20 losses'
    [ -z "$isolate" ] || has differ.log '^not measured: losses on 2 ranks, ddp: the loopback interface is down')" differ.log

# ---- speed.
gpu speed speed
result 'steps are rows, with their shares of the ceilings' "$(
    ended
    for metric in 'step,[0-9.e-]+,s' 'speed,[0-9.]+,images/s' 'share of nominal peak,[0-9.e-]+,' \
        'share of the measured product,[0-9.e-]+,'; do
        has "$out/gpu.csv" ",vittrain,[^,]*,training step,vit_cifar,8,bf16,none,1,1,$metric,1,"
    done
    has speed.log '^not measured: PyTorch \(compiled\), vit_cifar, batch 8: no answer')" speed.log
result 'each row of steps has the clock of the samples at full power' "$(
    for suffix in '' ' by dependent launches'; do
        for metric in "SM clock$suffix,1530,MHz" "power$suffix,690.00,W" "largest power$suffix,700.00,W" \
            "clock limited by power$suffix,0.67," "clock limited by temperature \(hardware\)$suffix,0.33,"; do
            has "$out/gpu.csv" ",training step,vit_cifar,8,bf16,none,1,1,$metric,1,"
        done
    done
    lacks "$out/gpu.csv" 'clock limited by hardware')" "$out/gpu.csv"

# ---- kernels.
gpu profile kernels
result 'without counters the times of operations are taken' "$(
    ended
    has profile.log 'ncu gives no counters: ==ERROR== ERR_NVGPUCTRPERM'
    has "$out/gpu-kernels.csv" '^model,kernel,launch,time_ns,dram_bytes,tensor_pipe_percent,grid,block$'
    has "$out/gpu-kernels.csv" '^vit_cifar,operation attention_forward,1,[1-9][0-9]*,,,,$'
    has "$out/gpu.csv" ',attention_backward 2x12x5x64,.*,time,')" profile.log
# ncu is emulated by the kernels launched between cudaProfilerStart and cudaProfilerStop.
stand_in ncu <<'END'
until [[ $1 == */gpu/run ]]; do
    [[ $1 != --log-file ]] || log=$2
    [[ $1 != --launch-skip ]] || skip=$2
    shift
done
VITTRAIN_EMULATION_CAPTURE=$log.launches "$@" || exit
[[ -z $NCU_COUNTS_ALL ]] || skip=0
sed -i "1,${skip}d" "$log.launches"
[[ -z $NCU_CUT ]] || sed -i 5q "$log.launches"
{
    echo '==PROF== Connected'
    echo '"ID","Kernel Name","Context","Stream","Block Size","Grid Size","dram__bytes_read.sum","dram__bytes_write.sum","gpu__time_duration.sum","sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"'
    echo '"","","","","","","byte","byte","ns","%"'
    while IFS=, read -r grid block kernel; do
        echo "\"$((id++))\",\"$kernel\",\"1\",\"7\",\"(${block//x/, })\",\"(${grid//x/, })\",\"1,024\",\"512\",\"2,000\",\"12.5\""
    done <"$log.launches"
} >"$log"
[[ -z $NCU_CUT ]]
END
rm "$out/gpu-done.txt" "$out/gpu-kernels.csv"
gpu ncu kernels
result 'the kernels of one step are rows' "$(
    ended
    [ "$(grep -c '^vit_cifar,"[^"]*attention_kernel[^"]*",[0-9]*,2000,1536,12.5,[0-9]*x[0-9]*x[0-9]*,[0-9]*x1x1$' "$out/gpu-kernels.csv")" = 1 ] ||
        echo "not one launch of attention;"
    has "$out/gpu-kernels.csv" '^vit_cifar,"[^"]*update[^"]*",[0-9]+,'
    [ "$(find "$out" -type f | wc -l)" -le 8 ] || echo "more than 8 files;"
    [ ! -e leaked ] || cat leaked)" ncu.log

# ---- plan.
stages() { sed -n 's/^== \([a-z]*\).*/\1/p' "$1" | uniq | tr '\n' ' '; } # LOG: kinds of its stages, in their order
rm "$out"/*
echo 'exit 1' >>"$bundle/test/device/test_cut"
mv "$bundle/losses/vit_cifar-8-fp32.right" "$bundle/losses/vit_cifar-8-fp32"
LIMIT=1 gpu late plan
result 'a call without time measures nothing' "$(
    ended
    has late.log '^not measured: doctor: 1 s of plan are nearly over'
    lacks late.log '^(==|--) ')" late.log
rm -r "$bundle/gpu-choices"
fp16=' fp16'
export NCU_CUT=1
gpu first plan
result 'its first call runs the lists A and B in order, also after a test that fails' "$(
    ended 1
    [ "$(stages first.log)" = 'doctor operations steps losses memcheck ceilings steps attention kernels ' ] || stages first.log
    has first.log '^FAILED: device/test_cut'
    has first.log '^device/test_planes: [1-9][0-9]* passed on emulated GPU'
    has first.log '^vit_cifar in fp16, recorded: 20 losses'
    has first.log '^memcheck device/test_planes: clean'
    has first.log '^not measured: kernels of vit_cifar after launch 5'
    has "$out/gpu.csv" ',training step,vit_cifar,8,bf16,none,1,1,data wait,'
    has "$out/gpu.csv" ',training step,vit_cifar,8,bf16,none,1,1,SM clock by dependent launches,1530,MHz,'
    has "$out/gpu-variants.csv" '^product:64,bf16 [^,]*,0,[01],[0-9.]+$')" first.log
sed -i '$d' "$bundle/test/device/test_cut"
echo >>"$bundle/vittrain-cuda.so"
unset NCU_CUT
NCU_COUNTS_ALL=1 gpu again plan
result 'a kernel is not measured twice' "$(
    ended
    has again.log '^not measured: kernels of vit_cifar after launch 5: ncu counts --launch-skip from the start'
    [ "$(stages again.log)" = 'operations attention kernels ' ] || stages again.log
    has again.log '^device/test_cut: 1 passed on a stand-in'
    [ "$(grep -c '^== operations:' again.log)" = 1 ] || echo "other tests;")" again.log
gpu rest plan
result 'a later call, with another build, repeats what failed and completes the kernels' "$(
    ended
    [ "$(stages rest.log)" = 'attention kernels ' ] || stages rest.log
    awk -F, 'NR > 1 && $(NF - 5) != NR - 1 { print "row " NR; exit 1 }' "$out/gpu-kernels.csv"
    [ "$(grep -c '^vit_cifar,"[^"]*attention_kernel' "$out/gpu-kernels.csv")" = 1 ] || echo "not one launch of attention;"
    [ "$(find "$out" -type f | wc -l)" -le 8 ] || echo "more than 8 files;")" rest.log
rm -f bin/ip
NO_CLOCK=1 lists='C D E F' gpu lists plan
result 'steps in turn, sanitizers, two ranks and long runs are the other lists' "$(
    ended 1
    has lists.log '^FAILED: plan: no list F'
    grep '^FAILED' lists.log | grep -v 'no list F'
    has lists.log '^not measured: clock of vit_cifar: *Field is not valid'
    has lists.log '^not measured: PyTorch \(compiled\), vit_cifar, batch 8, turn|^not measured: PyTorch \(compiled\), vit_cifar, batch 8: no answer'
    for tool in racecheck initcheck synccheck; do has lists.log "^$tool steps of vit_cifar in bf16: clean"; done
    for case in ddp fsdp zero1 zero2 background; do has lists.log "^vit_cifar in fp32, $case: 20 losses, at most"; done
    has lists.log 'written in the background'
    has lists.log '^40 losses, 0 not finite; [1-9][0-9]* updates skipped'
    has lists.log '^[0-9]+ [0-9]+ two/weights.safetensors')" lists.log
rm "$out"/*
SANITIZER_FINDS=1 lists=A launch_work=no_model:8 gpu broken plan
result 'a first step that fails is repeated for its reason; a finding of memcheck is a failure' "$(
    ended 1
    has broken.log '^FAILED: memcheck device/test_planes'
    has broken.log '^========= Invalid read'
    has broken.log '^-- CUDA_LAUNCH_BLOCKING=1'
    has broken.log '^-- compute-sanitizer'
    has broken.log '^device/test_loss: [1-9][0-9]* passed')" broken.log

# ---- build.
gpu same build
rm "$bundle/sources.sum"
gpu build build
result 'the module is built by nvcc with the flags of the bundle, where the sources differ' "$(
    ended
    has same.log 'is built from these sources'
    has build.log 'vittrain-cuda.so: [0-9]+ bytes'
    [ "$(grep -c -- '-std=c++17.* -c -o .*/objects/[a-z_]*\.o cuda/[a-z_]*\.cu$' compiled)" = "$(find -L "$tree/cuda" -maxdepth 1 -name '*.cu' | wc -l)" ] ||
        echo "not every source;"
    has compiled '-shared .* -Xlinker [^ ]*libcublasLt.so.13 -Xlinker [^ ]*libcudnn.so.9 -Xlinker [^ ]*libnccl.so.2')" build.log
