#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# fast
# The losses of 50 training steps equal PyTorch's (test/vectors/make_trajectory.py) to 1e-5, with every strategy on
# every number of ranks, also if the last batch of an epoch has fewer samples than there are ranks. AdamW, clipping,
# label smoothing, warm-up and cosine; no dropout, because its random numbers differ from PyTorch's.
# timm's Muon, Lion, LAMB and LARS: 20 steps.
# `make check` tests two numbers of ranks for each strategy; TEST_LONG=1 tests all.
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
optim.muon_factors=original optim.muon_exclude=head.weight,head.bias"

lion="optim.name=lion optim.lr=3e-4 optim.weight_decay=0.5 train.steps=20"
lamb="optim.name=lamb optim.lr=9e-3 optim.no_decay=on train.steps=20"
lambc="$lamb optim.lr=3e-3 optim.betas=0.8,0.95 optim.eps=1e-4 optim.trust_clip=on optim.always_adapt=on"
lars="optim.name=lars optim.lr=1 optim.momentum=0.9 train.steps=20"
nlarc="$lars optim.lr=0.1 optim.momentum=0.8 optim.nesterov=on optim.trust_clip=on optim.trust_coeff=0.02 optim.eps=1e-3 \
optim.no_decay=on"

# train RANKS NAME [WORD...]: write the losses of the run to $work/NAME.loss.
train() {
    on=$1 name=$2
    shift 2
    run "$on" "$name" $steps run.dir="$work/$name" "$@"
    [ $status -eq 0 ] && column "$work/$name/metrics.csv" train loss >"$work/$name.loss"
}

# check NAME RUN [VECTORS]: the losses of the run equal PyTorch's.
check() {
    bad="exit status $status"
    [ $status -ne 0 ] || bad=$(differ "$vectors/${3:-trajectory}.txt" "$work/$2.loss" 1e-5)
    result "$1" "$bad" "$work/$2.log"
}

while read -r strategy some <&3; do
    rule_ranks=${some##* }
    [ -z "$TEST_LONG" ] || some="1 2 3 4 6 8" rule_ranks="1 2 3 4 6 8"
    for ranks in $some; do
        train $ranks $strategy$ranks mesh.strategy=$strategy
        check "losses of $strategy on $ranks ranks" $strategy$ranks
    done
    train 2 pieces$strategy mesh.strategy=$strategy train.accumulate=3 train.checkpoint_activations=block
    check "losses of $strategy on 2 ranks, batches in 3 pieces, activations recomputed" pieces$strategy
    train ${some%% *} muon$strategy mesh.strategy=$strategy $muon
    check "losses of Muon with $strategy on ${some%% *} ranks" muon$strategy trajectory_muon
    # LAMB and LARS use the same reductions of norms over a mesh, so LAMB tests all strategies. Other rules: hsdp.
    rules=lamb
    case $TEST_LONG$strategy in
    1* | hsdp)
        rules="lamb lars lion lambc nlarc"
        train 2 nmuon$strategy mesh.strategy=$strategy $nmuon
        check "losses of Muon with $strategy on 2 ranks, Nesterov momentum, original factors, head by AdamW" \
            nmuon$strategy trajectory_nmuon
        ;;
    esac
    for rule in $rules; do
        eval "settings=\$$rule"
        for ranks in $rule_ranks; do
            train $ranks $rule$ranks$strategy mesh.strategy=$strategy $settings
            check "losses of $rule with $strategy on $ranks ranks" $rule$ranks$strategy trajectory_$rule
        done
    done
done 3<<END
ddp 1 4
zero1 3
zero2 4
fsdp 3
hsdp 4 6
END
train 1 other optim.weight_decay=0.04
bad=$([ -n "$(differ "$vectors/trajectory.txt" "$work/other.loss" 1e-5)" ] || echo "the same losses")
[ $status -eq 0 ] || bad="exit status $status"
result 'the losses see a weight decay of 0.04 in the place of 0.05' "$bad" "$work/other.log"
