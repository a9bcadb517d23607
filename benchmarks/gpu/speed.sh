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
# One run, without PyTorch. The clock falls during the first second at full power, so it takes several seconds.
ours_alone() { # MODEL BATCH DEPENDENT_LAUNCH
    local seconds steps=${STEPS:-96} variants= dependents=$3
    rm -f "$scratch"/seconds-*
    ours_run "$1" "$2" "$steps" "$3" && ours_report "$1" "$2" "$steps" "$3" && speed_shares "$1" "$2"
}
ours_report() { # MODEL BATCH STEPS DEPENDENT_LAUNCH: rows of `seconds`, of the wait for data and of the clock
    local suffix=
    [[ $4 == off ]] || suffix=" by dependent launches"
    echo "$seconds" >>"$scratch/seconds-ours-$4"
    report "training step" "$1" "$2" "step$suffix" "$seconds" s
    [[ $4 == on ]] || report "training step" "$1" "$2" "data wait" \
        "$(column_of "$scratch/speed/metrics.csv" data_seconds $(($3 / 4)) | median)" s
    clocks_report "$1" "$2" "$suffix"
}
ours_run() { # MODEL BATCH STEPS DEPENDENT_LAUNCH: sets `seconds` of a step
    local status=0
    clocks_begin
    gpu_steps speed "$1" "$2" $(($3 - 2)) train.precision=bf16 augment.flip=0.5 data.workers=12 data.distinct=1024 output.log_every=$(($3 / 4)) \
        cuda.dependent_launch="$4" || status=$?
    clocks_end
    variants_keep "$1" "$scratch/speed/train.log"
    ((status == 0)) || { fail "speed of $1, batch $2"; return 1; }
    seconds=$(column_of "$scratch/speed/metrics.csv" step_seconds $(($3 / 4)) | median)
}

# ---- Clock and power: nvidia-smi beside a run, ten times a second.
clocks_begin() {
    stdbuf -oL nvidia-smi -i 0 --query-gpu=clocks.sm,power.draw.instant,clocks_event_reasons.active --format=csv,noheader,nounits \
        -lms 100 >"$scratch/clocks" 2>&1 &
    sampler=$!
}
clocks_end() {
    kill "$sampler" 2>/dev/null
    wait "$sampler" 2>/dev/null
}
# Rows of the samples whose power is at least 75 % of the largest: the others are from the start and the end of the program.
# For each reason that lowers the clock: the share of samples that have it.
clocks_report() { # MODEL BATCH SUFFIX
    local bit reason share
    awk -F ', *' '
        function number(text,    i, n) { # "0x0000000000000004"
            for (i = 3; i <= length(text); i++) n = 16 * n + index("0123456789abcdef", tolower(substr(text, i, 1))) - 1
            return n + 0
        }
        NF == 3 && $1 ~ /^[0-9]+$/ && $2 ~ /^[0-9.]+$/ {
            power[++n] = $2 + 0
            line[n] = $1 " " $2 " " number($3)
            if (power[n] > most) most = power[n]
        }
        END { for (i = 1; i <= n; i++) if (power[i] >= 0.75 * most) print line[i] }' "$scratch/clocks" >"$scratch/busy"
    [[ -s $scratch/busy ]] || { miss "clock of $1: $(explain "$scratch/clocks" 1)"; return 0; }
    report "training step" "$1" "$2" "SM clock$3" "$(cut -d ' ' -f 1 "$scratch/busy" | median)" MHz
    report "training step" "$1" "$2" "power$3" "$(cut -d ' ' -f 2 "$scratch/busy" | median)" W
    report "training step" "$1" "$2" "largest power$3" "$(cut -d ' ' -f 2 "$scratch/busy" | sort -g | tail -n 1)" W
    while read -r bit reason; do
        share=$(awk -v bit="$bit" '{ count += int($3 / bit) % 2 } END { printf "%.2f", count / NR }' "$scratch/busy")
        [[ $share == 0.00 ]] || report "training step" "$1" "$2" "clock limited by $reason$3" "$share" ""
    done <<<$'4 power\n8 hardware\n32 temperature\n64 temperature (hardware)\n128 power brake'
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
    [[ -s $scratch/seconds-ours-off ]] || return 0
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
