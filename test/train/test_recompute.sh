#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# train.checkpoint_activations=block changes memory and time only: losses and final weights are bit-identical
# on three ranks, with dropout, accumulation, clipping and a short last batch. The plan shows less memory, a run can
# be resumed with the other setting, and the first tensor with a NaN is named.
. "$TEST_SOURCE/test/support/program.sh"

steps="$small train.global_batch=28 train.accumulate=3 train.steps=30 train.clip_norm=1 model.depth=4 \
checkpoint.every=0.7 output.tensorboard=off"

# planned RUN: MiB of activations in the arena of a rank.
planned() { sed -n 's/^memory: .* activations \([0-9.]*\),.*/\1/p' "$work/$1.log"; }

# test_activations has the other shapes.
train 3 none
train 3 block train.checkpoint_activations=block
same() { ended; differ none.loss "$1.loss" 0; cmp none/weights.safetensors "$1/weights.safetensors" 2>&1; }
result 'losses and weights with recomputed activations' "$(same block)" block.log
bad=$(awk -v none="$(planned none)" -v block="$(planned block)" \
    'BEGIN { if (!(block > 0 && block < 0.6 * none)) print block " MiB, not 0.6 of " none }')
result 'the plan shows what is saved' "$bad" "$work/block.log"

interrupted none halves 15
train 3 halves train.checkpoint_activations=block
result 'a run that began without recomputation continues with it' "$(same halves; has halves.log 'resuming from')" halves.log

for choice in none block; do
    fails 1 "a NaN, train.checkpoint_activations=$choice" 7 'NaN or infinity' $steps run.dir="$work/nan" optim.lr=1e30 \
        train.checkpoint_activations=$choice
    grep '^vittrain: error: ' "$run_log" >nan.$choice
done
result 'a NaN is found where it is found without recomputation' "$(cmp nan.none nan.block 2>&1)" "$run_log"
