#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# Lion, LAMB, LARS and Muon with layer-wise decay in 16-bit types: losses near those of fp32, skipped updates of fp16, identical
# weights on all replicas; checkpoints resume bit for bit, and on another mesh up to rounding. test_trajectory.sh
# compares them with timm.
. "$TEST_SOURCE/test/support/program.sh"

lion="optim.lr=1e-3"
lamb="optim.lr=1e-2"
muon="optim.lr=1e-2 optim.momentum=0.95 optim.nesterov=on"
lars="optim.lr=2 optim.momentum=0.9 optim.nesterov=on optim.trust_coeff=0.01"

train() {
    on=$1 name=$2
    shift 2
    run "$on" "$name" $steps run.dir="$work/$name" "$@"
    losses_of "$name"
}

for rule in lion lamb lars muon; do
    rm -rf "$work"/*/
    eval "settings=\$$rule"
    steps="$small optim.name=$rule $settings optim.no_decay=on optim.layer_decay=0.8 train.clip_norm=1 optim.ema=0.9 \
train.steps=30 schedule.warmup=5 debug.check_weights=1 output.tensorboard=off checkpoint.every=0"
    train 1 wide
    bad=$(awk 'NR == 1 { first = $2 } END { if (!($2 < first - 0.03)) print first " to " $2 }' "$work/wide.loss")
    result "the loss falls with $rule" "$bad" "$work/wide.log"
    train 1 even optim.layer_decay=1
    bad=$([ -n "$(differ "$work/wide.loss" "$work/even.loss" 1e-4)" ] || echo "the same losses")
    result "$rule has layer-wise decay" "$bad" "$work/even.log"
    train 3 bf16 train.precision=bf16 mesh.strategy=fsdp
    compare "$rule in bf16 on 3 ranks has the losses of fp32, up to rounding" bf16 wide 2e-2
    train 4 fp16 train.precision=fp16 train.loss_scale=128 mesh.strategy=hsdp mesh.shard=2 train.accumulate=2
    compare "$rule in fp16 on 4 ranks, in micro-batches" fp16 wide 2e-2

    # The first updates overflow: they change nothing on any mesh.
    train 1 high train.precision=fp16 train.loss_scale=65536
    column "$work/high/metrics.csv" train skipped_steps >"$work/a"
    bad=$([ "$(tail -n 1 "$work/a" | cut -d' ' -f2)" -ge 2 ] || tail -n 1 "$work/a")
    result "$rule: some updates are skipped" "$bad" "$work/high.log"
    train 2 high2 train.precision=fp16 train.loss_scale=65536 mesh.strategy=zero1
    column "$work/high2/metrics.csv" train skipped_steps >"$work/b"
    [ $status -ne 0 ] || status=$(diff "$work/a" "$work/b" | wc -l)
    compare "$rule: as many on 2 ranks, with the same losses" high2 high 5e-3

    # A run of 12 steps on 3 ranks with fsdp continues to 30 steps.
    train 3 whole mesh.strategy=fsdp
    train 3 short mesh.strategy=fsdp train.steps=12
    for setting in "3 fsdp 0" "2 ddp 1e-5"; do
        set -- $setting
        rm -rf "$work/part"
        cp -a "$work/short" "$work/part"
        train $1 part mesh.strategy=$2
        sed -i 1d "$work/part.val" # of step 12
        grep -q 'resuming from' "$work/part.log" || status="no resumption"
        compare "$rule on 3 ranks resumes on $1 with $2" part whole $3
        [ $3 != 0 ] || result "$rule: the weights are the same" \
            "$(cmp "$work/whole/weights.safetensors" "$work/part/weights.safetensors" 2>&1)" "$work/part.log"
    done
    case $rule in
    lion) other="lars optim.momentum=0.9" ;;
    lamb) other=adamw ;;
    lars | muon) other="adamw optim.momentum=0 optim.nesterov=off optim.trust_coeff=auto" ;;
    esac
    fails 2 "another optimizer does not read the moments of $rule" 4 "holds the moments of optim.name=$rule" \
        $steps run.dir="$work/part" train.steps=31 optim.name=$other
done

# Muon's matrices: frozen, or left to AdamW.
train 4 pieces mesh.strategy=hsdp mesh.shard=2 train.accumulate=3 optim.freeze=blocks.0.attn.qkv.weight
train 1 frozen optim.freeze=blocks.0.attn.qkv.weight
compare 'micro-batches on 4 ranks and a frozen matrix' pieces frozen 1e-5
train 1 excluded optim.muon_exclude=blocks.0
bad=$([ -n "$(differ "$work/wide.loss" "$work/excluded.loss" 1e-4)" ] || echo "the same losses")
result 'optim.muon_exclude takes matrices from Muon' "$bad" "$work/excluded.log"
fails 1 'an unknown name in optim.muon_exclude' 2 'optim.muon_exclude: .*"tail"' \
    $steps optim.muon_exclude=tail run.dir="$work/none"
