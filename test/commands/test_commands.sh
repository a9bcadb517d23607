#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# All commands: the files that they write. Each invalid call prints one error line with reason and place, returns the exit status
# of its kind and creates no run folder.
. "$TEST_SOURCE/test/support/program.sh"

# json KEY FILE: the number after "KEY":
json() {
    sed -n "s/.*\"$1\": *\\(-\\{0,1\\}[0-9.e-]*\\).*/\\1/p" "$2" | head -1
}

# status_check NAME STATUS EXPECTED FILE: the status of a command whose standard error is FILE.
status_check() {
    bad=
    [ "$2" -eq "$3" ] || bad="exit status $2, not $3"
    [ "$(grep -c '^vittrain: error: ' "$4")" = 1 ] || bad="$bad; not one line of error"
    result "$1" "$bad" "$4"
}

run 2 train $small train.epochs=1 run.dir="$work/run"
result 'train on two ranks' "$(ended)" "$work/train.log"
start=$(sed '/^epoch 1 done/,$d' "$work/train.log" | wc -l)
bad=$([ "$start" -ge 8 ] && [ "$start" -le 15 ] || echo "$start lines;")
for line in 'options: run.dir=' '         .* train.global_batch=24.* and [0-9]* more (deck.ini)' 'mesh: ddp, 2 ranks' 'device: .* with oneDNN [0-9.]*$' 'data: cifar10, ' 'model: vit_cifar, [0-9]* parameters' \
    'memory: [0-9.]* MiB per rank' 'run: [0-9]* steps' 'run folder: '; do
    grep -q "^$line" "$work/train.log" || bad="$bad no $line;"
done
for line in 'optim      name=adamw lr=0.003\*' '  blocks.0  *11 ' '  activations  *[0-9.]* MiB$'; do
    grep -q "^[0-9T:-]* $line" "$work/run/train.log" || bad="$bad no $line in the run's log;"
    ! grep -q "^$line" "$work/train.log" || bad="$bad $line on the console;"
done
result 'the start takes few lines, and all in train.log' "$bad" "$work/train.log"
bad=$(sed '1,/^epoch 1 done/d' "$work/train.log" | grep -c .)
for line in 'macro average' 'memory of rank 0'; do
    grep -q " $line" "$work/run/train.log" || bad="$bad no $line;"
done
result 'the end takes at most 12 lines, and train.log has all' "$([ "$bad" -le 12 ] 2>/dev/null || echo "$bad lines")" "$work/train.log"
bad=
for file in deck.ini metrics.csv result.json weights.safetensors checkpoints/last.h5 checkpoints/best.h5; do
    [ -s "$work/run/$file" ] || bad="$bad $file"
done
ls "$work"/run/events.out.tfevents* >/dev/null 2>&1 || bad="$bad events"
result 'a run leaves its files' "${bad:+missing:$bad}" "$work/train.log"
run 1 again -v $small train.epochs=1 run.dir="$work/second" "$work/run/deck.ini" run.dir="$work/second" -v
result 'the resolved deck is a deck' "$(ended)" "$work/again.log"
grep -q '^  blocks.0  *11 ' "$work/again.log" && grep -q '^optim      name=adamw lr=0.003\*' "$work/again.log" &&
    ! grep -q '^options: ' "$work/again.log" && bad= || bad="lines are missing"
result 'with -v the console has all lines' "$bad" "$work/again.log"

