# SPDX-License-Identifier: BSD-3-Clause
# Part losses: twenty steps on the GPU against the CPU's, and compute-sanitizer on tests of operations.
# bundle.sh sources this file, too, to compute the CPU's losses beforehand.
# Environment: LOSS_WORKS ("MODEL:BATCH ..."), LOSS_PRECISIONS, LOSS_SETTINGS (of each run), SANITIZER_TESTS.

loss_works=${LOSS_WORKS:-vit_cifar:64 resnet18:16}
loss_precisions=${LOSS_PRECISIONS:-fp32 bf16 fp16}
loss_steps=20

part_losses() {
    local work precision strategy
    for work in $loss_works; do
        for precision in $loss_precisions; do
            stage "losses of $work in $precision" 25 losses_compare "${work%:*}" "${work#*:}" "$precision" recorded 1
        done
        stage "losses of $work without a graph" 20 losses_compare "${work%:*}" "${work#*:}" fp32 eager 1 cuda.graph=off
    done
    work=${loss_works%% *}
    for strategy in ddp fsdp; do
        stage "losses of $work on 2 ranks, $strategy" 30 losses_ranks "${work%:*}" "${work#*:}" "$strategy" mesh.strategy="$strategy"
    done
    sanitizer_find
    local name tool
    for name in ${SANITIZER_TESTS:-device/test_attention device/test_norm device/test_loss device/test_batch_norm device/test_planes}; do
        for tool in memcheck racecheck; do
            stage "$tool $name" 45 sanitizer_run "$tool" "$name"
        done
    done
}

# losses_run NAME RANKS MODEL BATCH PRECISION [SETTING...]: trains, and writes $scratch/losses-NAME with one loss per step.
# The loss scale is small enough that fp16 skips no update, which would depend on rounding.
losses_run() {
    local name=$1 ranks=$2 model=$3 batch=$4 precision=$5
    shift 5
    local image=32
    [[ $model != resnet* ]] || image=64
    [[ $precision != fp16 ]] || set -- train.loss_scale=8 "$@"
    # shellcheck disable=SC2086
    RUN_LIMIT=${LOSS_LIMIT:-100} train_steps "$name" "$ranks" auto "$model" "$batch" $((loss_steps - 2)) "train.precision=$precision" \
        "data.image=$image" optim.lr=3e-4 augment.flip=0.5 augment.erase=0.5 output.logbook= ${LOSS_SETTINGS:-} "$@" ||
        { explain "$scratch/$name.log"; return 1; }
    column_of "$scratch/$name/metrics.csv" loss 0 >"$scratch/losses-$name"
}

# losses_reference MODEL BATCH PRECISION FOLDER: the CPU's losses, written to FOLDER/MODEL-BATCH-PRECISION unless that exists.
losses_reference() {
    local file=$4/$1-$2-$3
    [[ ! -s $file ]] || return 0
    mkdir -p "$4"
    LOSS_LIMIT=900 losses_run cpu 1 "$1" "$2" "$3" run.backend=cpu && mv "$scratch/losses-cpu" "$file"
}

# Differences by rounding grow with each step, faster with batch norm: in fp32 the losses of resnet18 differ by 0.054 between two
# instruction sets of one CPU.
tolerance_of() { # MODEL PRECISION
    case $2:$1 in
    fp32:resnet*) echo 0.1 ;;
    fp32:*) echo 1e-3 ;;
    *:resnet*) echo 0.2 ;;
    *) echo 0.05 ;;
    esac
}

losses_compare() { # MODEL BATCH PRECISION CASE RANKS [SETTING...]
    local model=$1 batch=$2 precision=$3 name=$4 ranks=$5
    shift 5
    losses_reference "$model" "$batch" "$precision" "$build/losses" || { fail "$model in $precision on the CPU"; return 1; }
    # shellcheck disable=SC2086
    LOSS_LIMIT=$(within "${LOSS_LIMIT:-100}") losses_run "$name" "$ranks" "$model" "$batch" "$precision" $gpu_settings "$@" 2>"$scratch/problem" ||
        { fail "$model in $precision, $name: $(cat "$scratch/problem")"; return 1; }
    local table=$out/gpu-losses.csv
    [[ -s $table ]] || echo "model,batch,precision,case,step,cpu,gpu" >"$table"
    paste -d, "$build/losses/$model-$batch-$precision" "$scratch/losses-$name" |
        awk -v first="$model,$batch,$precision,$name" '{ print first "," NR "," $0 }' >"$scratch/pairs"
    cat "$scratch/pairs" >>"$table"
    awk -F, -v most="$(tolerance_of "$model" "$precision")" -v steps=$loss_steps '
        { d = $6 - $7; if (d < 0) d = -d; if (!(d <= largest)) largest = d }
        END { printf "%s in %s, %s: %d losses, at most %.2g from the CPU (%s allowed)\n", $1, $3, $4, NR, largest, most
              exit !(NR == steps && largest <= most) }' "$scratch/pairs" ||
        { fail "$model in $precision, $name: losses differ from the CPU"; return 1; }
}

losses_ranks() { # MODEL BATCH NAME SETTING...
    [[ $loopback == yes ]] || { miss "losses on 2 ranks, $3: the loopback interface is down (ip link set lo up)"; return 1; }
    losses_compare "$1" "$2" fp32 "$3" 2 cuda.share=yes "${@:4}"
}

# ---- compute-sanitizer, where the machine lets it run.
sanitizer_find() { sanitizer=$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer); }

sanitizer_open() { # TOOL WHAT: sets `under`, the words that run a program under the tool
    [[ -n $sanitizer ]] || { miss "$1 $2: compute-sanitizer is not installed"; return 1; }
    under=("$sanitizer" --tool "$1" --report-api-errors no --target-processes all --error-exitcode 9)
}

sanitizer_run() { # TOOL TEST
    local status=0
    sanitizer_open "$1" "$2" || return
    VITTRAIN_TEST_DEVICE=cuda timeout -k 5 "$(within 60)" "${under[@]}" "$launcher" "$build/test/$2" >"$scratch/sanitizer" 2>&1 || status=$?
    sanitizer_result "$1" "$2" "$status" "$scratch/sanitizer"
}

sanitizer_result() { # TOOL WHAT STATUS LOG
    case $3 in
    0) echo "$1 $2: clean" ;;
    9) fail "$1 $2"; grep -m 20 '=========' "$4"; return 1 ;;
    124 | 137) miss "$1 $2: did not end in time" ;;
    *) miss "$1 $2: $(grep -m 1 -iE 'error|not supported' "$4")" ;;
    esac
}
