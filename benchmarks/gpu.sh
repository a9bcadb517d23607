#!/bin/bash
# All that needs a GPU, in one go and within LIMIT seconds (450): tests of every operation on it, compute-sanitizer
# on them, the program against itself (CPU and GPU, one rank and two that share the GPU), then speed, memory and
# start beside PyTorch's in the same sitting. Runs in a checkout that was built with nvcc, or in an unpacked
# bundle (bundle.sh).
#
#   benchmarks/gpu.sh [FOLDER]        writes FOLDER/gpu.csv (README.md) and FOLDER/gpu.log; default: gpu-results
#
# Exit status 77 without a GPU, 1 when a test or comparison failed. Nothing is printed that was not measured: what the
# time did not reach is named at the end. Environment: PYTHON (with torch and timm), LIMIT, WORKS ("MODEL:BATCH,BATCH ..."),
# LOSS_SETTINGS (a smaller model for the comparison of losses).
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")/.." || exit 1

if ! nvidia-smi -L >/dev/null 2>&1; then
    echo "gpu.sh: no GPU here (nvidia-smi -L finds none): nothing was measured" >&2
    exit 77
fi
out=${1:-gpu-results}
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 1
csv=$out/gpu.csv log=$out/gpu.log
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
exec > >(tee "$log") 2>&1
limit=${LIMIT:-450} python=${PYTHON:-python3} failed=0 missed=()
[[ -e env ]] && . ./env
here=$PWD/benchmarks
. "$here/common.sh"