loss=$(awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
    $at["split"] == "val" { value = $at["loss"] } END { print value }' "$work/run/metrics.csv")
for ranks in 1 2 3; do
    run $ranks eval$ranks eval "$work/run/checkpoints/last.h5" predict.split=val
    json loss "$work/eval$ranks.log" >"$work/value"
    bad=$(awk -v a="$loss" '{ d = a - $1; if (d < 0) d = -d; if (!(d < 2e-5 * a)) print a, $1; n++ }
        END { if (n != 1) print "no loss" }' "$work/value")
    result "eval on $ranks ranks gives the loss of training" "$bad" "$work/eval$ranks.log"
done
run 2 weights eval "$work/run/weights.safetensors" $small predict.split=val
json loss "$work/weights.log" >"$work/value"
bad=$(awk -v a="$loss" '{ d = a - $1; if (d < 0) d = -d; if (!(d < 2e-5 * a)) print a, $1; n++ }
    END { if (n != 1) print "no loss" }' "$work/value")
result 'eval of the weights too' "$bad" "$work/weights.log"
cp "$work/run/weights.safetensors" "$work/spoilt.safetensors"
printf '\000\000\300\177' | dd of="$work/spoilt.safetensors" bs=1 conv=notrunc \
    seek=$(($(stat -c %s "$work/spoilt.safetensors") - 4)) 2>/dev/null
run 2 spoilt eval "$work/spoilt.safetensors" $small predict.split=val
result 'NaN in weights is told' "$(grep -q 'warning: .* contains NaN or infinity, first in' "$work/spoilt.log" ||
    echo 'no warning')" "$work/spoilt.log"
for command in eval predict; do
    fails 2 "and an error in $command" 7 'the output of vit_cifar is NaN or infinity: the weights are damaged' \
        $command "$work/spoilt.safetensors" $small predict.split=val
    grep -q '^[0-9]*,\|"loss"' "$run_log" && bad='a result' || bad=
    result "without a result" "$bad" "$run_log"
done

for ranks in 1 3; do
    run $ranks predict predict "$work/run/checkpoints/last.h5" predict.output="$work/p$ranks.csv"
done
result 'predict: a line for each sample' \
    "$([ "$(wc -l <"$work/p1.csv")" = 151 ] || wc -l "$work/p1.csv")" "$work/predict.log"
awk -F, 'NR > 1 { print NR, $1; print NR, $3 }' "$work/p1.csv" >"$work/a"
awk -F, 'NR > 1 { print NR, $1; print NR, $3 }' "$work/p3.csv" >"$work/b"
result 'predict: the same on 3 ranks' "$(differ "$work/a" "$work/b" 0)"
run 1 predict predict "$work/run/checkpoints/last.h5" predict.output="$work/p.json"
bad=$(sed -n 's/^{"record":[0-9]*,"label":[0-9],"predicted":\([0-9]\),"class":"[a-z]*","probabilities":\[\([0-9.e,-]*\)\]}$/\1,\2/p' \
    "$work/p.json" | awk -F, '{ sum = 0; for (i = 2; i <= NF; i++) { sum += $i; if ($i > $($1 + 2)) print "line " NR ": not the largest" }
        if (NF != 11 || !(sum > 0.9999 && sum < 1.0001)) print "line " NR ": " NF - 1 " probabilities, sum " sum }
        END { if (NR != 150) print NR " lines" }')
result 'predict: JSON lines' "$bad" "$work/p.json"

fails 2 'an unknown key names the nearest' 2 'train.epoch.*train.epochs' train.epoch=3
fails 1 'a bad value' 2 'train.batch' train.batch=many

# Processes of a launcher that MPI does not know would each train a model of their own. Slurm's PROCID 0 is that of a batch
# script, too, unless a job step has several tasks.
bad=
for launched in 'PMI_RANK=1 PMI_SIZE=2' 'SLURM_PROCID=0 SLURM_NTASKS=2' SLURM_PROCID=1 'FLUX_TASK_RANK=0 FLUX_JOB_SIZE=2' PALS_RANKID=1 \
    ALPS_APP_PE=1 'MV2_COMM_WORLD_RANK=0 MV2_COMM_WORLD_SIZE=2' JSM_NAMESPACE_RANK=1 'MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2' \
    'RANK=0 WORLD_SIZE=2' PMIX_RANK=1 PMIX_RANK=0 PALS_RANKID=0 ALPS_APP_PE=0; do
    (export $launched && run 1 launched $small run.dir="$work/launched"; exit $status)
    status=$? run_log=$work/launched.log
    bad="$bad$(failed_otherwise 2 "one of several \(${launched%% *}\), but MPI has only 1 rank: use the mpirun of" |
        sed "s/^/$launched: /")"
done
[ ! -e "$work/launched" ] || bad="$bad; a run was started"
result 'several processes without their MPI' "$bad" "$run_log"
run_log=$work/cleared.log
timeout $time_limit $MPIRUN -np 2 env -i "$vittrain" $small run.dir="$work/cleared" >"$run_log" 2>&1
result 'several processes without their environment' "$(grep -q 'one of several (child of [a-z_]*), but MPI has only' "$run_log" ||
    echo 'another message')" "$run_log"
bad=
for launched in 'SLURM_JOB_ID=3 SLURM_PROCID=0 SLURM_NTASKS=8' 'RANK=0 WORLD_SIZE=1' \
    'SLURM_JOB_ID=3 SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=1'; do
    (export $launched && run 1 launched plan && exit $status) || bad="$bad $launched: exit status $?"
done
result 'a batch script of 8 tasks and a job step of one task are single processes' "$bad" "$work/launched.log"
fails 1 'an unknown command' 2 'evla.*eval' evla
fails 2 'an unknown model names the nearest' 2 'vit_base_patch32_224' model.name=vit_base_patch32_24
fails 1 'the beginning of names lists them' 2 'unknown model.name=vit_tiny; names that begin with it: vit_tiny_patch16_224, vit_tiny_patch16_384$' \
    model.name=vit_tiny
