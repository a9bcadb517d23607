#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# Muon in 16-bit types: losses near those of fp32 on every mesh, identical weights on all replicas, skipped updates of
# fp16; checkpoints resume bit for bit, and on another mesh up to rounding. test_trajectory.sh compares with timm.
. "$TEST_SOURCE/test/support/program.sh"

steps="$small optim.name=muon optim.momentum=0.95 optim.nesterov=on optim.lr=1e-2 train.clip_norm=1 optim.ema=0.9 \
train.steps=30 schedule.warmup=5 debug.check_weights=1 output.tensorboard=off checkpoint.every=0"

train() {
    on=$1 name=$2
    shift 2
    run "$on" "$name" $steps run.dir="$work/$name" "$@"
    losses_of "$name"
}

train 1 wide
compare 'one rank trains in fp32' wide wide 0
bad=$(awk 'NR == 1 { first = $2 } END { if (!($2 < first - 0.03)) print first " to " $2 }' "$work/wide.loss")
result 'the loss falls' "$bad" "$work/wide.log"
for setting in "bf16 1 ddp 0" "bf16 3 ddp 0" "bf16 4 hsdp 2" "bf16 3 fsdp 0" "fp16 2 zero1 0" "fp16 4 zero2 2"; do
    set -- $setting
    scale=$([ $1 = bf16 ] || echo train.loss_scale=128)
    train $2 $1-$2 train.precision=$1 $scale mesh.strategy=$3 mesh.shard=$4
    compare "$1 on $2 ranks with $3 has the losses of fp32, up to rounding" $1-$2 wide 2e-2
done
train 4 pieces mesh.strategy=hsdp mesh.shard=2 train.accumulate=3 optim.freeze=blocks.0.attn.qkv.weight
train 1 frozen optim.freeze=blocks.0.attn.qkv.weight
compare 'micro-batches on 4 ranks and a frozen matrix' pieces frozen 1e-5
train 1 excluded optim.muon_exclude=blocks.0
bad=$([ -n "$(differ "$work/wide.loss" "$work/excluded.loss" 1e-4)" ] || echo "the same losses")
result 'optim.muon_exclude takes matrices from Muon' "$bad" "$work/excluded.log"
fails 1 'an unknown name in optim.muon_exclude' 2 'optim.muon_exclude: the model has no unit or tensor "tail"' \
    $steps optim.muon_exclude=tail run.dir="$work/none"

# The first updates overflow: they change nothing on any mesh.
train 1 high train.precision=fp16 train.loss_scale=65536
count=$(column "$work/high/metrics.csv" train skipped_steps | tail -n 1 | cut -d' ' -f2)
result 'some updates are skipped' "$([ "$count" -ge 2 ] || echo "$count")" "$work/high.log"
train 3 high3 train.precision=fp16 train.loss_scale=65536 mesh.strategy=fsdp
compare 'and on 3 ranks the same' high3 high 5e-3
column "$work/high/metrics.csv" train skipped_steps >"$work/a"
column "$work/high3/metrics.csv" train skipped_steps >"$work/b"
result 'as many are skipped' "$(diff "$work/a" "$work/b")" "$work/high3.log"

# resumes NAME RANKS REFERENCE TOLERANCE WORD...: a run of 12 steps on 3 ranks with fsdp continues to 30 steps.
resumes() {
    title=$1 ranks=$2 reference=$3 tolerance=$4
    shift 4
    rm -rf "$work/part"
    train 3 part mesh.strategy=fsdp train.steps=12
    train $ranks part "$@"
    sed -i 1d "$work/part.val" # of step 12
    grep -q 'resuming from' "$work/part.log" || status="no resumption"
    compare "$title" part $reference $tolerance
}
train 3 whole mesh.strategy=fsdp
resumes 'a run resumes bit for bit' 3 whole 0 mesh.strategy=fsdp
bad=$(cmp "$work/whole/weights.safetensors" "$work/part/weights.safetensors" 2>&1)
result 'and its weights are the same' "$bad" "$work/part.log"
resumes 'on another mesh, up to rounding' 2 whole 1e-5 mesh.strategy=ddp
