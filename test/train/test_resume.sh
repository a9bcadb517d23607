#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# A run that is stopped and resumed on the same ranks continues bit for bit, also in the middle of an epoch;
# on other ranks, up to rounding. The output of all attempts reads as one run.
. "$TEST_SOURCE/test/support/program.sh"

steps="$small optim.ema=0.9 schedule.name=onecycle schedule.per=step output.tensorboard=off \
checkpoint.every=0 train.epochs=2"

# same NAME RUN REFERENCE: the final weights are equal, and the losses in metrics.csv.
same() {
    bad=
    [ $status -eq 0 ] || bad="exit status $status"
    [ -n "$bad" ] || bad=$(cmp "$work/$3/weights.safetensors" "$work/$2/weights.safetensors" 2>&1)
    for split in train val; do
        column "$work/$2/metrics.csv" $split loss >"$work/$2.$split"
        column "$work/$3/metrics.csv" $split loss >"$work/$3.$split"
        [ -n "$bad" ] || bad=$(differ "$work/$3.$split" "$work/$2.$split" "$4")
    done
    result "$1" "$bad" "$work/$2.log"
}

for ranks in 1 2; do
    run $ranks whole$ranks $steps run.dir="$work/whole$ranks"
    result "a run of two epochs on $ranks ranks" "$(ended)" "$work/whole$ranks.log"
    # Stopped by train.max_seconds in the middle of the second epoch, with a checkpoint per step.
    run $ranks part$ranks $steps run.dir="$work/part$ranks" checkpoint.every=0.1 checkpoint.keep=50
    for file in "$work/part$ranks"/checkpoints/step-*.h5; do
        case $file in
        *step-00000030.h5) ;;
        *) rm "$file" ;;
        esac
    done
    rm -f "$work/part$ranks/result.json" "$work/part$ranks/weights.safetensors"
    run $ranks part$ranks $steps run.dir="$work/part$ranks"
    result "the newest good checkpoint is found on $ranks ranks" "$(has "$work/part$ranks.log" 'resuming from .*step-00000030.h5')" "$work/part$ranks.log"
    same "resumed in the middle of an epoch on $ranks ranks, bit for bit" part$ranks whole$ranks 0
done
run 2 part1 $steps run.dir="$work/part1"
grep -q 'nothing to do' "$work/part1.log" && bad= || bad="no word of it"
grep -q 'resuming from .*: step [0-9]*, epoch 2$' "$work/part1.log" || bad="$bad; not epoch 2"
result 'a run that is over says so' "$bad" "$work/part1.log"
fails 2 'a changed option without a step left is an error' 2 \
    'part1: the run has ended at step 50 of 50, so optim.lr 0.003 -> 0.001 has no effect; raise train.epochs' \
    $steps run.dir="$work/part1" optim.lr=1e-3
automatic="$steps run.dir=$work/automatic train.precision=auto train.steps=2"
run 1 automatic $automatic
run 1 automatic $automatic train.loss_scale=128
grep -q 'nothing to do' "$work/automatic.log" && [ $status -eq 0 ] && bad= || bad="status $status"
result 'a run that is over accepts a loss scale that its precision does not use' "$bad" "$work/automatic.log"
cp -r "$work/part1" "$work/moved"
cp -r "$TEST_BUILD/data/cifar-10-sample" "$work/elsewhere"
run 2 moved $steps run.dir="$work/moved" data.root="$work/elsewhere"
grep -q 'nothing to do' "$work/moved.log" && [ $status -eq 0 ] && bad= || bad="status $status"
result 'a run that is over accepts the same data in another folder' "$bad" "$work/moved.log"
fails 1 'another model is an error' 2 'cannot resume from .*part1/checkpoints/.*: model.heads was 2, is 4; use another run.dir' \
    $steps run.dir="$work/part1" train.epochs=3 model.heads=4
fails 2 'another image size is an error' 2 "the model's images had 32x32 pixels, have 48x48; use another run.dir" \
    $steps run.dir="$work/part1" train.epochs=3 model.image=48
fails 1 'other weights at the start are an error' 2 'model.init was none, is .*weights.safetensors; use' \
    $steps run.dir="$work/part1" train.epochs=3 model.init="$work/whole1/weights.safetensors"
cp -r "$work/part1" "$work/recipe"
run 2 recipe $steps run.dir="$work/recipe" train.epochs=3 optim.lr=1e-3 output.log_every=2
bad=$(ended)
[ "$(grep '^changed' "$work/recipe.log")" = 'changed since the checkpoint: optim.lr 0.003 -> 0.001' ] || bad="$bad; other lines"
for line in 'train.epochs 2 -> 3' 'output.log_every 1 -> 2' 'optim.lr 0.003 -> 0.001'; do
    grep -q " changed since the checkpoint: $line\$" "$work/recipe/train.log" || bad="$bad; no $line in train.log"
