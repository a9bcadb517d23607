#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# Training on float32 values of many channels: statistics, layouts, resuming, replay, evaluation, and what is refused.
. "$TEST_SOURCE/test/support/program.sh"

values="data.format=synthetic data.values=float32 data.image=20 data.samples=90 data.classes=4 model.name=vit_cifar model.dim=32 \
model.depth=2 model.heads=2 model.patch=5 model.image=20 model.channels=40 train.precision=fp32 train.global_batch=24 train.epochs=2 run.seed=3 \
run.threads=1 output.log_every=1 output.tensorboard=off output.receipt=1 augment.flip=0.5 augment.translate=0.1 augment.mixup=0.2 \
augment.vflip=0.5 augment.rot90=on augment.roll=xy augment.noise=0.1 augment.channel_dropout=0.1"
exact="$values train.exact=layout train.grain=8 checkpoint.every=0.5 checkpoint.keep=20"

# numbers FILE KEY: a list in the metadata of weights.
numbers() { head -c 65536 "$1" | tr -d '\0\\' | grep -ao "\"$2\":\"\[[^]]*" | head -n 1; }

run 1 one $exact run.dir="$work/one"
bad=$(ended; has one.log 'statistics of 90 training samples .* \(40 channels\)' 'missing values: [0-9]* of 1440000 \(0.39' \
    'recipe for images: plain .*rotation by 90 degrees, roll, translation, noise, channel dropout')
[ "$(numbers one/weights.safetensors mean | tr , '\n' | wc -l)" -eq 40 ] || bad="$bad no 40 means"
result 'float32 values of 40 channels are normalised by their statistics' "$bad" one.log

run 2 two $exact run.dir="$work/two"
run 3 three $exact run.dir="$work/three" mesh.strategy=fsdp data.workers=1
bad=
for name in two three; do
    cut -d, -f1-3 one/receipt.csv >a
    cut -d, -f1-3 $name/receipt.csv >b
    cmp a b >differ.log 2>&1 || bad="$bad receipts of $name;"
    cmp one/weights.safetensors $name/weights.safetensors >>differ.log 2>&1 || bad="$bad weights of $name;"
done
result 'statistics and steps have the same bits on 1, 2 and 3 ranks' "$bad" differ.log

cp -r one part
rm -f part/result.json part/checkpoints/step-0000000[68].h5
run 2 part $exact run.dir="$work/part"
bad=$(ended; has part.log 'resuming from .*: step 4')
grep -q 'statistics of' part.log && bad="$bad computed again"
cmp one/weights.safetensors part/weights.safetensors >differ.log 2>&1 || bad="$bad other weights"
result 'a resumed run takes the statistics from the checkpoint' "$bad" part.log
run 2 verify verify "$work/two" verify.from=0
result 'verify replays the run' "$(ended; has verify.log identical)" verify.log

run 1 eval eval "$work/one/weights.safetensors" $values
run 1 deck eval "$work/one/checkpoints/last.h5"
grep '^test: ' eval.log >a
grep '^test: ' deck.log >b
sed -n 's/^final: loss \([0-9.]*\),.*/\1/p' one.log >loss
bad=$(cmp a b 2>&1)
[ "$(awk '{ printf "%.4f", $3 }' a)" = "$(cat loss)" ] || bad="$bad another loss than $(cat loss)"
result 'eval uses the statistics in the metadata' "$bad" deck.log
run 1 predict predict "$work/one/checkpoints/last.h5" predict.output="$work/predicted.csv"
bad=$(ended)
[ "$(wc -l <predicted.csv)" -eq 24 ] || bad="$bad $(wc -l <predicted.csv) lines"
result 'predict writes the classes' "$bad" predict.log

run 1 resized $values run.dir="$work/resized" model.image=15 augment.resize=18 augment.crop=random augment.crop_pad=2 train.epochs=1
result 'values are resized and cropped' "$(ended)" resized.log
run 1 plain $values run.dir="$work/plain" augment.mean=10 augment.std=30 train.epochs=1
bad=$(ended)
grep -q 'statistics of' plain.log && bad="$bad statistics"
result 'augment.mean and augment.std replace the statistics' "$bad" plain.log
run 1 wide $values model.channels=512 model.depth=1 train.steps=1 run.dir="$work/wide"
result '512 channels are trained on' "$(ended; has wide.log '512 channels')" wide.log

numbers="$(echo "$values" | sed 's/data.image=20//; s/data.classes=4//') data.task=regression checkpoint.monitor=loss"
run 1 numbers $numbers augment.mixup=0 run.dir="$work/numbers"
run 1 error eval "$work/numbers/weights.safetensors" $numbers augment.mixup=0
result 'a ViT predicts a number from float32 values' "$(has numbers.log 'final: loss 0\.'; has error.log '^test: loss 0\.')" numbers.log
fails 1 'Mixup of numbers is refused' 2 'augment.mixup and augment.cutmix mix single labels' $numbers
fails 1 'RandAugment is refused' 2 'augment.rand_augment=2 changes the colors of photographs' $values augment.rand_augment=2
fails 1 'noise on uint8 is refused' 2 'augment.noise=0.1 does not apply with data.values=uint8' augment.noise=0.1
fails 1 'turns of images that are not square are refused' 2 'augment.rot90=on needs square images' $values model.image_width=10
fails 1 'and the recipe of photographs' 2 'augment.recipe=photos is for image files' $values augment.recipe=photos
fails 1 'one channel more is refused' 2 'model.channels=513: must be' $values model.channels=513