fails 1 'images with one channel' 2 '3 channels, but model.channels is 1; set it to that number \(image files always have 3\)' $small model.channels=1
fails 1 'a patch that does not divide the image' 2 'model.patch=5 .*32 x 32' model.patch=5
fails 1 'heads that do not divide the width' 2 'model.heads=5 does not divide model.dim=' $small model.heads=5
fails 1 'pooling of a class token that the model lacks' 2 'model.pool=token needs' $small model.pool=token model.class_token=off
fails 2 'a folder without data' 3 "$work/none" data.root="$work/none"
mkdir "$work/cut"
cp "$TEST_BUILD"/data/cifar-10-sample/*.bin "$work/cut"
truncate -s -100 "$work/cut/data_batch_1.bin"
fails 2 'a truncated data file' 3 'data_batch_1.bin' data.root="$work/cut"
fails 1 'too few classes' 2 'model.classes=5' $small model.classes=5
fails 1 'a unit to freeze that is not there' 2 'blocks.9' $small optim.freeze=blocks.9
fails 1 'one half of a layer norm to freeze' 2 'freeze both with blocks.0.norm1,' $small optim.freeze=blocks.0.norm1.weight
fails 1 'one half of a batch norm to freeze' 2 'freeze both with [a-z0-9.]*,' model.name=cnn_b data.format=synthetic \
    optim.freeze=bn1.bias
fails 2 'weights that are not there' 4 'none.safetensors' $small \
    model.init="$work/none.safetensors" run.dir="$work/unwritten"
head -c 1000 "$work/run/weights.safetensors" >"$work/cut.safetensors"
fails 2 'weights that are cut' 4 'cut.safetensors' $small \
    model.init="$work/cut.safetensors" run.dir="$work/unwritten"
fails 2 'weights of another model' 4 'blocks.2.norm1.weight is missing.* and 5 more; set model.name=vit_cifar,' $small model.depth=3 \
    model.init="$work/run/weights.safetensors" run.dir="$work/unwritten"
fails 2 'a checkpoint with another head' 4 'head.weight \[10, 32\].* or give weights as safetensors' \
    $small model.classes=12 model.init="$work/run/checkpoints/last.h5" run.dir="$work/unwritten"
# Between vectors lie gaps of some kilobytes, whose bytes nobody misses.
for place in 104000 112000 120000; do
    printf '\377' | dd of="$work/run/checkpoints/last.h5" bs=1 seek=$place conv=notrunc 2>/dev/null
done
fails 2 'a checkpoint with flipped bytes' 4 'step-[0-9]*.h5 is damaged' eval "$work/run/checkpoints/last.h5" predict.split=val
fails 2 'a checkpoint that is not there' 4 'no.h5' eval "$work/no.h5"
fails 1 'eval without a file' 2 'eval needs' eval
fails 2 'an infinite learning rate stops at NaN' 7 'NaN or infinity' $small optim.lr=1e30 optim.name=sgd run.dir="$work/nan"
fails 2 'two GPUs that are not there' 2 'use run.backend=cpu' $small run.backend=cuda
# pair NAME PATTERN COMMAND COMMAND: one line of error if the two ranks run these commands.
pair() {
    run_pair failing "$3" "$4"
    result "$1" "$(failed_otherwise 2 "$2" | tr '\n' ' ')" "$run_log"
}
mixed="'$vittrain' $small run.dir='$work/mixed'"
pair 'ranks with different options' 'rank 1 on .*: train.epochs=7, but 10 on rank 0: .*different opt' "$mixed" "$mixed train.epochs=7"
pair 'ranks with different commands' 'rank 1 on .*: the command is "train", on rank 0 "plan"' "'$vittrain' plan" "'$vittrain'"
if grep -q 'device: .* baseline' "$work/train.log"; then other=amx-emulated; else other=baseline; fi
pair 'ranks with different instructions' VITTRAIN_CPU "$mixed" "env VITTRAIN_CPU=$other $mixed"
cp "$vittrain" "$work/other-build" && printf x >>"$work/other-build"
pair 'ranks with different builds' 'rank 1 on .*: ranks run different builds of vittrain' "$mixed" "'$work/other-build' train.epoch=3"
fails 1 'a predictions file that cannot be written' 5 'no/p.csv' predict \
    "$work/second/checkpoints/last.h5" predict.output="$work/no/p.csv"
fails 2 'an unwritable run folder' 5 '/proc/none' $small run.dir=/proc/none
fails 1 'a deck that is not there' 2 'none.ini' none.ini
printf '[train] epochs = 3\n' >"$work/line.ini"
fails 1 'a key behind its section' 2 'line.ini:1: ' "$work/line.ini"
fails 1 'a layer of no width' 2 'model.mlp_ratio' $small model.mlp_ratio=0.01
fails 1 'fixed positions need a multiple of four' 2 'a multiple of 4, at least 8, not model.dim=6' $small \
    model.position=sincos model.dim=6 model.heads=2
fails 2 'more tokens than the attention supports' 2 '12545 tokens .*model.patch=2' $small augment.resize=224 model.patch=2
fails 1 'more classes than there is memory to count' 6 'classes' $small model.classes=500000 \
    debug.batches=1 run.dir="$work/classes"

# A pipe instead of a file is an error; the program does not wait for its content.
mkfifo "$work/pipe.ini" "$work/pipe.h5" "$work/pipe.safetensors"
fails 1 'a pipe for a deck' 2 'pipe.ini' "$work/pipe.ini"
fails 1 'a pipe for a checkpoint' 4 'pipe.h5' eval "$work/pipe.h5"
fails 1 'a pipe for weights' 4 'pipe.safetensors' eval "$work/pipe.safetensors" $small
mkdir "$work/piped"
cp "$TEST_BUILD"/data/cifar-10-sample/*.bin "$work/piped"
rm "$work/piped/test_batch.bin"
mkfifo "$work/piped/test_batch.bin"
fails 2 'a pipe for a data file' 3 'test_batch.bin' data.root="$work/piped"

# A command either writes its output completely, or reports an error and leaves the file unchanged.
best=$work/second/checkpoints/best.h5
cp "$work/p1.csv" "$work/kept.csv"
fails 3 'predictions on a full device' 5 ': rank 0 on [^ ]*: cannot write predict.output=/dev/full' predict \
    "$best" predict.output=/dev/full
(
    ulimit -f 4
    "$vittrain" predict "$best" predict.output="$work/kept.csv" 2>"$work/limit.log" </dev/null
)
status_check 'predictions beyond the limit on files' $? 5 "$work/limit.log"
bad=$(cmp "$work/p1.csv" "$work/kept.csv" 2>&1)$(ls "$work"/kept.csv.part 2>/dev/null)
result 'predictions that could not be written leave the older ones' "$bad"
for command in "eval $best" "predict $best" --help; do
    "$vittrain" $command >/dev/full 2>"$work/full.log" </dev/null
    status_check "standard output is full: ${command%% *}" $? 5 "$work/full.log"
done
"$vittrain" $small train.steps=2 run.dir="$work/closed" <&- >&- 2>&-
bad="$([ $? -eq 0 ] || echo "status $?")$(grep -L '^\[run\]' "$work/closed/deck.ini")"
bad="$bad$(cmp -n 6 "$work/run/metrics.csv" "$work/closed/metrics.csv" 2>&1)"
result 'a run without standard streams' "$bad"

run 1 profile $small train.steps=2 train.precision=bf16 debug.profile=on run.dir="$work/profile"
bad=
for operation in copy zero convert sum_squares update linear_backward; do
    grep -qE "^ +$operation +[0-9.]+ s " "$work/profile.log" || bad="$bad no $operation;"
done
grep -q 'warning: debug.profile: .*train at least 3 steps' "$work/profile.log" || bad="$bad no warning"
result 'a profile has a line for each operation that ran, and a warning for two steps' "$bad" "$work/profile.log"

ONEDNN_MAX_CPU_ISA=AVX2 run 1 limited $small train.steps=2 train.precision=bf16 run.dir="$work/limited"
result 'bf16 where oneDNN may not use its bf16 instructions' "$(ended)" "$run_log"

# A run that cannot be resumed is unchanged.
cp "$work/second/deck.ini" "$work/second.ini"
fails 2 'resuming with another model' 2 'model.depth was 2, is 3' $small train.epochs=2 model.depth=3 run.dir="$work/second"
result 'its deck is as it was' "$(cmp "$work/second.ini" "$work/second/deck.ini" 2>&1)"
run 1 further $small train.epochs=3 run.dir="$work/second"
first=$(ls "$work"/second/checkpoints/step-*.h5 | head -1)
fails 1 'going back in the folder of a run' 2 'step 75.*run.dir' $small train.epochs=3 \
    run.dir="$work/second" checkpoint.resume="$first"
run 1 aside $small train.epochs=2 run.dir="$work/aside" checkpoint.resume="$first"
bad=$(ended)
[ "$(grep -c ',epoch,' "$work/second/metrics.csv")" = 3 ] || bad="$bad; metrics.csv was cut"
result 'but aside of it' "$bad" "$work/aside.log"
bad=$(ls -d "$work"/runs/* "$work"/unwritten/checkpoints/step* 2>/dev/null | grep -v '/runs/logbook$')
result 'nothing was begun before a mistake was found' "$bad"
