# SPDX-License-Identifier: BSD-3-Clause
# The lists D and E of part plan: compute-sanitizer's slow tools on steps of small shapes; two ranks, checkpoints, loss scaling
# and reproducibility.
# Environment: RACE_WORKS ("MODEL:PRECISION ..."), FP16_STEPS, EQUAL_STEPS, and what part plan names.

list_D() {
    local tool work
    for tool in racecheck initcheck synccheck; do
        for work in ${RACE_WORKS:-vit_base_patch32_224:bf16 vit_base_patch32_224:fp32 vit_cifar:bf16 resnet18:bf16}; do
            together 4 "$tool: steps of $work" 40 sanitizer_steps "$tool" "${work%:*}" "${work#*:}"
        done
    done
    together_end
}

# Two steps of 2 images of 32 x 32. A ViT has 17 tokens, one head of 64 and two blocks, since the last one computes one token.
sanitizer_steps() { # TOOL MODEL PRECISION
    local status=0 small= IMAGE=32
    [[ $2 != vit* ]] || small="model.patch=8 model.dim=64 model.depth=2 model.heads=1"
    sanitizer_open "$1" "$2" || return
    local launcher="${under[*]} $launcher"
    # shellcheck disable=SC2086
    gpu_steps sanitized "$2" 2 0 train.precision="$3" cuda.graph=off $small >/dev/null || status=$train_status
    sanitizer_result "$1" "steps of $2 in $3" "$status" "$scratch/sanitized.log"
}

list_E() {
    local strategy model=${small%:*} batch=${small#*:}
    for strategy in ddp fsdp zero1 zero2; do
        stage "losses of $small on 2 ranks, $strategy" 40 losses_ranks "$model" "$batch" "$strategy" mesh.strategy="$strategy"
    done
    stage "checkpoints in the background" 40 checkpoints_background "$model" "$batch"
    stage "fp16 from a loss scale that overflows" 40 scale_recover "$model" "$batch"
    stage "equal weights of two runs" 60 runs_equal "$model" "$batch"
}

checkpoints_background() { # MODEL BATCH
    losses_ranks "$1" "$2" background mesh.strategy=fsdp checkpoint.background=yes checkpoint.every_seconds=1e-9 checkpoint.keep=1 || return
    grep 'written in the background' "$scratch/background.log" || fail "checkpoints of $1: none in the background"
}

# The first updates are skipped until the scale fits; later ones are not.
scale_recover() { # MODEL BATCH
    gpu_steps scale "$1" "$2" $((${FP16_STEPS:-500} - 2)) train.precision=fp16 train.loss_scale=1099511627776 data.distinct=1024 ||
        { fail "fp16 from a loss scale of 2^40"; return 1; }
    paste <(column_of "$scratch/scale/metrics.csv" loss 0) <(column_of "$scratch/scale/metrics.csv" skipped_steps 0) |
        awk -v steps="${FP16_STEPS:-500}" '
            $1 !~ /^[0-9.e+-]+$/ { bad++ }
            END { print NR " losses, " bad + 0 " not finite; " $2 " updates skipped"
                  exit !(NR == steps && !bad && $2 > 0 && $2 < 60) }' || fail "fp16 from a loss scale of 2^40"
}

runs_equal() { # MODEL BATCH
    local run
    for run in one two; do
        gpu_steps $run "$1" "$2" $((${EQUAL_STEPS:-1440} - 2)) train.precision=bf16 data.distinct=1024 output.weights=on output.log_every=100 ||
            { fail "run $run of $1"; return 1; }
    done
    (cd "$scratch" && cksum one/weights.safetensors two/weights.safetensors && cmp one/weights.safetensors two/weights.safetensors) ||
        fail "two runs of $1: other weights"
}
