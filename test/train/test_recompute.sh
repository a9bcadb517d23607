#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# train.checkpoint_activations=block changes memory and time only: losses and final weights are bit-identical on one
# rank and on three, with dropout, accumulation, clipping and a short last batch. The plan shows less memory, a run can
# be resumed with the other setting, and the first tensor with a NaN is named.
. "$TEST_SOURCE/test/support/program.sh"

steps="$small train.global_batch=28 train.accumulate=3 train.steps=30 train.clip_norm=1 model.depth=4 \
checkpoint.every=0.7 output.tensorboard=off"

train() {
    run "$1" "$2" $steps run.dir="$work/$2" $3
    [ $status -eq 0 ] && column "$work/$2/metrics.csv" train loss >"$work/$2.loss"
}

# same NAME RUN REFERENCE: both runs have the same bits.
same() {
    bad=$(differ "$work/$3.loss" "$work/$2.loss" 0)
    [ -n "$bad" ] || bad=$(cmp "$work/$3/weights.safetensors" "$work/$2/weights.safetensors" 2>&1)
    [ "$status" = 0 ] || bad="exit status $status"
    result "$1" "$bad" "$work/$2.log"
}

# planned NAME RUN: MiB of this kind in the arena of a rank, from the last attempt's log.
planned() {
    awk -v name="$1" '$2 == name && $4 == "MiB" { mib = $3 } END { print mib }' "$work/$2/train.log"
}

parts='model.layer_scale=0.1 model.registers=2 model.position=sincos model.fc_norm=off model.gelu=tanh'
for setting in "1 mean" "3 token" "1 parts"; do
    set -- $setting
    options=model.pool=$2
    [ $2 != parts ] || options="model.pool=mean $parts"
    train $1 none$1$2 "$options"
    train $1 block$1$2 "$options train.checkpoint_activations=block"
    same "losses and weights with recomputed activations on $1 ranks, pooling: $2" block$1$2 none$1$2
done
echo "# activations of four blocks: $(planned activations none1mean) MiB, recomputed: \
$(planned activations block1mean) MiB"
bad=$(awk -v none="$(planned activations none1mean)" -v block="$(planned activations block1mean)" \
    'BEGIN { if (!(block > 0 && block < 0.6 * none)) print block " MiB, not 0.6 of " none }')
result 'the plan shows what is saved' "$bad" "$work/block1mean.log"

interrupted none3token halves 15
train 3 halves "model.pool=token train.checkpoint_activations=block"
[ $status -ne 0 ] || status="0$(has halves.log 'resuming from')"
same 'a run that began without recomputation continues with it' halves none3token

for choice in none block; do
    fails 1 "a NaN, train.checkpoint_activations=$choice" 7 'NaN or infinity' $steps run.dir="$work/nan" optim.lr=1e30 \
        train.checkpoint_activations=$choice
    grep '^vittrain: error: ' "$run_log" >nan.$choice
done
result 'a NaN is found where it is found without recomputation' "$(cmp nan.none nan.block 2>&1)" "$run_log"
errors $steps 3<<END
2|train.checkpoint_activations|train.checkpoint_activations=blocks
END
