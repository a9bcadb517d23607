#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# train.checkpoint_activations=block changes memory and time only: losses and final weights are bit-identical
# on three ranks, with dropout, accumulation, clipping and a short last batch. The plan shows less memory, a run can
# be resumed with the other setting, and the first tensor with a NaN is named.
. "$TEST_SOURCE/test/support/program.sh"

steps="$small train.global_batch=28 train.accumulate=3 train.steps=30 train.clip_norm=1 model.depth=4 \
checkpoint.every=0.7 output.tensorboard=off"

# train NAME WORD...
train() {
    name=$1
    shift
    run 3 "$name" $steps run.dir="$work/$name" "$@"
    [ $status -ne 0 ] || column "$work/$name/metrics.csv" train loss >"$work/$name.loss"
}

# same NAME RUN REFERENCE: both runs have the same bits.
same() {
    bad=$(differ "$work/$3.loss" "$work/$2.loss" 0)
    [ -n "$bad" ] || bad=$(cmp "$work/$3/weights.safetensors" "$work/$2/weights.safetensors" 2>&1)
    [ "$status" = 0 ] || bad="exit status $status"
    result "$1" "$bad" "$work/$2.log"
}

# planned RUN: MiB of activations in the arena of a rank.
planned() { awk '$2 == "activations" && $4 == "MiB" { mib = $3 } END { print mib }' "$work/$1/train.log"; }

# test_activations has the other shapes.
train none
train block train.checkpoint_activations=block
same 'losses and weights with recomputed activations' block none
bad=$(awk -v none="$(planned none)" -v block="$(planned block)" \
    'BEGIN { if (!(block > 0 && block < 0.6 * none)) print block " MiB, not 0.6 of " none }')
result 'the plan shows what is saved' "$bad" "$work/block.log"

interrupted none halves 15
train halves train.checkpoint_activations=block
[ $status -ne 0 ] || status="0$(has halves.log 'resuming from')"
same 'a run that began without recomputation continues with it' halves none

for choice in none block; do
    fails 1 "a NaN, train.checkpoint_activations=$choice" 7 'NaN or infinity' $steps run.dir="$work/nan" optim.lr=1e30 \
        train.checkpoint_activations=$choice
    grep '^vittrain: error: ' "$run_log" >nan.$choice
done
result 'a NaN is found where it is found without recomputation' "$(cmp nan.none nan.block 2>&1)" "$run_log"
