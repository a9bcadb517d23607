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
    'recipe for images: plain')
[ "$(numbers one/weights.safetensors mean | tr , '\n' | wc -l)" -eq 40 ] || bad="$bad no 40 means"
result 'float32 values of 40 channels are normalised by their statistics' "$bad" one.log

run 3 three $exact run.dir="$work/three" mesh.strategy=fsdp data.workers=1
for name in one three; do cut -d, -f1-3 $name/receipt.csv >$name.rows; done
result 'statistics and steps have the same bits on 3 ranks' \
    "$(cmp one.rows three.rows 2>&1; cmp one/weights.safetensors three/weights.safetensors 2>&1)" three.log

interrupted one part 4
run 3 part $exact run.dir="$work/part"
bad=$(ended; has part.log 'resuming from .*: step 4'; grep 'statistics of' part.log; cmp one/weights.safetensors part/weights.safetensors 2>&1)
result 'a resumed run takes the statistics from the checkpoint' "$bad" part.log
run 1 verify verify "$work/three" verify.from=0
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
errors 3<<END
2|augment.mixup|$numbers
2|augment.rand_augment=2|$values augment.rand_augment=2
2|augment.noise=0.1|augment.noise=0.1
2|augment.rot90=on|$values model.image_width=10
2|augment.recipe=photos|$values augment.recipe=photos
2|model.channels=513|$values model.channels=513
END
