#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The first hour on a node with several GPUs: doctor, bandwidth of the collectives, equal losses of all strategies, equal bits
# of two runs, checkpoints in the background, and scaling. OUT/summary.txt is meant to be mailed; OUT/scaling.csv is a table.
#   jobs/first_gpus.sh [DECK.ini ...] [section.key=value ...]
# The words apply to all runs; without any, they train ViT-B/16 on synthetic images. Environment:
#   VITTRAIN, MPIRUN   the program (./vittrain) and the launcher (mpirun), with its options
#   GPUS               number of GPUs, at least 2 (all that nvidia-smi lists)
#   STRATEGIES         values of mesh.strategy (all); hsdp needs at least 4 GPUs
#   BATCH, STEPS       images per GPU (64), or of all GPUs together where losses are compared; steps of a run (20)
#   BYTES              largest buffer of a collective (256MiB)
#   OUT                folder for results (first-gpus); it must not exist
# The exit status is 1 if a check failed, 2 if there are fewer than 2 GPUs or OUT cannot be made.

vittrain=${VITTRAIN:-./vittrain} mpirun=${MPIRUN:-mpirun} out=${OUT:-first-gpus} batch=${BATCH:-64} steps=${STEPS:-20}
strategies=${STRATEGIES:-ddp zero1 zero2 fsdp hsdp}
gpus=${GPUS:-$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')}
[ $# -gt 0 ] || set -- model.name=vit_base_patch16_224 data.format=synthetic data.image=224
[ "$gpus" -ge 2 ] || { echo "first_gpus.sh: $gpus GPUs here (nvidia-smi -L): it needs at least 2; see GPUS" >&2; exit 2; }
mkdir "$out" || exit 2
failed=0

say() { echo "$*" | tee -a "$out/summary.txt"; }

# check NAME PROBLEM [LOG]: add a line to the summary; ok if PROBLEM is empty. Otherwise the errors in LOG follow.
check() {
    [ -n "$2" ] || { say "ok    $1"; return; }
    failed=1
    say "FAIL  $1: $(echo "$2" | tr '\n' ' ')"
    [ -z "$3" ] || grep -aE 'vittrain: [a-z ]*(error|failure): |NCCL WARN' "$3" | head -n 5 | tee -a "$out/summary.txt"
}

# start NAME RANKS WORD...: run the program on GPUs; the output goes to OUT/NAME.log.
start() {
    log=$out/$1.log ranks=$2
    shift 2
    timeout 900 $mpirun -np "$ranks" "$vittrain" "$@" run.backend=cuda >"$log" 2>&1 </dev/null
    status=$?
}

# train NAME RANKS WORD...: a run in OUT/NAME with the words of the call first.
train() {
    run=$1 ranks=$2
    shift 2
    start "$run" "$ranks" train $words run.dir="$out/$run" train.steps="$steps" data.val=none output.log_every=1 \
        output.tensorboard=off output.logbook= "$@"
}

# column NAME COLUMN: step and value of each training row of a run.
column() {
    awk -F, -v name="$2" 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
        $at["split"] == "train" { print $at["step"], $at[name] }' "$out/$1/metrics.csv" 2>/dev/null
}

# unlike NAME: print the largest difference of the run's losses from those of one GPU, relative to them, if it is above 0.1 %.
unlike() {
    [ $status -eq 0 ] || echo "exit status $status"
    column one loss >"$out/one.txt"
    column "$1" loss | awk -v file="$out/one.txt" '
        BEGIN { while ((getline line <file) > 0) { split(line, cell, " "); one[cell[1]] = cell[2]; rows++ } }
        { gap = ($2 - one[$1]) / one[$1]; gap = gap < 0 ? -gap : gap; most = gap > most ? gap : most }
        END { if (NR == 0 || NR != rows) print NR " losses instead of " rows + 0
              else if (!(most <= 1e-3)) print "losses differ from those of one GPU by " 100 * most " %" }'
}

words=$*
counts=$(n=2; while [ $n -lt "$gpus" ]; do echo $n; n=$((2 * n)); done; echo "$gpus")
say "first hour on $gpus GPUs of $(hostname), $(date -u '+%F %T') UTC; $("$vittrain" --version | head -n 1)"
say "words: $words; $batch images per GPU, $steps steps"
{ nvidia-smi -L; nvidia-smi topo -m; } >"$out/gpus.txt" 2>&1
head -n 1 "$out/gpus.txt" | tee -a "$out/summary.txt"

start doctor "$gpus" doctor $words
check doctor "$([ $status -eq 0 ] || { echo "exit status $status"; grep -E '(^| )fail ' "$log" | head -n 3; })" "$log"

start comm "$gpus" bench comm bench.max="${BYTES:-256MiB}" mesh.transport=ring bench.output="$out/comm.csv"
check 'bandwidth of the collectives' "$([ $status -eq 0 ] || echo "exit status $status")" "$log"
awk '$2 == "nccl" { most[$1] = $7 } END { for (name in most) print "      " name ": " most[name] " GB/s on the bus" }' "$log" |
    sort | tee -a "$out/summary.txt"

# each ACTION: call it with each strategy, number of GPUs and words for the mesh.
each() {
    for count in $counts; do
        for strategy in $strategies; do
            mesh="mesh.strategy=$strategy"
            if [ "$strategy" = hsdp ]; then
                [ "$count" -ge 4 ] && [ $((count % 2)) = 0 ] || continue
                mesh="$mesh mesh.shard=$((count / 2))"
            fi
            "$1" "$strategy" "$count" $mesh
        done
    done
}

# Losses in fp32, with one global batch on every number of GPUs.
same="train.precision=fp32 train.global_batch=$batch"
losses() {
    train "losses-$1-$2" "$2" $same $3 $4
    check "losses of $1 on $2 GPUs" "$(unlike "losses-$1-$2")" "$log"
}
train one 1 $same
check 'training on 1 GPU' "$(unlike one)" "$log"
each losses

# Checkpoints after every step. At the end each GPU must have one process: more are contexts on a GPU of another rank.
: >"$out/background.log"
train background "$gpus" $same mesh.strategy=fsdp checkpoint.background=yes checkpoint.every_seconds=1e-9 checkpoint.keep=2 \
    debug.pause="results:$steps:$out/go" &
job=$!
until [ "$(ls "$out"/go.* 2>/dev/null | grep -c 'go\.[0-9]*$')" = "$gpus" ] || ! kill -0 $job 2>/dev/null; do sleep 0.2; done
shared=$(nvidia-smi --query-compute-apps=gpu_uuid --format=csv,noheader 2>/dev/null | sort | uniq -d)
: >"$out/go"
wait $job
status=0 log=$out/background.log
bad="$(unlike background)"
grep -q 'written in the background' "$log" || bad="$bad not in the background"
check "checkpoints in the background" "$bad" "$log"
sed -n 's/^checkpoints: /      /p' "$log" | tee -a "$out/summary.txt"
check 'one process per GPU after a checkpoint' "${shared:+several on $shared}"
fewer=$((gpus / 2))
train resumed $fewer $same mesh.strategy=ddp checkpoint.resume="$(ls "$out"/background/checkpoints/step-*.h5 2>/dev/null | head -n 1)"
check "resumed on $fewer GPUs" "$([ $status -eq 0 ] || echo "exit status $status")" "$log"

# Images per second with a fixed batch per GPU, in the precision of the words. On all GPUs a second run must have the same bits.
rate() { column "$1" images_per_second | tail -n 1 | cut -d' ' -f2; }
scales() {
    name=$1 on=$2
    shift 2
    per_gpu="train.global_batch=$((batch * on)) output.log_every=$((steps / 2)) $*"
    train "speed-$name-$on" "$on" $per_gpu
    check "speed of $name on $on GPUs" "$([ $status -eq 0 ] || echo "exit status $status")" "$log"
    awk -v row="$name,$on" -v count="$on" -v rate="$(rate "speed-$name-$on")" -v base="$(rate speed-one-1)" \
        'BEGIN { printf "%s,%.1f,%.3f\n", row, rate, (base > 0 ? rate / base / count : 0) }' >>"$out/scaling.csv"
    [ "$on" = "$gpus" ] || return
    train "again-$name" "$on" $per_gpu
    check "same bits of two $name runs on $on GPUs" \
        "$(cmp "$out/speed-$name-$on/weights.safetensors" "$out/again-$name/weights.safetensors" 2>&1)" "$log"
}
echo strategy,gpus,images_per_second,efficiency >"$out/scaling.csv"
scales one 1
each scales
cat "$out/scaling.csv" | tee -a "$out/summary.txt"
find "$out" -name '*.h5' -o -name '*.safetensors' | xargs rm -f
say "$([ $failed = 0 ] && echo 'all checks passed' || echo 'some checks failed'); the folder $out has the logs of all runs"
exit $failed
