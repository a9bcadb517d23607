# SPDX-License-Identifier: BSD-3-Clause
# Part plan: lists of measurements for a GPU that is lent for half an hour, in the order of their value. Each call of gpu.sh
# continues where the last one stopped, and repeats what failed; what has passed is not repeated, even after a rebuild.
# Environment: LISTS (A: correctness, B: where time goes and which variants pay, C: steps in turn with PyTorch's, D: sanitizers,
# E: two ranks and long runs; default: A B), TESTS, PLAN_WORKS and LAUNCH_WORK ("MODEL:BATCH ..."), STEPS (of a run in B), and
# what the other parts name.

part_plan() {
    local list works=${PLAN_WORKS:-vit_base_patch32_224:384 vit_base_patch16_224:256 resnet50:256} small=${LAUNCH_WORK:-vit_cifar:64}
    local RUN_LIMIT=${RUN_LIMIT:-40} LOSS_LIMIT=${LOSS_LIMIT:-40}
    versions
    sanitizer_find
    kernels_open
    inductor_open
    for list in ${LISTS:-A B}; do
        [[ $list == [A-E] ]] || { fail "plan: no list $list"; continue; }
        "list_$list"
    done
    theirs_close
}

list_A() {
    local work name
    stage doctor 10 doctor
    # shellcheck disable=SC2086
    compile_begin $works
    for name in ${TESTS:-$(device_tests wgmma attention linear norm elements vit_device convnet_device update loss convolution \
        batch_norm tokens image)}; do
        together 6 "operations: $name" 15 operation_test "$name"
    done
    together_end
    stage "steps of $small by each kind of launch" 20 first_steps "${small%:*}" "${small#*:}"
    for work in $loss_works; do
        for name in $loss_precisions; do
            together 4 "losses of $work in $name" 25 losses_compare "${work%:*}" "${work#*:}" "$name" recorded 1
        done
    done
    together_end
    for name in ${SANITIZER_TESTS:-device/test_attention device/test_linear device/test_convolution}; do
        together 3 "memcheck $name" 60 sanitizer_run memcheck "$name"
    done
    together_end
    compile_end
}

list_B() {
    local work tokens dependent
    stage ceilings 15 ceilings
    for dependent in off on; do
        for work in $works; do
            stage "steps of $work, cuda.dependent_launch=$dependent" 20 ours_alone "${work%:*}" "${work#*:}" "$dependent"
        done
    done
    for tokens in ${TOKENS:-50 65 197 577}; do
        stage "attention over $tokens tokens" 10 attention_ours "$tokens"
        stage "attention over $tokens tokens in PyTorch" 15 attention_theirs "$tokens"
    done
    # A second turn goes on where ncu was stopped.
    for work in ${KERNEL_WORKS:-vit_base_patch16_224:256 resnet50:256 resnet50:256}; do
        NCU_LIMIT=${NCU_LIMIT:-120} stage "kernels of $work" 60 kernels_measure "${work%:*}" "${work#*:}"
    done
}

list_C() {
    local work variants=compiled dependents=off
    for work in $works; do
        stage "speed of $work" 60 speed_measure "${work%:*}" "${work#*:}"
    done
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
inductor_open() {
    export TORCHINDUCTOR_CACHE_DIR=$build/inductor
    mkdir -p "$build/inductor"
    [[ ! -e $out/inductor.tar.gz ]] || tar -C "$build" -xzf "$out/inductor.tar.gz"
}
compile_begin() { # WORK...
    compiler=
    [[ ! -e $out/inductor.tar.gz ]] || return 0
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

# If a step fails, run it again: the host waits for each kernel, then under compute-sanitizer. Print the first errors.
first_steps() { # MODEL BATCH
    steps_launched "$1" "$2" && return
    echo "-- CUDA_LAUNCH_BLOCKING=1"
    CUDA_LAUNCH_BLOCKING=1 gpu_steps blocking "$1" "$2" 1 cuda.graph=off && explain "$scratch/blocking.log" 10
    [[ -n $sanitizer ]] || return 1
    echo "-- compute-sanitizer"
    local launcher="$sanitizer --report-api-errors no --target-processes all $launcher"
    gpu_steps sanitized "$1" "$2" 1 cuda.graph=off
    grep -m 40 '=========' "$scratch/sanitized.log"
    return 1
}
