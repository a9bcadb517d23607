#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# A run that is stopped and resumed on the same ranks continues bit for bit, also in the middle of an epoch;
# on other ranks, up to rounding. The output of all attempts reads as one run.
. "$TEST_SOURCE/test/support/program.sh"

steps="$small optim.ema=0.9 schedule.name=onecycle schedule.per=step output.tensorboard=off \
checkpoint.every=0 train.epochs=2"

# same NAME RUN REFERENCE TOLERANCE: the losses in metrics.csv are equal, and with a tolerance of 0 the final weights.
same() {
    losses_of "$2"
    losses_of "$3"
    bad=$(ended; differ "$3.loss" "$2.loss" "$4"; differ "$3.val" "$2.val" "$4"
        [ "$4" != 0 ] || cmp "$3/weights.safetensors" "$2/weights.safetensors" 2>&1)
    result "$1" "$bad" "$2.log"
}

run 3 whole $steps run.dir="$work/whole"
run 3 source $steps run.dir="$work/source" checkpoint.every=0.1 checkpoint.keep=50
interrupted source part3 30
cp -r part3 part1
cp -r part3 older
for ranks in 3 1; do
    run $ranks part$ranks $steps run.dir="$work/part$ranks"
    result "the newest good checkpoint is found on $ranks ranks" "$(has part$ranks.log 'resuming from .*step-00000030.h5')" part$ranks.log
done
same 'resumed on one rank in the middle of an epoch, up to rounding' part1 whole 1e-5
run 3 part3 $steps run.dir="$work/part3"
same 'resumed on three ranks, bit for bit' part3 whole 0
bad=$("$TEST_BUILD/test/checkpoint/older_format" older/checkpoints/step-00000030.h5 || echo 'older_format failed;')
run 3 older $steps run.dir="$work/older" train.checkpoint_activations=block
bad=$bad$(has older.log 'resuming from .*step-00000030.h5' 'step-00000030.h5 is of format 2, which does not describe the data')
result 'a checkpoint of format 2 is resumed with a warning' "$bad" older.log
same 'a checkpoint of format 2, now with recomputed activations, bit for bit' older whole 0
result 'a run that is over is not trained again' "$(has part3.log 'nothing to do' 'resuming from .*: step [0-9]*, epoch 2$')" part3.log
cp -r part1 moved
cp -r "$TEST_BUILD/data/cifar-10-sample" elsewhere
run 1 moved $steps run.dir="$work/moved" data.root="$work/elsewhere" optim.lr=1e-3
result 'a run that is over accepts the same data in another folder' \
    "$(ended; has moved.log 'changed since the checkpoint: optim.lr' 'nothing to do.*other changed options have no effect')" moved.log
errors $steps run.dir="$work/part1" 3<<END
2|part1.*model.heads.*run.dir|train.epochs=3 model.heads=4
2|data.image.0. was 32, is 48.*run.dir|train.epochs=3 model.image=48
2|model.init|train.epochs=3 model.init=$work/whole/weights.safetensors
2|part1|checkpoint.resume=never
END
cp -r part1 recipe
run 1 recipe $steps run.dir="$work/recipe" train.epochs=3 optim.lr=1e-3 output.log_every=2
bad=$(ended; has recipe.log '^changed since the checkpoint: optim.lr 0.003 -> 0.001$'; has recipe/train.log 'train.epochs 2 -> 3$' \
    'output.log_every 1 -> 2$' 'optim.lr 0.003 -> 0.001$'; has recipe/deck.ini '^lr = 0.001$')
tr -d ' \n' <recipe/result.json | grep -q ',"train.epochs":\["2","3"\],"optim.lr":\["0.003","0.001"\],"output.log_every":\["1","2"\]}' ||
    bad="$bad the changes are not recorded"
result 'options that may change are logged and recorded one by one' "$bad" recipe.log

# The newest checkpoint is damaged, and result.json is of its step.
last=$(readlink "$work/recipe/checkpoints/last.h5")
truncate -s 5000 "$work/recipe/checkpoints/$last"
cp "$work/recipe/metrics.csv" "$work/metrics"
fails 1 'rows of a finished result are not removed' 4 recipe/result.json \
    $steps run.dir="$work/recipe" train.epochs=4 optim.lr=1e-3
