#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# Models with batch norm and every strategy: with synchronised statistics the losses of 50 steps, and of the
# evaluation with running statistics, equal those of one rank; a run resumes bit for bit; weights are
# exported and imported. Options that do not apply to a model are errors.
. "$TEST_SOURCE/test/support/program.sh"

# With usual learning rates a perturbation of the random initial weights by 1e-8 doubles with each step, in
# PyTorch as well. With this rate it does not grow, and gradients that are wrong by 1 % are detected.
norms="model.name=cnn_b model.width=8 model.image=16 data.format=cifar10 debug.fraction=0.3 \
train.precision=fp32 train.global_batch=28 train.steps=50 output.log_every=1 run.seed=7 run.threads=1 \
optim.name=sgd optim.lr=3e-6 optim.momentum=0.9 output.tensorboard=off checkpoint.every=0"

# train RANKS NAME WORD...
train() {
    ranks=$1 name=$2
    shift 2
    run "$ranks" "$name" $norms debug.check_weights=1 run.dir="$work/$name" "$@"
    losses_of "$name"
}

train 1 one
compare 'one rank trains' one one 0
while read -r strategy ranks shard <&3; do
    train "$ranks" "$strategy-$ranks" mesh.strategy=$strategy mesh.shard=$shard
    compare "$strategy on $ranks ranks" "$strategy-$ranks" one 1e-6
done 3<<END
ddp 3 0
zero1 2 0
zero2 3 0
fsdp 3 0
hsdp 4 2
END
# The last batch of the epoch has 2 samples: some ranks and micro-batches are empty.
train 1 few train.global_batch=14 debug.fraction=0.05 train.steps=16
train 4 few-4 train.global_batch=14 debug.fraction=0.05 train.steps=16 mesh.strategy=fsdp
compare 'ranks without samples' few-4 few 1e-6
train 2 pieces train.accumulate=3 train.global_batch=14 debug.fraction=0.05 train.steps=16
train 2 pieces-fsdp train.accumulate=3 train.global_batch=14 debug.fraction=0.05 train.steps=16 mesh.strategy=fsdp
compare 'pieces of batches, by another strategy' pieces-fsdp pieces 1e-6

train 2 local model.sync_bn=off
bad=$([ -n "$(differ "$work/one.loss" "$work/local.loss" 1e-4)" ] || echo 'the same losses as one rank')
[ "$(grep -c 'samples of one rank only' "$work/local.log")" = 1 ] || bad="$bad; not logged once"
result 'statistics of each rank alone' "$bad" "$work/local.log"
train 1 alone model.sync_bn=off
compare 'one rank alone has all samples' alone one 0
! grep -q 'own rank only' "$work/alone.log" && bad= || bad='it is said'
result 'and need not be told' "$bad" "$work/alone.log"

# Running statistics are stored in checkpoints, in the EMA and in weights.
more="optim.ema=0.9 train.clip_norm=0.1 optim.lr=1e-2"
train 2 whole $more train.steps=8
train 2 parts $more train.steps=5 mesh.strategy=ddp
train 2 parts $more train.steps=8
tail -n 3 "$work/whole.loss" >"$work/a"
tail -n 3 "$work/parts.loss" >"$work/b"
bad=$(differ "$work/a" "$work/b" 0)
[ -n "$bad" ] || bad=$(tail -n 1 "$work/whole.val" >"$work/a"; tail -n 1 "$work/parts.val" >"$work/b"
    differ "$work/a" "$work/b" 0)
grep -q 'resuming from' "$work/parts.log" || bad="$bad; not resumed"
result 'a run goes on bit for bit' "$bad" "$work/parts.log"
bad=
for file in checkpoints/last.h5 weights.safetensors; do
    run 2 eval eval "$work/whole/$file" $norms predict.split=test
    grep '"loss"' "$work/eval.log" >"$work/$(basename $file).eval"
done
cmp -s "$work/last.h5.eval" "$work/weights.safetensors.eval" || bad='other losses'
[ -s "$work/last.h5.eval" ] || bad='no loss'
grep -qa '"layer2.0.shortcut.1.running_var"' "$work/whole/weights.safetensors" || bad="$bad; no name"
result 'weights have running statistics' "$bad" "$work/eval.log"
for precision in fp16 bf16; do
    train 2 $precision train.precision=$precision mesh.reduce=compute train.clip_norm=1 train.steps=20
    head -n 20 "$work/one.loss" >"$work/b"
    result "$precision, gradients added in it" "$(differ "$work/b" "$work/$precision.loss" 3e-2)" "$work/$precision.log"