done
result 'options that may change are logged one by one' "$bad" "$work/recipe.log"
bad=$(has "$work/recipe/deck.ini" '^lr = 0.001$')
tr -d ' \n' <"$work/recipe/result.json" | grep -q ',"train.epochs":\["2","3"\],"optim.lr":\["0.003","0.001"\],"output.log_every":\["1","2"\]}' ||
    bad="$bad; the changes are not recorded"
result 'result.json has the options that the attempt changed' "$bad" "$work/recipe/result.json"

# The newest checkpoint is damaged, and result.json is of its step.
last=$(readlink "$work/recipe/checkpoints/last.h5")
truncate -s 5000 "$work/recipe/checkpoints/$last"
cp "$work/recipe/metrics.csv" "$work/metrics"
fails 1 'rows of a finished result are not removed' 4 "recipe/result.json is of a run of 75 steps; restore a checkpoint" \
    $steps run.dir="$work/recipe" train.epochs=4 optim.lr=1e-3
bad=$(cmp "$work/metrics" "$work/recipe/metrics.csv" 2>&1)
sed -i 's/"finished": true/"finished": false/' "$work/recipe/result.json"
run 1 recipe $steps run.dir="$work/recipe" train.epochs=4 optim.lr=1e-3
[ $status -eq 0 ] || bad="$bad; status $status without a finished result"
result 'without that result the steps are repeated' "$bad" "$work/recipe.log"
rm "$work/part1/result.json" "$work/part1/weights.safetensors"
run 2 part1 $steps run.dir="$work/part1"
bad=$(cmp "$work/whole1/weights.safetensors" "$work/part1/weights.safetensors" 2>&1)
grep -q '"finished": true' "$work/part1/result.json" || bad="no result.json"
result 'a run that was killed before its results were written gets them' "$bad" "$work/part1.log"

# Version 0.2 wrote run.json, fewer columns and tables that are gone.
cp -r "$work/part1" "$work/format1"
printf '{"format": 1, "ranks": 1, "parts": [{"from_step": 0, "to_step": 50}]}' >"$work/format1/run.json"
printf '{"finished": true, "steps": 50, "ranks": 1, "top1": 0.5}' >"$work/format1/result.json"
grep -v ',epoch,' "$work/part1/metrics.csv" | cut -d, -f1-24 | tee "$work/rows" >"$work/format1/metrics.csv"
echo 'epoch,step,train_loss' | tee "$work/epochs" >"$work/format1/epochs.csv"
run 1 format1 $steps run.dir="$work/format1" train.steps=51
bad=$(ended)$(cmp "$work/epochs" "$work/format1/epochs.csv" 2>&1)
cut -d, -f1-24 "$work/format1/metrics.csv" | head -n "$(wc -l <"$work/rows")" | cmp - "$work/rows" || bad="$bad; rows are missing"
sed -n 2p "$work/format1/metrics.csv" | grep -q ',,,,,,,,,,,$' || bad="$bad; columns are missing"
grep -q '"format": 2' "$work/format1/result.json" && [ "$(grep -c '"from_step"' "$work/format1/result.json")" = 2 ] || bad="$bad; attempts are missing"
result 'a run of version 0.2 continues in format 2' "$bad" "$work/format1.log"

# Version 0.1 wrote both batches into deck.ini.
sed -i 's/^global_batch = 24$/batch = 64\n&/' "$work/part1/deck.ini"
run 2 part1 $steps run.dir="$work/part1" train.epochs=3
bad=$(grep '^changed since' "$work/part1.log")
run 1 whole3 $steps run.dir="$work/whole1" train.epochs=3
column "$work/part1/metrics.csv" train loss >"$work/a"
column "$work/whole1/metrics.csv" train loss >"$work/b"
result 'a run goes on for more epochs, on other ranks, up to rounding' \
    "$bad$(differ "$work/a" "$work/b" 1e-5)" "$work/part1.log"
if grep -q '^device: .*amx-emulated' "$work/whole3.log"; then other=baseline; else other=amx-emulated; fi
VITTRAIN_CPU=$other run 1 other $steps run.dir="$work/whole1" train.epochs=4
bad=$(ended)
grep -q "^algorithms of matrix products for .* do not apply to .*$other.*: results agree up to rounding" "$work/other.log" ||
    bad="$bad; the log does not report it"
grep -q '^algorithms of matrix products' "$work"/part*.log "$work/whole3.log" && bad="$bad; reported without a reason"
result 'a run that continues with other kernels reports that its bits differ' "$bad" "$work/other.log"
run 1 never $steps run.dir="$work/part1" checkpoint.resume=never
result 'checkpoint.resume=never does not touch a run that is there' \
    "$([ $status -ne 0 ] || echo "exit status 0")" "$work/never.log"

for file in "$work"/part1/checkpoints/step-*.h5; do
    truncate -s 5000 "$file"
done
run 2 damaged $steps run.dir="$work/part1" train.epochs=4
bad=
[ $status -eq 4 ] || bad="exit status $status"
grep -q 'ignored: .*it is truncated' "$work/damaged.log" || bad="$bad; no reason"
grep -q '^vittrain: error: cannot resume from .*part1.*: no valid checkpoint' "$work/damaged.log" || bad="$bad; no error"
result 'a run whose checkpoints are all damaged is not started over' "$bad" "$work/damaged.log"
run 2 clock $steps run.dir="$work/clock" train.global_batch=600 train.epochs=3 checkpoint.every_seconds=1e-9
bad=
for step in 1 2 3; do
    [ -e "$work/clock/checkpoints/step-0000000$step.h5" ] || bad="$bad no step $step;"
