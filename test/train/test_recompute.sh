#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# train.checkpoint_activations=block changes memory and time only: losses and final weights are bit-identical on one
# rank and on two, with dropout, accumulation, clipping and a short last batch. The plan shows less memory, a run can
# be resumed with the other setting, and the first tensor with a NaN is named.
. "$TEST_SOURCE/test/support/program.sh"

steps="$small train.global_batch=28 train.accumulate=3 train.steps=30 train.clip_norm=1 model.depth=4 \
output.tensorboard=off"

train() {
    run "$1" "$2" $steps run.dir="$work/$2" $3
    [ $status -eq 0 ] && column "$work/$2/metrics.csv" train loss >"$work/$2.loss"
}

# same NAME RUN REFERENCE: both runs have the same bits.
same() {
    bad=$(differ "$work/$3.loss" "$work/$2.loss" 0)
    [ -n "$bad" ] || bad=$(cmp "$work/$3/weights.safetensors" "$work/$2/weights.safetensors" 2>&1)
    [ $status -eq 0 ] || bad="exit status $status"
    result "$1" "$bad" "$work/$2.log"
}

# planned NAME RUN: MiB of this kind in the arena of a rank, from the last attempt's log.
planned() {
    awk -v name="$1" '$2 == name && $4 == "MiB" { mib = $3 } END { print mib }' "$work/$2/train.log"
}

parts='model.layer_scale=0.1 model.registers=2 model.position=sincos model.fc_norm=off model.gelu=tanh'
for setting in "1 mean" "2 token" "2 parts"; do
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

train 2 halves "model.pool=token train.steps=15"
train 2 halves "model.pool=token train.checkpoint_activations=block"
grep -q 'resuming from' "$work/halves.log" || status=1
same 'a run that was begun without goes on with it' halves none2token

for choice in none block; do
    run 1 nan $steps run.dir="$work/nan" optim.lr=1e30 train.checkpoint_activations=$choice
    grep '^vittrain: error: ' "$work/nan.log" >"$work/nan.$choice"
done
bad=$([ $status -eq 7 ] || echo "exit status $status")
[ "$(wc -l <"$work/nan.none")" = 1 ] || bad="$bad; no line of error"
cmp -s "$work/nan.none" "$work/nan.block" || bad="$bad; not what is said without it"
result 'a NaN is found where it is found without it' "$bad" "$work/nan.log"

run 1 bad $steps train.checkpoint_activations=blocks
bad=$([ $status -eq 2 ] || echo "exit status $status")
result 'another word is refused' "$bad" "$work/bad.log"