bad=$(cmp "$work/metrics" "$work/recipe/metrics.csv" 2>&1)
sed -i 's/"finished": true/"finished": false/' "$work/recipe/result.json"
run 1 recipe $steps run.dir="$work/recipe" train.epochs=4 optim.lr=1e-3
[ $status -eq 0 ] || bad="$bad; status $status without a finished result"
result 'without that result the steps are repeated' "$bad" "$work/recipe.log"
mv part1/weights.safetensors weights
rm part1/result.json
run 1 part1 $steps run.dir="$work/part1"
result 'a run that was killed before its results were written gets them' \
    "$(cmp weights part1/weights.safetensors 2>&1; finished part1 || echo 'no result.json')" part1.log

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
run 1 part1 $steps run.dir="$work/part1" train.epochs=3
result 'both batches in the deck of version 0.1 are no change' "$(ended; grep '^changed since' part1.log)" part1.log
if grep -q '^device: .*amx-emulated' "$work/part1.log"; then other=baseline; else other=amx-emulated; fi
VITTRAIN_CPU=$other run 1 other $steps run.dir="$work/part1" train.epochs=4
bad=$(ended)
grep -q "^algorithms of matrix products for .* do not apply to .*$other.*: results agree up to rounding" "$work/other.log" ||
    bad="$bad; the log does not report it"
grep -q '^algorithms of matrix products' "$work"/part*.log && bad="$bad; reported without a reason"
result 'a run that continues with other kernels reports that its bits differ' "$bad" "$work/other.log"

for file in part1/checkpoints/step-*.h5; do truncate -s 5000 "$file"; done
fails 1 'a run whose checkpoints are all damaged is not started over' 4 'part1.*no valid checkpoint' $steps run.dir="$work/part1" train.epochs=5
result 'the log has the reason' "$(has "$run_log" 'ignored: .*truncated')" "$run_log"
run 1 clock $steps run.dir="$work/clock" train.global_batch=600 train.epochs=3 checkpoint.every_seconds=1e-9
bad=
for step in 1 2 3; do
    [ -e "$work/clock/checkpoints/step-0000000$step.h5" ] || bad="$bad no step $step;"
done
result 'checkpoints by the clock, also where an epoch is one step' "$bad" "$work/clock.log"

# The loader of one run continues through the epochs; that of the other restarts with each attempt.
short="$small debug.fraction=0.06 data.drop_last=on train.accumulate=2 data.workers=3 \
augment.mixup=0.2 augment.rand_augment=2 output.tensorboard=off"
run 3 through $short run.dir="$work/through" train.epochs=3
for epochs in 1 3; do
    run 3 anew $short run.dir="$work/anew" train.epochs=$epochs
done
same 'short epochs in one go and in two attempts, bit for bit' anew through 0

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
bad=$(diff "$work/straight.best" "$work/other.best")$(has "$run_log" 'another checkpoint.monitor the best evaluation and the patience')
result 'with another checkpoint.monitor the best and the patience start over' "$bad" "$run_log"
# A deck with train.batch resumes with the global batch of its checkpoint, with mesh.elastic.
share="$steps train.global_batch=0 train.batch=6 run.dir=$work/elastic"
run 4 elastic $share checkpoint.every=0.1 checkpoint.keep=50
mv elastic source4
interrupted source4 elastic 30
fails 3 'on other ranks the batch of a rank is another global batch' 4 'train.global_batch=24, or mesh.elastic=yes' $share
run 3 elastic $share mesh.elastic=yes
result 'with mesh.elastic no micro-batch is larger than in the deck' "$(has elastic.log 'up to 8 per rank in micro-batches of up to 4')" elastic.log
same 'and the losses are those of an uninterrupted run' elastic source4 1e-5
# An extension that fails keeps the results of the run before it.
tested="$small train.test=on run.dir=$work/tested"
run 1 tested $tested train.steps=3
run 1 fails $tested train.steps=6 optim.lr=1e30
bad=$(ended 7)
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
