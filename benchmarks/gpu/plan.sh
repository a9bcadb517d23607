# SPDX-License-Identifier: BSD-3-Clause
# Part plan: one list of measurements in the order of their value, for a GPU that is lent for minutes. Each call of gpu.sh
# continues where the last one stopped, and repeats what failed; what has passed is not repeated, even after a rebuild.
# Environment: TESTS, PLAN_WORKS and LAUNCH_WORK ("MODEL:BATCH ..."), and what the other parts name.

part_plan() {
    local work name strategy
    local works=${PLAN_WORKS:-vit_base_patch32_224:384 vit_base_patch16_224:256 resnet50:256} small=${LAUNCH_WORK:-vit_cifar:64}
    versions
    stage doctor 10 doctor
    if ! stage "steps of $small by each kind of launch" 20 steps_launched "${small%:*}" "${small#*:}"; then
        first_step_explain "${small%:*}" "${small#*:}"
        works=
    fi
    # shellcheck disable=SC2086
    compile_begin $works
    for name in ${TESTS:-$(device_tests elements linear attention norm vit_device convnet_device update loss convolution batch_norm \
        tokens image)}; do
        together 6 "operations: $name" 15 operation_test "$name"
    done
    together_end
    [[ -n $works ]] || return 0
    for work in $loss_works; do
        for name in fp32 bf16; do
            together 4 "losses of $work in $name" 25 losses_compare "${work%:*}" "${work#*:}" "$name" recorded 1
        done
    done
    together_end
    for strategy in ddp fsdp; do
        LOSS_LIMIT=40 stage "losses of $small on 2 ranks, $strategy" 40 losses_ranks "${small%:*}" "${small#*:}" "$strategy"
    done
    compile_end
    stage ceilings 15 ceilings
    for work in $works; do
        stage "steps of $work" 15 ours_alone "${work%:*}" "${work#*:}"
    done
    for work in $works; do
        stage "operations of $work" 15 operations_measure "${work%:*}" "${work#*:}"
    done
    variants=compiled dependents=off
    for work in $works; do
        stage "speed of $work" 80 speed_measure "${work%:*}" "${work#*:}"
    done
    variants=reduce-overhead dependents="off on"
    stage "speed of $small" 60 speed_measure "${small%:*}" "${small#*:}"
    theirs_close
    work=${works%% *}
    kernels_open
    stage "kernels of $work" 60 kernels_measure "${work%:*}" "${work#*:}"
    stage "attention over 197 tokens" 15 attention_ours 197
    stage "attention over 197 tokens in PyTorch" 25 attention_theirs 197
}

# Print the versions. Meanwhile, large libraries are read into the page cache.
versions() {
    local name
    nvidia-smi | head -n 15
    for name in ${cuda_libraries//:/ }; do
        cat "$name"/libcublasLt.so.* "$name"/libcudnn*.so.* "$name"/libnccl.so.* >/dev/null 2>&1 &
    done
    "$launcher" ldd "$VITTRAIN_CUDA_MODULE" | grep -E 'cublas|cudnn|nccl|cudart|not found'
    "$python" -m pip list 2>/dev/null | grep -E '^(nvidia-(cublas|cudnn|nccl|cuda-runtime)|torch|timm|triton)'
    for name in git ip gawk ncu compute-sanitizer nvcc; do
        PATH=$PATH:/usr/local/cuda/bin command -v "$name" || echo "no $name"
    done
}

# PyTorch's compiler takes up to a minute for each model, mostly on the CPU: it runs beside the tests, a process for each
# model. Later processes find the result in its cache, which is kept for the next call.
compile_begin() { # WORK...
    export TORCHINDUCTOR_CACHE_DIR=$build/inductor
    compiler=
    mkdir -p "$build/inductor"
    [[ $# != 0 && ! -e $out/inductor.tar.gz ]] || { tar -C "$build" -xzf "$out/inductor.tar.gz" 2>/dev/null; return 0; }
    printf '%s compiled 0\n' "${@/:/ }" | python=$python here=$here timeout "$(left)" xargs -P 3 -I{} sh -c \
        'echo "{}" | "$python" "$here/pytorch_step.py" --device cuda --precision bf16 --serve' &>"$scratch/compile-log" &
    compiler=$!
}
compile_end() {
    [[ -n $compiler ]] || return 0
    while kill -0 "$compiler" 2>/dev/null && ((SECONDS - begun < 120)); do sleep 1; done
    kill "$compiler" 2>/dev/null
    wait "$compiler"
    cat "$scratch/compile-log"
    tar -C "$build" -czf "$out/inductor.tar.gz" inductor
    echo "PyTorch compiled (${SECONDS} s): $(du -k "$out/inductor.tar.gz" | cut -f 1) KiB"
}

# Run the step that failed again: the host waits for each kernel, then under compute-sanitizer. Print the first errors.
first_step_explain() { # MODEL BATCH
    echo "-- CUDA_LAUNCH_BLOCKING=1"
    CUDA_LAUNCH_BLOCKING=1 RUN_LIMIT=40 gpu_steps blocking "$1" "$2" 1 cuda.graph=off && explain "$scratch/blocking.log" 10
    sanitizer_find
    [[ -n $sanitizer ]] || return
    echo "-- compute-sanitizer"
    local launcher="$sanitizer --report-api-errors no --target-processes all $launcher"
    RUN_LIMIT=60 gpu_steps sanitized "$1" "$2" 1 cuda.graph=off
    grep -m 40 '=========' "$scratch/sanitized.log"
}
