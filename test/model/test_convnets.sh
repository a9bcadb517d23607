#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# Models with batch norm and every strategy: with synchronised statistics the losses of 50 steps, and of the
# evaluation with running statistics, equal those of one rank; a run resumes bit for bit; weights are
# exported and imported. Options that do not apply to a model are errors.
. "$TEST_SOURCE/test/support/program.sh"

# With usual learning rates a perturbation of the random initial weights by 1e-8 doubles with each step, in
# PyTorch as well. With this rate it does not grow, and gradients that are wrong by 1 % are detected.
# The last batch of an epoch has 2 samples: some ranks and micro-batches are empty.
norms="model.name=cnn_b model.width=8 model.image=16 data.format=cifar10 debug.fraction=0.05 \
train.precision=fp32 train.global_batch=14 train.steps=32 output.log_every=1 run.seed=7 run.threads=1 \
optim.name=sgd optim.lr=3e-6 optim.momentum=0.9 output.tensorboard=off checkpoint.every=0"

# train RANKS NAME WORD...
train() {
    ranks=$1 name=$2
    shift 2
    run "$ranks" "$name" $norms debug.check_weights=1 run.dir="$work/$name" "$@"
    losses_of "$name"
}

train 1 one
while read -r ranks words <&3; do
    train "$ranks" mesh $words
    compare "$words on $ranks ranks" mesh one 1e-6
    rm -r mesh
done 3<<END
3 mesh.strategy=ddp
4 mesh.strategy=zero2
3 mesh.strategy=fsdp
4 mesh.strategy=hsdp mesh.shard=2
END
train 3 pieces train.accumulate=3
train 3 pieces-fsdp train.accumulate=3 mesh.strategy=fsdp
compare 'pieces of batches, by another strategy' pieces-fsdp pieces 1e-6

train 3 local model.sync_bn=off
bad=$([ -n "$(differ one.loss local.loss 1e-4)" ] || echo 'the same losses as one rank')
[ "$(grep -c 'samples of one rank only' local.log)" = 1 ] || bad="$bad; not logged once"
result 'statistics of each rank alone' "$bad" local.log

# Running statistics are stored in checkpoints, in the EMA and in weights. 8 steps are an epoch.
more="optim.ema=0.9 train.clip_norm=0.1 optim.lr=1e-2 train.steps=8 checkpoint.every=0.625"
train 3 whole $more
interrupted whole part 5
train 3 part $more
compare 'an interrupted run resumes bit for bit' part whole 0
result 'also its weights' "$(has part.log 'resuming from'; cmp whole/weights.safetensors part/weights.safetensors 2>&1)" part.log
for file in checkpoints/last.h5 weights.safetensors; do
    run 1 eval eval whole/$file $norms predict.split=test
    grep '"loss"' eval.log >"$(basename $file).eval"
done
bad=$(ended; cmp last.h5.eval weights.safetensors.eval 2>&1)
grep -qa '"layer2.0.shortcut.1.running_var"' whole/weights.safetensors || bad="$bad; no name"
result 'weights have running statistics' "$bad" eval.log
for precision in fp16 bf16; do
    train 3 $precision train.precision=$precision mesh.reduce=compute train.clip_norm=1
    compare "$precision, gradients added in it" $precision one 3e-2
done

numbers="model.name=linear data.format=synthetic data.task=regression data.samples=2048 train.batch=16 \
optim.name=sgd optim.lr=0.01 optim.weight_decay=0 train.epochs=4 augment.flip=0 augment.rotate=0 \
augment.translate=0 augment.erase=0 train.precision=fp32 output.log_every=1"
run 3 numbers $numbers checkpoint.monitor=loss run.dir="$work/numbers"
bad=$(ended)
# The targets are uniform with a variance of 1/12 and do not depend on the inputs.
column "$work/numbers/metrics.csv" val loss |
    awk '{ last = $2 } NR == 1 { first = $2 } END { exit !(last < first && last > 0.07 && last < 0.11) }' ||
    bad="$bad; it does not learn"
column "$work/numbers/metrics.csv" val top1 | grep -q '[0-9] [0-9]' && bad="$bad; numbers have a top1"
grep -q '"top1": null' "$work/numbers/result.json" || bad="$bad; result.json"
result 'a regression' "$bad" "$work/numbers.log"
# Each better evaluation writes a checkpoint, besides checkpoint.every; checkpoint.monitor=none turns that off.
run 1 toy "$TEST_SOURCE/input/linear.ini" checkpoint.keep=100 train.test=on output.tensorboard=off run.dir="$work/toy"
bad=$(ended)
steps=$(cd "$work/toy/checkpoints" && echo step-*.h5)
[ "$steps" = "step-00000640.h5 step-00001280.h5 step-00001920.h5 step-00002560.h5 step-00003200.h5" ] || bad="$bad; $steps"
[ ! -e "$work/toy/checkpoints/best.h5" ] || bad="$bad; best.h5"
grep -A1 '"monitor": "none"' "$work/toy/result.json" | grep -q '"value": null' || bad="$bad; a best value"
grep -q '"weights": "last"' "$work/toy/result.json" || bad="$bad; tested with other weights"
run 1 toy_best "$TEST_SOURCE/input/linear.ini" checkpoint.keep=100 checkpoint.monitor=loss train.epochs=12 \
    output.tensorboard=off run.dir="$work/toy_best"
[ "$(ls "$work"/toy_best/checkpoints/step-*.h5 | wc -l)" -gt 2 ] && [ -e "$work/toy_best/checkpoints/best.h5" ] ||
    bad="$bad; no best checkpoints with checkpoint.monitor=loss"
result 'the toy deck writes a checkpoint every ten epochs only' "$bad" "$work/toy.log"
errors 3<<END
2|checkpoint.monitor=top1|$numbers checkpoint.monitor=top1
2|data.task|$numbers checkpoint.monitor=loss data.task=classes model.channels=3 data.image=1
2|model.patch=4|model.name=cnn_a model.patch=4
2|model.width=4|model.width=4
2|model.sync_bn=on|model.sync_bn=on
2|checkpoint_activations|model.name=cnn_b train.checkpoint_activations=block
2|8 x 8 .*cnn_a|model.name=cnn_a model.image=8
END
