#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# With Mixup, CutMix, RandAugment and colour jitter, an odd global batch and a short last one, the losses are those of
# one rank and one thread on any number of ranks and threads, with micro-batches, and on an emulated GPU that replays
# recorded steps.
. "$TEST_SOURCE/test/support/program.sh"

# 80 samples: three batches of 23 and one of 11 per epoch.
steps="$small debug.fraction=0.04 train.global_batch=23 train.steps=9 train.label_smoothing=0.1 data.val=none \
augment.mixup=0.4 augment.cutmix=1 augment.rand_augment=2 augment.brightness=0.4 augment.hue=0.1 augment.three_augment=on \
output.tensorboard=off debug.check_weights=1"

# same NAME RUN TOLERANCE [REFERENCE]: the losses equal those of one rank, or of another run.
same() { result "$1" "$(ended; differ "${4:-one}.loss" "$2.loss" "$3")" "$2.log"; }

train 1 one
[ "$(wc -l <"$work/one.loss")" = 9 ] && bad= || bad="not 9 rows"
result 'one rank trains' "$bad" "$work/one.log"
train 3 ranks3 data.workers=3
same 'losses on 3 ranks' ranks3 1e-5
train 4 pieces train.accumulate=3 mesh.strategy=zero2
same 'losses on 4 ranks, in micro-batches' pieces 1e-5
for change in 'augment.mixup=0 augment.cutmix=0' augment.cutmix=0 \
    'augment.three_augment=off augment.rand_augment=0 augment.brightness=0 augment.hue=0'; do
    train 1 other $change
    result "$change: other losses" "$(ended; [ -n "$(differ one.loss other.loss 1e-3)" ] || echo 'the same losses')" other.log
    rm -r other
done
train 1 binary train.loss=bce
train 1 binary_sum train.loss=bce_sum
bad=$(awk 'NR == FNR { one[FNR] = $NF; next } FNR == 1 { ratio = $NF / one[FNR] } END { if (ratio < 9 || ratio > 11) print ratio }' \
    "$work/binary.loss" "$work/binary_sum.loss")
result 'binary cross-entropy: the first loss is the mean, or the sum, over 10 classes' "$bad"
train 3 binary3 train.loss=bce
same 'binary cross-entropy on 3 ranks' binary3 1e-5 binary
train 1 repeated augment.repeat=3
bad=$([ -n "$(differ one.loss repeated.loss 1e-3)" ] || echo 'the same losses')
result 'with repeated augmentation the losses are others' "$bad"
train 3 repeated3 augment.repeat=3 train.accumulate=2
same 'repeated augmentation on 3 ranks' repeated3 1e-5 repeated
errors 3<<END
2|train.loss=bce|model.name=linear data.format=synthetic data.task=regression train.loss=bce
2|augment.mixup=0.2|model.name=linear data.format=synthetic data.task=regression augment.mixup=0.2
2|20 channels|model.channels=20 data.format=synthetic augment.hue=0.1
END

if [ -e "$TEST_BUILD/test/emulated-cuda.so" ]; then
    export VITTRAIN_CUDA_MODULE="$TEST_BUILD/test/emulated-cuda.so"
    steps="$steps model.patch=16 model.depth=1 train.global_batch=7 train.steps=5 debug.fraction=0.02"
    train 1 host
    train 1 gpu run.backend=cuda
    same 'losses on an emulated GPU' gpu 1e-4 host
else
    result 'losses on an emulated GPU # SKIP no g++ for the emulated GPU' ''
fi
