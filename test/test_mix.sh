#!/bin/sh
# Mixed samples: with mixup and CutMix, an odd global batch and a short last one the losses are those
# of one rank on any number of ranks, in micro-batches and on an emulated GPU whose steps are recorded.
. "$TEST_SOURCE/test/program.sh"

# 80 samples: three batches of 23 and one of 11 an epoch.
steps="$small debug.fraction=0.02 train.global_batch=23 train.steps=9 train.label_smoothing=0.1 data.val=none \
augment.mixup=0.4 augment.cutmix=1 augment.mix_switch=0.6 output.tensorboard=off debug.check_weights=1"

# train RANKS NAME WORD...
train() {
    ranks=$1 name=$2
    shift 2
    run "$ranks" "$name" $steps run.dir="$work/$name" "$@"
    [ $status -eq 0 ] || return
    column "$work/$name/metrics.csv" train loss >"$work/$name.loss"
}

# same NAME RUN TOLERANCE: as on one rank.
same() {
    bad=
    [ $status -eq 0 ] || bad="exit status $status"
    [ -n "$bad" ] || bad=$(differ "$work/one.loss" "$work/$2.loss" "$3")
    result "$1" "$bad" "$work/$2.log"
}

echo 1..9
train 1 one
[ "$(wc -l <"$work/one.loss")" = 9 ] && bad= || bad="not 9 rows"
result 'one rank trains' "$bad" "$work/one.log"
for ranks in 2 3 4; do
    train $ranks "ranks$ranks"
    same "losses on $ranks ranks" "ranks$ranks" 1e-5
done
train 2 pieces train.accumulate=3 mesh.strategy=zero2
same 'losses in micro-batches' pieces 1e-5
train 1 plain augment.mixup=0 augment.cutmix=0
bad=$([ -n "$(differ "$work/one.loss" "$work/plain.loss" 1e-3)" ] || echo 'the same losses')
result 'without mixing the losses are others' "$bad"
train 1 switched augment.mix_switch=0
bad=$([ -n "$(differ "$work/one.loss" "$work/switched.loss" 1e-3)" ] || echo 'the same losses')
result 'with mixup alone, too' "$bad"
fails 1 'regression mixes nothing' 2 'augment.mixup and augment.cutmix mix classes' \
    model.name=linear data.format=synthetic data.task=regression augment.mixup=0.2 run.dir="$work/linear"
if [ -e "$TEST_BUILD/test/emulated-cuda.so" ]; then
    VITTRAIN_CUDA_MODULE=$TEST_BUILD/test/emulated-cuda.so
    export VITTRAIN_CUDA_MODULE
    train 1 gpu run.backend=cuda train.global_batch=23 model.depth=2
    same 'losses on an emulated GPU' gpu 1e-4
else
    echo 'ok 9 - losses on an emulated GPU # SKIP no C++ compiler'
fi
