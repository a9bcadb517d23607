#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# The layout does not change the result: the losses of 25 steps with dropout, augmentation, clipping, accumulation and a
# short last batch are the same on any number of ranks and with every strategy, and all ranks hold identical weights
# after every step. `make check` tests half of the meshes; TEST_LONG=1 tests all.
. "$TEST_SOURCE/test/support/program.sh"

# 600 samples: 21 batches of 28 and one of 12 per epoch.
steps="$small train.global_batch=28 train.steps=25 train.clip_norm=1 train.label_smoothing=0.1 schedule.name=cosine \
schedule.warmup=5 debug.check_weights=1 output.tensorboard=off"

train() {
    run "$1" "$2" $steps run.dir="$work/$2" $3
    losses_of "$2"
}

train 1 one ""
compare 'one rank trains, 25 rows' one one 0
[ "$(wc -l <"$work/one.loss")" = 25 ] && bad= || bad="not 25 rows"
result 'each step has a row' "$bad" "$work/one.log"
# One row per step, with the samples it counted. Evaluations in between do not count.
column "$work/one/metrics.csv" train images_per_second >"$work/speed"
column "$work/one/metrics.csv" train step_seconds | paste -d' ' "$work/speed" - >"$work/counts"
bad=$(awk '{ n = $2 * $4; m = $1 % 22 == 0 ? 12 : 28; if (n < m - 0.01 || n > m + 0.01)
    print "step " $1 ": " n " samples, not " m }' "$work/counts")
result 'each row counts the samples of its step' "$bad"
first=$(awk 'NR <= 5 { sum += $2 } END { print sum / 5 }' "$work/one.loss")
last=$(awk 'NR > 20 { sum += $2 } END { print sum / 5 }' "$work/one.loss")
bad=$(awk -v a="$first" -v b="$last" 'BEGIN { if (!(b < a - 0.05)) print a " to " b }')
result 'the loss falls' "$bad"
train 1 again ""
compare 'the same run twice gives the same losses, to the last digit' again one 0
for ranks in 3 4; do
    train $ranks "ranks$ranks" ""
    compare "losses on $ranks ranks" "ranks$ranks" one 1e-5
done
# STRATEGY RANKS SHARD ACCUMULATE. Shard 0: the default of the strategy.
while read -r strategy ranks shard pieces long <&3; do
    [ -z "$long" ] || [ -n "$TEST_LONG" ] || continue
    name=$strategy-$ranks-$shard-$pieces
    train "$ranks" "$name" "mesh.strategy=$strategy mesh.shard=$shard train.accumulate=$pieces"
    compare "losses with $strategy on $ranks ranks, mesh.shard=$shard, in $pieces pieces" "$name" one 1e-5
done 3<<END
fsdp 1 0 1
hsdp 1 0 1 long
zero1 2 0 1 long
zero2 2 0 1 long
fsdp 2 0 1 long
fsdp 2 0 3 long
zero1 3 0 3
zero2 3 0 3 long
fsdp 3 0 1
zero1 4 2 1
zero2 4 2 1
fsdp 4 0 3
hsdp 4 2 1 long
hsdp 4 2 3
fsdp 5 0 1 long
hsdp 6 3 1 long
zero2 6 2 3 long
zero1 8 0 1 long
fsdp 8 0 1 long
hsdp 8 4 1 long
END
train 2 accumulated "train.global_batch=0 train.batch=14 train.accumulate=3"
compare 'losses with 3 micro-batches on 2 ranks' accumulated one 1e-5
train 1 other run.seed=8
bad=$([ -n "$(differ "$work/one.loss" "$work/other.loss" 1e-5)" ] || echo "the same losses")
result 'another seed gives other losses' "$bad"
