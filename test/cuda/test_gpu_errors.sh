#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# GPU failures at the start and during training, on the emulated GPU: each is reported in one line with the
# device, the cause and advice.
. "$TEST_SOURCE/test/support/program.sh"

take_emulated_gpu
gpu="$small run.backend=cuda"

# refuses NAME STATUS PATTERN SETTING...: `plan` fails on the emulated GPU with this environment.
refuses() {
    name=$1 expected=$2 pattern=$3
    shift 3
    run_log=$work/refused.log
    env VITTRAIN_CUDA_MODULE="$module" "$@" timeout $time_limit "$vittrain" train $gpu train.steps=1 \
        run.dir="$work/refused" >"$run_log" 2>&1 </dev/null
    status=$?
    rm -rf "$work/refused"
    [ "$expected" = 1 ] && return
    result "$name" "$(failed_otherwise "$expected" "$pattern" | tr '\n' ' ')" "$run_log"
}

# aborts NAME PATTERN SETTING: the same during training: one line, and the job ends.
aborts() {
    name=$1 pattern=$2
    refuses "$name" 1 "$pattern" "$3"
    bad=
    [ $status -eq 1 ] || bad="exit status $status"
    [ "$(grep -c '^vittrain: internal error: ' "$run_log")" = 1 ] || bad="$bad; not one line"
    grep '^vittrain: internal error: ' "$run_log" | grep -qE "$pattern" || bad="$bad; no $pattern"
    result "$name" "$bad" "$run_log"
}

VITTRAIN_CUDA_MODULE=$work/none.so fails 1 'a module that is not there' 2 'cannot open the GPU module: .*none.so' plan $gpu
cp "$vittrain" "$work/vittrain"
program=$vittrain vittrain=$work/vittrain
fails 1 'a program without a module' 2 'no GPU module.*run.backend=cpu' plan $gpu
cp "$module" "$work/vittrain-cuda.so"
if [ -e /dev/nvidiactl ] || ldconfig -p 2>/dev/null | grep -q 'libcuda\.so\.1'; then
    result 'a machine without a driver # SKIP there is a driver here'
else
    fails 1 'a machine without a driver' 2 'no NVIDIA driver.*run.backend=cpu' plan $gpu
fi
vittrain=$program
refuses 'no device is visible' 2 'no GPU is visible.*CUDA_VISIBLE_DEVICES' VITTRAIN_EMULATION_DEVICES=0
refuses 'a driver of an older CUDA' 2 'driver is for CUDA 11.8, this program was built with CUDA 13.0' \
    VITTRAIN_EMULATION_DRIVER=11080
refuses 'a module named by hand where no driver is' 2 'no NVIDIA driver.*run.backend=cpu' VITTRAIN_EMULATION_DRIVER=0
refuses 'a driver that is too old' 2 'update the driver' VITTRAIN_EMULATION_FAULT=cudaGetDeviceCount:35
refuses 'a device in exclusive use' 2 'exclusive mode.*nvidia-smi' VITTRAIN_EMULATION_FAULT=cudaSetDevice:46
refuses 'a GPU that there is no code for' 2 'sm_70.*with-cuda-arch=70' VITTRAIN_EMULATION_CAPABILITY=70
gpu="$gpu train.global_batch=600"
refuses 'too little memory for the plan' 6 'the GPU on .* has .* MiB for it.*would fit: train.global_batch=' \
    VITTRAIN_EMULATION_MEMORY=94000000
gpu="$small run.backend=cuda"
refuses 'too little memory for one image' 6 'reserve of 5 %.*would fit: more ranks' VITTRAIN_EMULATION_MEMORY=30000000
needs() { awk -v needs="$1" -v times="$2" 'BEGIN { printf "%.0f", needs * times * 1048576 }'; }
arena=$(sed -n 's/.*a rank needs \([0-9.]*\) MiB.*/\1/p' "$run_log")
refuses 'memory without a reserve for kernels that libraries load later' 6 'besides a reserve of 5 %' \
    VITTRAIN_EMULATION_MEMORY="$(needs "$arena" 1.03)"
refuses 'memory with the reserve' 1 '' VITTRAIN_EMULATION_MEMORY="$(needs "$arena" 1.08)"
result 'memory with the reserve is enough' "$(ended)" "$run_log"
refuses 'memory that another process takes' 6 'no .* MiB of memory on GPU 0 .*find batch' \
    VITTRAIN_EMULATION_FAULT=cudaMalloc:2
aborts 'an ECC error' 'GPU 0 \(emulated GPU.*ECC error.*out of service' \
    VITTRAIN_EMULATION_FAULT=cudaGetLastError:214
aborts 'a kernel that fails' 'GPU 0 .*illegal memory access.*CUDA_LAUNCH_BLOCKING' \
    VITTRAIN_EMULATION_FAULT=cudaGetLastError:700

export VITTRAIN_CUDA_MODULE="$module"
VITTRAIN_EMULATION_DEVICES=0 run 1 auto $small train.steps=1 run.dir="$work/auto"
bad=$(ended)
[ "$(grep -c 'no GPU, computing on the CPU: .*no GPU is visible.*section cuda have no effect' "$run_log")" = 1 ] || bad="$bad; not said once"
result 'run.backend=auto computes on the CPU then, and says so' "$bad" "$run_log"

VITTRAIN_EMULATION_NAME='H100 MIG 1g.10gb' run 1 slice $gpu train.steps=1 run.dir="$work/slice"
result 'the peak rate of a MIG slice is unknown' "$(ended; has "$work/slice/result.json" '"peak_flops": null')" "$run_log"

mixed="'$vittrain' train $gpu run.dir='$work/mixed'"
run_pair mixed "env VITTRAIN_EMULATION_CAPABILITY=80 $mixed" "env VITTRAIN_EMULATION_CAPABILITY=90 $mixed"
result 'mixed GPUs in one run' "$(failed_otherwise 2 'rank 1 .*sm_90.*rank 0 with sm_80.*same GPUs')" "$run_log"