# CUDA's libraries may be a part of Python's packages.
packages=$("$python" -c 'import os, nvidia; print(list(nvidia.__path__)[0])' 2>/dev/null)
for folder in "$packages"/*/lib /usr/local/cuda/lib64; do
    [[ -d $folder ]] && LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder
done
export LD_LIBRARY_PATH VITTRAIN_BENCH_GPU
VITTRAIN_BENCH_GPU=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1 | tr ',' ' ')

left() { echo $((limit - SECONDS)); }
say() { printf '\n== %s (%s s so far)\n' "$*" "$SECONDS"; }
# Is there time for what takes about so long? Else it is named at the end.
time_for() { # SECONDS WHAT
    (($(left) > $1)) && return
    missed+=("$2")
    return 1
}
fail() { echo "FAILED: $*"; failed=$((failed + 1)); }
report() { row "$1" "$2" "$3" bf16 none 1 1 "$4" "$5" "$6" | tee -a "$csv"; } # WORK MODEL BATCH METRIC VALUE UNIT

table_open "$csv" || exit 1
nvidia-smi | head -15
./vittrain --version

# ---- 1. Every operation on the device, against double precision.
say "tests of operations"
tests="$(grep -v '^#' test/devices) test_vit_device test_convnet_device"
for name in $tests; do
    if VITTRAIN_TEST_DEVICE=cuda timeout 60 "test/$name" >"$scratch/test" 2>&1; then
        echo "$name: $(grep -c '^ok' "$scratch/test") passed"
    else
        fail "$name"
        grep -vE '^(ok|1\.\.)' "$scratch/test" | head -10
    fi
done

# ---- 2. compute-sanitizer, where the machine lets it run.
say "compute-sanitizer"
sanitizer=$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer)
if [[ -z $sanitizer ]]; then
    missed+=("compute-sanitizer: not installed")
else
    for tool in memcheck racecheck; do
        for name in test_attention test_norm test_loss test_batch_norm test_max_pool; do
            time_for 380 "compute-sanitizer $tool $name" || continue
            VITTRAIN_TEST_DEVICE=cuda timeout 25 "$sanitizer" --tool $tool --error-exitcode 9 "test/$name" \
                >"$scratch/sanitizer" 2>&1
            status=$?
            case $status in
            0) echo "$tool $name: clean" ;;
            9) fail "$tool $name"; grep -m 12 '=========' "$scratch/sanitizer" ;;
            124) missed+=("compute-sanitizer $tool $name: 25 s were not enough") ;;
            *) missed+=("compute-sanitizer $tool $name: $(grep -m 1 -iE 'error|not supported' "$scratch/sanitizer")") ;;
            esac
        done
    done
fi

# ---- 3. The program: losses of 20 steps on the CPU and on the GPU, alone and by two ranks.
say "the program against itself"
same_losses() { # NAME RANKS TOLERANCE SETTINGS...
    local name=$1 ranks=$2 tolerance=$3
    shift 3
    rm -rf "$scratch/run"
    timeout 100 $mpirun -np "$ranks" ./vittrain input/quickstart.ini output.logbook= train.steps=20 output.log_every=1 data.val=none \
        run.threads=2 train.global_batch=64 train.precision=fp32 output.weights=off checkpoint.every=0 \
        run.dir="$scratch/run" ${LOSS_SETTINGS:-} "$@" >"$scratch/program" 2>&1 ||
        { fail "$name"; grep -m 3 -E 'vittrain: |warning' "$scratch/program"; return; }
    awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) column[$i] = i; next }
        $column["split"] == "train" { print $column["loss"] }' "$scratch/run/metrics.csv" >"$scratch/losses-$name"
    [[ $name == cpu ]] && return
    paste "$scratch/losses-cpu" "$scratch/losses-$name" | awk -v name="$name" -v tolerance="$tolerance" '
        { d = $1 - $2; if (d < 0) d = -d; if (d > most) most = d }
        END { printf "%s: %d losses, at most %.2g from the CPU\n", name, NR, most; exit !(NR == 20 && most <= tolerance) }' ||
        fail "$name: losses differ"
}
same_losses cpu 1 0 run.backend=cpu
same_losses gpu 1 1e-3 run.backend=cuda cuda.graph=off
same_losses graph 1 1e-3 run.backend=cuda
for strategy in ddp fsdp; do
    same_losses "$strategy-2-ranks" 2 1e-3 run.backend=cuda cuda.share=yes mesh.strategy=$strategy
done

# ---- 4. Speed: a row of steps, the best batch of each side.
settings="output.logbook= data.format=synthetic data.val=none augment.flip=0.5 augment.rotate=0 augment.translate=0 augment.erase=0
    train.clip_norm=1 optim.weight_decay=0.05 checkpoint.every=0 output.weights=off output.tensorboard=off train.precision=bf16
    model.classes=10 run.backend=cuda"
ours() { # MODEL BATCH STEPS
    local every=$(($3 / 6))
    rm -rf "$scratch/run"
    timeout 90 ./vittrain train $settings model.name=$1 data.image="$(image_of "$1")" data.samples=$((2 * $2)) train.epochs=100000 \
        train.batch=$2 train.steps=$3 output.log_every=$every data.workers=4 run.dir="$scratch/run" >"$scratch/ours" 2>&1 ||
        { tail -2 "$scratch/ours"; return 1; }
    seconds=$(column_of "$scratch/run/metrics.csv" step_seconds $((2 * every)) | median)
    echo "$1 batch $2: $seconds s a step; $(grep -m 1 'memory of rank 0' "$scratch/ours")"
}
theirs() { # MODEL BATCH STEPS VARIANT
    local compile=()
    [[ $4 == compiled ]] && compile=(--compile)
    timeout 110 "$python" benchmarks/pytorch_step.py --device cuda --model "$1" --batch "$2" --precision bf16 \
        --steps "$3" --warmup 5 "${compile[@]}" 2>"$scratch/theirs-log" | tail -1 >"$scratch/theirs"
    [[ -s $scratch/theirs ]] || { tail -2 "$scratch/theirs-log"; return 1; }
    tee -a "$csv" <"$scratch/theirs"
    seconds=$(cut -d, -f14 "$scratch/theirs")
}
best_rate() { # keeps the larger of images a second in `rate`
    rate=$(awk "BEGIN { r = $1 / $seconds; print (r > ${rate:-0} ? r : ${rate:-0}) }")
}
for work in ${WORKS:-vit_base_patch32_224:256,512 vit_cifar:64,512 vit_base_patch16_224:128,256 resnet18:128,256 cnn_b:128,512}; do
    model=${work%%:*} steps=30
    [[ $model == vit_cifar ]] && steps=300
    [[ $model == cnn_b ]] && steps=100
    time_for 60 "$model" || continue
    say "$model"
    rate=0
    for batch in $(tr , ' ' <<<"${work#*:}"); do
        ours "$model" "$batch" "$steps" || continue
        report "training step" "$model" "$batch" step "$seconds" s
        best_rate "$batch"
    done
    mine=$rate rate=0
    for variant in compiled eager; do
        for batch in $(tr , ' ' <<<"${work#*:}"); do
            time_for 40 "PyTorch $variant $model batch $batch" || continue
            theirs "$model" "$batch" "$steps" "$variant" && best_rate "$batch"
        done
    done
    report training "$model" best images_per_second "$mine" 1/s
    awk "BEGIN { exit !($rate > 0 && $mine > 0) }" &&
        framework="vittrain over pytorch (best of what was measured)" report training "$model" best speed \
            "$(awk "BEGIN { printf \"%.3f\", $mine / $rate }")" x
done

# ---- 5. Data wait, memory against the plan, start.
if time_for 15 "data wait, start"; then
    say "data wait and start"
    [[ -e $scratch/run/metrics.csv ]] && awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) column[$i] = i; next }
        $column["split"] == "train" { wait += $column["data_seconds"]; all += $column["step_seconds"] }
        END { if (all > 0) printf "data wait: %.2f %% of a step\n", 100 * wait / all }' "$scratch/run/metrics.csv"
    begin=$(date +%s.%N)
    ./vittrain train $settings model.name=vit_cifar data.image=32 data.samples=128 train.batch=64 train.steps=1 \
        run.dir="$scratch/start" >"$scratch/start-log" 2>&1
    report "start and one step" vit_cifar 64 "whole run" \
        "$(awk "BEGIN { printf \"%.3f\", $(date +%s.%N) - $begin }")" s
    timeout 60 "$python" benchmarks/pytorch_step.py --device cuda --model vit_cifar --batch 64 --precision bf16 \
        --epoch-seconds-of-start "$(date +%s.%N)" 2>/dev/null | tee -a "$csv"
fi

say "done"
for what in "${missed[@]}"; do echo "not measured: $what"; done
echo "$failed failed"
((failed == 0))
