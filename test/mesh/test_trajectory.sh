#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# fast
# The losses of 50 training steps equal PyTorch's (test/vectors/make_trajectory.py) to 1e-5, with every strategy, also if the last
# batch of an epoch has fewer samples than there are ranks. AdamW, clipping, label smoothing, warm-up and cosine; no dropout,
# because its random numbers differ from PyTorch's. timm's Muon, Lion, LAMB and LARS: 20 steps.
# `make check` tests one number of ranks for each strategy; TEST_LONG=1 tests all.
. "$TEST_SOURCE/test/support/program.sh"

ln -s "$TEST_SOURCE/test/vectors" "$work/vectors" # a path without spaces
vectors=$work/vectors

mkdir "$work/data"
head -c $((200 * 3073)) "$TEST_BUILD/data/cifar-10-sample/data_batch_1.bin" \
    >"$work/data/data_batch_1.bin"
cp "$TEST_BUILD/data/cifar-10-sample/batches.meta.txt" \
    "$TEST_BUILD/data/cifar-10-sample/test_batch.bin" "$work/data"

steps="model.name=vit_tiny_patch16_224 model.image=32 model.patch=8 model.dim=24 model.depth=3 \
model.heads=3 model.init=$vectors/trajectory.safetensors data.format=cifar10 data.root=$work/data \
data.shuffle=off data.val=none augment.flip=0 augment.rotate=0 augment.translate=0 augment.erase=0 \
train.precision=fp32 train.global_batch=28 train.steps=50 train.clip_norm=2 train.label_smoothing=0.1 \
optim.name=adamw optim.lr=3e-3 optim.weight_decay=0.05 schedule.name=cosine schedule.warmup=5 \
output.log_every=1 output.tensorboard=off run.threads=1"

muon="optim.name=muon optim.momentum=0.95 optim.eps=1e-8 train.steps=20"
nmuon="$muon optim.momentum=0.9 optim.nesterov=on optim.no_decay=on optim.muon_scale=original \
optim.muon_exclude=head.weight,head.bias"

lion="optim.name=lion optim.lr=3e-4 optim.weight_decay=0.5 train.steps=20"
lamb="optim.name=lamb optim.lr=9e-3 optim.no_decay=on train.steps=20"
lambc="$lamb optim.lr=3e-3 optim.betas=0.8,0.95 optim.eps=1e-4 optim.trust_clip=on optim.always_adapt=on"
lars="optim.name=lars optim.lr=1 optim.momentum=0.9 train.steps=20"
nlarc="$lars optim.lr=0.1 optim.momentum=0.8 optim.nesterov=on optim.trust_clip=on optim.trust_coeff=0.02 optim.eps=1e-3 \
optim.no_decay=on"

# check NAME RANKS VECTORS WORD...: the losses of the run equal PyTorch's.
check() {
    title=$1 on=$2 expected=$vectors/$3.txt
    shift 3
    run "$on" run $steps run.dir="$work/run" "$@"
    bad=$(ended)
    column "$work/run/metrics.csv" train loss >"$work/loss"
    result "losses of $title on $on ranks" "$bad$(differ "$expected" "$work/loss" 1e-5)" "$run_log"
    rm -rf "$work/run"
}

while read -r strategy some <&3; do
    rules=lamb
    # LAMB and LARS use the same reductions of norms over a mesh, so LAMB tests all strategies. Other rules: hsdp.
    [ $strategy != hsdp ] || rules="lamb lars lion lambc nlarc nmuon"
    [ -z "$TEST_LONG" ] || some="1 2 3 4 6 8" rules="lamb lars lion lambc nlarc nmuon"
    for ranks in $some; do
        check "$strategy, batches in 3 pieces, activations recomputed" "$ranks" trajectory mesh.strategy=$strategy \
            train.accumulate=3 train.checkpoint_activations=block
        for rule in muon $rules; do
            eval "settings=\$$rule"
            check "$rule with $strategy" "$ranks" trajectory_$rule mesh.strategy=$strategy $settings
        done
    done
done 3<<END
ddp 4
zero1 3
zero2 4
fsdp 3
hsdp 4
END
check 'AdamW' 1 trajectory
