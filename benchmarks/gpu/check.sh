# SPDX-License-Identifier: BSD-3-Clause
# Part check: state and ceilings of the machine, and correctness of every operation on it.
# Environment: TESTS (FOLDER/NAME below test/), STEP_WORKS ("MODEL:BATCH ..."), SIDE (of the product), MODEL_SETTINGS.

part_check() {
    nvidia-smi | head -n 15
    stage doctor 20 doctor
    stage ceilings 20 ceilings
    local name work
    for name in ${TESTS:-$(device_tests)}; do
        together 6 "operations: $name" 15 operation_test "$name"
    done
    together_end
    for work in ${STEP_WORKS:-vit_cifar:64 vit_base_patch32_224:64 resnet18:64}; do
        stage "steps of $work by each kind of launch" 40 steps_launched "${work%:*}" "${work#*:}"
    done
    stage "cuDNN's engines" 20 cudnn_engines
    stage "ceilings of PyTorch" 45 ceilings_pytorch
}

doctor() {
    # shellcheck disable=SC2086
    "$launcher" timeout "$(within 60)" "$vittrain" doctor data.format=synthetic $gpu_settings ||
        { fail "doctor: exit status $?"; return 1; }
}

# The test prints the device that it ran on.
operation_test() { # NAME
    local name=$1 device status=0
    [[ -x $build/test/$name ]] || { miss "$name: no $build/test/$name"; return 1; }
    VITTRAIN_TEST_DEVICE=cuda "$launcher" timeout "$(within 60)" "$build/test/$name" >"$scratch/test" 2>&1 || status=$?
    if ((status != 0)); then
        fail "$name: exit status $status"
        grep -vE '^(ok|1\.\.)' "$scratch/test" | head -n 40
        return 1
    fi
    device=$(sed -n 's/^# device: //p' "$scratch/test" | head -n 1)
    [[ -n $device ]] || { fail "$name: did not run on a GPU"; return 1; }
    echo "$name: $(grep -c '^ok' "$scratch/test") passed on $device"
}

# All kinds run the same kernels, so the losses have the same bits. The third step is the first recorded one.
steps_launched() { # MODEL BATCH
    local model=$1 batch=$2 graph dependent kind status=0
    for kind in off-off on-off off-on on-on; do
        graph=${kind%-*} dependent=${kind#*-}
        gpu_steps "$kind" "$model" "$batch" 2 cuda.graph="$graph" cuda.dependent_launch="$dependent" ||
            { fail "$model, cuda.graph=$graph cuda.dependent_launch=$dependent"; return 1; }
        column_of "$scratch/$kind/metrics.csv" loss 0 >"$scratch/losses-$kind"
        cmp -s "$scratch/losses-off-off" "$scratch/losses-$kind" ||
            { fail "$model: other losses with cuda.graph=$graph cuda.dependent_launch=$dependent: $(tr '\n' ' ' <"$scratch/losses-$kind")"; status=1; }
    done
    echo "$model, batch $batch: losses $(tr '\n' ' ' <"$scratch/losses-off-off")"
    return $status
}

# Selection of cuDNN's engines for the described GPUs (H100, A100, T4) by the library of this machine.
cudnn_engines() {
    [[ -x $build/test/cuda/cudnn_engines ]] || { miss "cuDNN's engines: no $build/test/cuda/cudnn_engines"; return 1; }
    if ! "$launcher" timeout 60 "$build/test/cuda/cudnn_engines" >"$scratch/log" 2>&1; then
        fail "cuDNN's engines"
        explain "$scratch/log"
        return 1
    fi
    cat "$scratch/log"
}

# The same ceilings measured by PyTorch.
ceilings_pytorch() {
    timeout 90 "$python" "$here/gpu/pytorch_kernels.py" product:"$side" >"$scratch/rows" 2>"$scratch/log" ||
        { miss "ceilings of PyTorch: $(explain "$scratch/log" 1)"; return 1; }
    tee -a "$csv" <"$scratch/rows"
}
