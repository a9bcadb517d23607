# SPDX-License-Identifier: BSD-3-Clause
# Part speed: steps of vittrain and of PyTorch with the same model, batch and optimizer, in turn, so that changes of the
# machine affect both. The most valuable measurement comes first.
# Environment: SPEED_WORKS ("MODEL:BATCH ..."), SPEED_SECONDS (of one measurement), TURNS, VARIANTS (of PyTorch),
# DEPENDENTS (values of cuda.dependent_launch), MODEL_SETTINGS, NOMINAL (FLOP/s in bf16 that the vendor states).

variants=${VARIANTS:-compiled eager reduce-overhead}
dependents=${DEPENDENTS:-off on}
turns=${TURNS:-2}
nominal=${NOMINAL:-989e12}

part_speed() {
    local work
    [[ -n $(ceiling_of) ]] || stage ceilings 20 ceilings
    for work in ${SPEED_WORKS:-vit_base_patch32_224:384 vit_base_patch16_224:256 vit_cifar:64 resnet50:256 resnet18:256 \
        vit_base_patch32_224:512 vit_base_patch16_224:128 vit_cifar:512 resnet50:128 resnet18:512}; do
        stage "speed of $work" 60 speed_measure "${work%:*}" "${work#*:}"
    done
    theirs_close
}

speed_measure() { # MODEL BATCH
    local model=$1 batch=$2 turn variant complete=yes
    rm -f "$scratch"/seconds-*
    for ((turn = 0; turn < turns; turn++)); do
        for variant in $dependents; do
            [[ $variant == off || $turn == 0 ]] || continue
            ours_measure "$model" "$batch" "$variant" || return 1
        done
        for variant in $variants; do
            # The first turn compiles.
            if (($(left) < (turn == 0 ? 75 : 15))); then
                miss "PyTorch ($variant), $model, batch $batch, turn $((turn + 1)): $limit s of $part are nearly over"
                complete=no
            else
                theirs_measure "$model" "$batch" "$variant" || complete=no
            fi
        done
    done
    speed_shares "$model" "$batch"
    [[ $complete == yes ]]
}

# Runs for about SPEED_SECONDS, by the time of the first run. The first quarter is not counted: CUDA graphs are recorded and
# libraries choose algorithms in it.
ours_measure() { # MODEL BATCH DEPENDENT_LAUNCH
    local steps seconds
    if [[ ! -s $scratch/seconds-first ]]; then
        ours_run "$1" "$2" 12 "$3" || return 1
        echo "$seconds" >"$scratch/seconds-first"
    fi
    steps=$(awk -v all="${SPEED_SECONDS:-3}" -v one="$(cat "$scratch/seconds-first")" \
        'BEGIN { n = int(all / one / 4) * 4; print (n < 12 ? 12 : n > 4000 ? 4000 : n) }')
    ours_run "$1" "$2" "$steps" "$3" && ours_report "$1" "$2" "$steps" "$3"
}
# One short run, without PyTorch.
ours_alone() { # MODEL BATCH
    local seconds variants= dependents=off
    rm -f "$scratch"/seconds-*
    ours_run "$1" "$2" 24 off && ours_report "$1" "$2" 24 off && speed_shares "$1" "$2"
}
ours_report() { # MODEL BATCH STEPS DEPENDENT_LAUNCH: rows of `seconds` and of the wait for data
    echo "$seconds" >>"$scratch/seconds-ours-$4"
    if [[ $4 == on ]]; then
        report "training step" "$1" "$2" "step by dependent launches" "$seconds" s
        return
    fi
    report "training step" "$1" "$2" step "$seconds" s
    report "training step" "$1" "$2" "data wait" \
        "$(column_of "$scratch/speed/metrics.csv" data_seconds $(($3 / 4)) | median)" s
}
ours_run() { # MODEL BATCH STEPS DEPENDENT_LAUNCH: sets `seconds` of a step
    gpu_steps speed "$1" "$2" $(($3 - 2)) train.precision=bf16 augment.flip=0.5 data.workers=12 data.distinct=1024 output.log_every=$(($3 / 4)) \
        cuda.dependent_launch="$4" ||
        { fail "speed of $1, batch $2"; return 1; }
    seconds=$(column_of "$scratch/speed/metrics.csv" step_seconds $(($3 / 4)) | median)
}

# ---- PyTorch: one process for all measurements (pytorch_step.py --serve), asked line by line. After a request without an
# answer the next one starts another process.
theirs_answers=
theirs_open() {
    rm -f "$scratch/requests" "$scratch/answers"
    mkfifo "$scratch/requests" "$scratch/answers"
    "$python" "$here/pytorch_step.py" --device cuda --precision bf16 --serve <"$scratch/requests" >"$scratch/answers" \
        2>"$scratch/theirs-log" &
    theirs=$!
    exec {theirs_requests}>"$scratch/requests" {theirs_answers}<"$scratch/answers"
}
theirs_close() {
    [[ -n $theirs_answers ]] || return 0
    exec {theirs_requests}>&- {theirs_answers}<&-
    theirs_answers=
    kill "$theirs" 2>/dev/null
    wait "$theirs" 2>/dev/null
}
theirs_measure() { # MODEL BATCH VARIANT
    local answer
    [[ -n $theirs_answers ]] || theirs_open
    # If the process has ended, SIGPIPE ends the subshell only.
    (echo "$1 $2 $3 ${SPEED_SECONDS:-3}" >&"$theirs_requests") 2>/dev/null
    if ! read -r -t $(($(left) > 150 ? 150 : $(left) + 1)) -u "$theirs_answers" answer; then
        miss "PyTorch ($3), $1, batch $2: no answer: $(explain "$scratch/theirs-log" 1)"
        theirs_close
        return 1
    fi
    [[ $answer != failed:* ]] || { miss "PyTorch ($3), $1, batch $2: $answer"; return 1; }
    tee -a "$csv" <<<"$answer"
    cut -d, -f14 <<<"$answer" >>"$scratch/seconds-$3"
}

# Medians of the turns, as shares of the device and over each variant of PyTorch.
speed_shares() { # MODEL BATCH
    local model=$1 batch=$2 ours theirs variant flops ceiling
    ours=$(median <"$scratch/seconds-ours-off")
    flops=$(sed -n 's/.*"flops_per_image": \([0-9.e+]*\).*/\1/p' "$scratch/speed/result.json" | head -n 1)
    ceiling=$(ceiling_of)
    share() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.4g", a / b }'; }
    flops=$(awk -v one="${flops:-0}" -v batch="$batch" -v seconds="$ours" 'BEGIN { printf "%.6g", one * batch / seconds }')
    report "training step" "$model" "$batch" speed "$(share "$batch" "$ours")" images/s
    [[ ! -s $scratch/seconds-ours-on ]] || report "training step" "$model" "$batch" "speed by dependent launches" \
        "$(share "$ours" "$(median <"$scratch/seconds-ours-on")")" x
    report "training step" "$model" "$batch" "share of nominal peak" "$(share "$flops" "$nominal")" ""
    [[ -z $ceiling ]] || report "training step" "$model" "$batch" "share of the measured product" "$(share "$flops" "$ceiling")" ""
    for variant in $variants; do
        [[ -s $scratch/seconds-$variant ]] || continue
        theirs=$(median <"$scratch/seconds-$variant")
        framework="vittrain over pytorch-$variant" report "training step" "$model" "$batch" speed "$(share "$theirs" "$ours")" x
    done
}
