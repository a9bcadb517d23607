#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# Models with outputs for each pixel (model.head=dense): the same bits on every layout, evaluation, and weights of a
# classifier as initial weights.
. "$TEST_SOURCE/test/support/program.sh"

mkdir data
"$TEST_BUILD/test/arrays/test_arrays" --make "$work/data/storms.h5"
data="data.format=arrays data.root=$work/data/storms.h5 data.x=/chw data.val=0.2 model.image=5 model.image_width=4 \
train.precision=fp32 train.global_batch=16 train.epochs=2 run.seed=3 run.threads=1 output.log_every=1 output.tensorboard=off \
output.receipt=1 train.exact=layout train.grain=8"
dense="$data data.y=/chw data.task=regression model.head=dense checkpoint.monitor=loss"
vit="model.name=vit_cifar model.dim=32 model.depth=2 model.heads=2 model.patch=1"
resnet="model.name=resnet18 model.width=4"

# layouts NAME OPTIONS: train on several layouts and compare with the first one.
layouts() {
    while read -r ranks words <&3; do
        name=$(echo "$1-$ranks-$words" | tr ' =' '--')
        run "$ranks" "$name" $2 run.dir="$work/$name" $words
        bad=$(ended)
        [ -n "$first" ] || first=$name
        bad="$bad$(cmp "$first/receipt.csv" "$name/receipt.csv" 2>&1; cmp "$first/weights.safetensors" "$name/weights.safetensors" 2>&1)"
        [ "$(wc -l <"$name/receipt.csv")" = 5 ] || bad="$bad; not 4 receipts"
        result "$1 on $ranks ranks, $words" "$bad" "$name.log"
    done
}

first=
layouts vit "$dense $vit" 3<<END
1 mesh.strategy=ddp
1 train.accumulate=2 train.checkpoint_activations=block run.threads=2
3 mesh.strategy=fsdp train.check_every=1
END
first=
layouts resnet "$dense $resnet" 3<<END
1 mesh.strategy=ddp
3 mesh.strategy=fsdp
END

synthetic="data.format=synthetic data.samples=64 data.classes=3 model.head=dense $vit model.patch=4 train.precision=fp32 \
train.epochs=1 train.global_batch=16 train.exact=layout train.grain=8 output.receipt=1 run.threads=1"
run 1 plan plan $synthetic
result 'a model is planned without data' "$(ended; has plan.log '^vit_cifar in fp32, 16 images per rank')" plan.log
first=
layouts synthetic "$synthetic" 3<<END
1 mesh.strategy=ddp
3 mesh.strategy=fsdp
END
run 1 classifier $data $vit data.y=/label run.dir="$work/classifier"
run 3 tuned $dense $vit model.init="$work/classifier/weights.safetensors" run.dir="$work/tuned"
bad=$(ended; has tuned.log 'dense.weight is missing there and .* here: it keeps its initial values' 'ignored, as this model has no such tensors: head.weight')
result 'training starts from the weights of a classifier' "$bad" tuned.log
for weights in weights.safetensors checkpoints/last.h5; do
    run 1 eval eval "tuned/$weights" data.format=arrays data.root="$work/data/storms.h5" data.x=/chw data.y=/chw \
        data.task=regression data.val=0.2 train.precision=fp32
    bad=$(ended; grep '"loss"' tuned/result.json | tail -1 | tr -d ' ,' >expected; grep '"loss"' eval.log | tr -d ' ,' >found
        diff expected found)
    result "eval opens the model of $weights" "$bad" eval.log
done
