#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# Lion, LAMB, LARS and Muon with layer-wise decay: the same losses on a mesh, near those in 16-bit types, skipped updates of fp16,
# identical weights on all replicas; checkpoints resume bit for bit, and on another mesh up to rounding. test_trajectory.sh
# compares them with timm.
. "$TEST_SOURCE/test/support/program.sh"

lion="optim.lr=1e-3"
lamb="optim.lr=1e-2"
muon="optim.lr=1e-2 optim.momentum=0.95 optim.nesterov=on"
lars="optim.lr=2 optim.momentum=0.9 optim.nesterov=on optim.trust_coeff=0.01"

for rule in lion lamb lars muon; do
    rm -rf "$work"/*/
    eval "settings=\$$rule"
    # 25 steps are an epoch: the first checkpoint is that of step 15.
    steps="$small optim.name=$rule $settings optim.no_decay=on optim.layer_decay=0.8 train.clip_norm=1 optim.ema=0.9 \
train.steps=30 schedule.warmup=5 debug.check_weights=1 output.tensorboard=off checkpoint.every=0.6"
    train 1 one
    result "the loss falls with $rule" "$(awk 'NR == 1 { first = $2 } END { if (!($2 < first - 0.03)) print first " to " $2 }' one.loss)" one.log
    train 3 whole mesh.strategy=fsdp
    compare "$rule on 3 ranks" whole one 1e-5
    train 4 fp16 train.precision=fp16 train.loss_scale=128 mesh.strategy=hsdp mesh.shard=2 train.accumulate=2
    compare "$rule in fp16 on 4 ranks, in micro-batches" fp16 one 2e-2

    for setting in "3 fsdp 0" "4 ddp 1e-5"; do
        set -- $setting
        interrupted whole part$1 15
        train $1 part$1 mesh.strategy=$2
        result "$rule on 3 ranks resumes on $1 with $2" \
            "$(ended; has part$1.log 'resuming from'; differ whole.loss part$1.loss $3; differ whole.val part$1.val $3)" part$1.log
    done
    result "$rule: the weights are the same" "$(cmp whole/weights.safetensors part3/weights.safetensors 2>&1)"
    case $rule in
    lion) other="lars optim.momentum=0.9" ;;
    lamb) other=adamw ;;
    lars | muon) other="adamw optim.momentum=0 optim.nesterov=off optim.trust_coeff=auto" ;;
    esac
    fails 1 "another optimizer does not read the moments of $rule" 4 "optim.name=$rule" \
        $steps run.dir="$work/whole" train.steps=31 optim.name=$other

    case $rule in lion | lars) continue ;; esac
    # The first updates overflow: they change nothing on any mesh.
    overflow="train.precision=fp16 train.loss_scale=65536"
    train 1 high $overflow
    train 3 high3 $overflow mesh.strategy=zero1
    compare "$rule with overflows on 3 ranks" high3 high 5e-3
    result "$rule: as many updates are skipped" "$(cmp high.skipped_steps high3.skipped_steps 2>&1; awk 'END { if (!($2 >= 2)) print }' high.skipped_steps)" high3.log
done

# Muon's matrices: frozen, or left to AdamW.
train 4 pieces mesh.strategy=hsdp mesh.shard=2 train.accumulate=3 optim.freeze=blocks.0.attn.qkv.weight
train 1 frozen optim.freeze=blocks.0.attn.qkv.weight
compare 'micro-batches on 4 ranks and a frozen matrix' pieces frozen 1e-5
for change in optim.muon_exclude=blocks.0 optim.layer_decay=1; do
    train 1 other $change
    result "$change gives other losses" "$(differ one.loss other.loss 1e-4 | grep -q . || echo 'the same losses')" other.log
    rm -r other
done
errors $steps run.dir="$work/none" 3<<END
2|optim.muon_exclude: .*"tail"|optim.muon_exclude=tail
END