done
result 'checkpoints by the clock, also where an epoch is one step' "$bad" "$work/clock.log"

# The loader of one run continues through the epochs; that of the other restarts with each attempt.
short="$small debug.fraction=0.06 data.shuffle_block=16 data.drop_last=on train.accumulate=2 data.workers=3 \
augment.mixup=0.2 augment.rand_augment=2 output.tensorboard=off"
run 2 through $short run.dir="$work/through" train.epochs=3
for epochs in 1 2 3; do
    run 2 anew $short run.dir="$work/anew" train.epochs=$epochs
done
same 'three short epochs in one go and one by one, bit for bit' anew through 0

# Evaluations at the end of an attempt do not count for early stopping: the loss of step 3 is the lowest.
stops="$small debug.overfit=4 optim.lr=1e-2 checkpoint.monitor=loss train.early_stop=1 \
output.tensorboard=off"
run 1 straight $stops run.dir="$work/straight" train.epochs=9
run 1 parts $stops run.dir="$work/parts" train.epochs=9 train.max_seconds=0.0001
run 1 parts $stops run.dir="$work/parts" train.steps=3
grep -A2 '"best"' "$work/parts/result.json" >"$work/best"
run 1 parts $stops run.dir="$work/parts" train.epochs=9
run 1 other $stops run.dir="$work/other" train.epochs=2 checkpoint.monitor=top1
run 1 other $stops run.dir="$work/other" train.epochs=9
for name in straight parts other; do
    sed '/^ "attempts"/,$d' "$work/$name/result.json" | grep -A3 -E '"(best|stop_reason|steps)"' | grep -v seconds >"$work/$name.best"
done
bad=$(diff "$work/straight.best" "$work/parts.best")
grep -q 'no gain' "$work/straight.best" || bad="$bad; not stopped"
grep -q '"value": 2' "$work/best" || bad="$bad; no best at the end of a part"
result 'a run in parts has the best and stops where one without an end between does' "$bad" "$work/parts.log"
bad=$(diff "$work/straight.best" "$work/other.best")$(has "$run_log" 'monitor top1 -> loss: the best evaluation and the patience')
result 'with another checkpoint.monitor the best and the patience start over' "$bad" "$run_log"
# A deck with train.batch resumes with the global batch of its checkpoint, with mesh.elastic.
share="$steps train.global_batch=0 run.dir=$work/elastic"
run 4 elastic $share train.batch=6 checkpoint.every=0.1 checkpoint.keep=50
for file in "$work/elastic"/checkpoints/step-*.h5; do
    [ "$(basename "$file")" = step-00000030.h5 ] || rm "$file"
done
rm -f "$work/elastic/result.json"
fails 3 'on other ranks the batch of a rank is another global batch' 4 'train.global_batch=24, or mesh.elastic=yes' \
    $share train.batch=6
run 3 elastic $share train.batch=6 mesh.elastic=yes
grep -q 'up to 8 per rank in micro-batches of up to 4' "$work/elastic.log" && bad= || bad="no message about micro-batches"
result 'with mesh.elastic it is the checkpoint'"'"'s, and no micro-batch is larger than in the deck' "$bad" "$work/elastic.log"
for split in train val; do
    column "$work/elastic/metrics.csv" $split loss >"$work/elastic.$split"
    column "$work/whole2/metrics.csv" $split loss >"$work/whole2.$split"
    bad=$bad$(differ "$work/whole2.$split" "$work/elastic.$split" 1e-5)
done
[ $status -eq 0 ] || bad="$bad; status $status"
result 'the losses are those of an uninterrupted run' "$bad" "$work/elastic.log"

# An extension that fails keeps the results of the run before it.
tested="$small train.test=on run.dir=$work/tested"
run 1 tested $tested train.steps=3
run 1 fails $tested train.steps=6 optim.lr=1e30
bad=$([ $status -ne 0 ] || echo 'it did not fail;')
grep -q '^ "test": {' "$work/tested/result.json" && ! finished "$work/tested" || bad="$bad other results;"
run 1 tested $tested train.steps=6
bad="$bad$(ended)$(has "$work/tested/metrics.csv" ',3,test,' ',6,test,')"
result 'the test of a run that is extended stays' "$bad" "$work/tested.log"

# Steps that are added after the end stretch a cosine.
cosine="$small train.eval_every=0 schedule.name=cosine run.dir=$work/cosine"
run 1 cosine $cosine train.steps=6
run 1 stretched $cosine train.steps=12
result 'added steps raise the rate of a cosine, which is logged' "$(ended; has "$run_log" \
    'warning: the schedule ended at step 6 with the learning rate .*, so it continues with 0.0015')" "$run_log"