done

numbers="model.name=linear data.format=synthetic data.task=regression data.samples=2048 train.batch=16 \
optim.name=sgd optim.lr=0.01 optim.weight_decay=0 train.epochs=4 augment.flip=0 augment.rotate=0 \
augment.translate=0 augment.erase=0 train.precision=fp32 output.log_every=1"
run 2 numbers $numbers checkpoint.monitor=loss run.dir="$work/numbers"
bad=$(ended)
# The targets are uniform with a variance of 1/12 and do not depend on the inputs.
column "$work/numbers/metrics.csv" val loss |
    awk '{ last = $2 } NR == 1 { first = $2 } END { exit !(last < first && last > 0.07 && last < 0.11) }' ||
    bad="$bad; it does not learn"
column "$work/numbers/metrics.csv" val top1 | grep -q '[0-9] [0-9]' && bad="$bad; numbers have a top1"
grep -q '"top1": null' "$work/numbers/result.json" || bad="$bad; result.json"
result 'a regression' "$bad" "$work/numbers.log"
fails 1 'the best of a regression is that of its loss' 2 'checkpoint.monitor=top1 is not a metric of a regression' $numbers checkpoint.monitor=top1
# Each better evaluation writes a checkpoint, besides checkpoint.every; checkpoint.monitor=none turns that off.
run 1 toy "$TEST_SOURCE/input/linear.ini" checkpoint.keep=100 train.test=on output.tensorboard=off run.dir="$work/toy"
bad=$(ended)
steps=$(cd "$work/toy/checkpoints" && echo step-*.h5)
[ "$steps" = "step-00000640.h5 step-00001280.h5 step-00001920.h5 step-00002560.h5 step-00003200.h5" ] || bad="$bad; $steps"
[ ! -e "$work/toy/checkpoints/best.h5" ] || bad="$bad; best.h5"
grep -A1 '"monitor": "none"' "$work/toy/result.json" | grep -q '"value": null' || bad="$bad; a best value"
grep -q '"weights": "last"' "$work/toy/result.json" || bad="$bad; tested with other weights"
rm "$work/toy/result.json" "$work/toy/weights.safetensors" "$work"/toy/checkpoints/step-00003200.h5
run 1 toy "$TEST_SOURCE/input/linear.ini" checkpoint.keep=100 train.test=on output.tensorboard=off run.dir="$work/toy"
grep -q 'resuming from .*step-00002560.h5' "$work/toy.log" && grep -q '"steps": 3200' "$work/toy/result.json" ||
    bad="$bad; it does not resume"
run 1 toy_best "$TEST_SOURCE/input/linear.ini" checkpoint.keep=100 checkpoint.monitor=loss train.epochs=12 \
    output.tensorboard=off run.dir="$work/toy_best"
[ "$(ls "$work"/toy_best/checkpoints/step-*.h5 | wc -l)" -gt 2 ] && [ -e "$work/toy_best/checkpoints/best.h5" ] ||
    bad="$bad; no best checkpoints with checkpoint.monitor=loss"
result 'the toy deck writes a checkpoint every ten epochs only' "$bad" "$work/toy.log"
run 1 predict predict "$work/numbers/checkpoints/last.h5"
bad=$(ended; has predict.log '^record,target,y0$'; has predict.log '^0,0\.[0-9]*,0\.[0-9]*$')
result 'predict of a regression writes numbers' "$bad" "$work/predict.log"
fails 1 'a regression of classes' 2 'data.task' $numbers checkpoint.monitor=loss data.task=classes \
    model.channels=3 data.image=1
fails 1 'patches of a convolutional model' 2 'model.patch=4 does not apply with model.name=cnn_a' model.name=cnn_a model.patch=4
fails 1 'a width of a ViT' 2 'model.width=4 does not apply with model.name=vit_cifar' model.width=4
fails 1 'batch norm of a ViT' 2 'model.sync_bn=on does not apply' model.sync_bn=on
fails 1 'activations computed anew' 2 'checkpoint_activations' model.name=cnn_b train.checkpoint_activations=block
fails 1 'an image that leaves nothing' 2 '8 x 8 pixels are too small for cnn_a' model.name=cnn_a model.image=8
