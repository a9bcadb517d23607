#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# Training in fp16 has the losses of fp32 up to rounding. Losses, scales and skipped updates are the same with every
# strategy on any number of ranks, overflows included. A run resumes bit for bit after skipped updates.
. "$TEST_SOURCE/test/support/program.sh"

steps="$small train.precision=fp16 train.clip_norm=1 schedule.warmup=5 optim.ema=0.9 \
debug.check_weights=1 output.tensorboard=off"

# compare NAME RUN REFERENCE TOLERANCE: compare losses; scales and skipped updates must be equal.
compare() {
    bad=$(ended; differ "$3.loss" "$2.loss" "$4"; cmp "$3.loss_scale" "$2.loss_scale" 2>&1; cmp "$3.skipped_steps" "$2.skipped_steps" 2>&1)
    result "$1" "$bad" "$2.log"
}

# skipped NAME: number of updates that the run skipped.
skipped() { tail -1 "$work/$1.skipped_steps" | cut -d' ' -f2; }

# Without overflow, compared with fp32.
train 1 plain train.steps=50 train.loss_scale=128
train 1 wide train.steps=50 train.precision=fp32
bad=$(ended; differ wide.loss plain.loss 2e-3; differ wide.grad_norm plain.grad_norm 2e-2)
[ "$(skipped plain)" = 0 ] || bad="$bad $(skipped plain) updates skipped"
result 'losses and norms of gradients are those of fp32, up to rounding' "$bad" plain.log
result 'fp32 has no scale' "$(awk 'NF > 1' wide.loss_scale)"
result 'fp16 rounds' "$([ -n "$(differ wide.loss plain.loss 1e-7)" ] || echo 'the same losses')"

# The initial scale is so high that the first updates are skipped.
high="train.steps=25 train.loss_scale=65536"
train 1 one $high
count=$(skipped one)
bad=$(ended)
[ "$count" -ge 3 ] && [ "$count" -le 20 ] || bad="$bad $count updates skipped;"
[ "$(grep -c 'overflowed in fp16, 1 update skipped' one.log)" = "$count" ] || bad="$bad the log has another number"
result 'a run begins with overflows, which are logged' "$bad" one.log
result 'there is a norm where there was an update' \
    "$(awk -v count="$count" 'NR <= count && NF != 1 || NR > count && NF != 2' one.grad_norm)" one.grad_norm
# With a checkpoint after each step.
train 3 whole $high mesh.strategy=fsdp checkpoint.every=0.04 checkpoint.keep=50
compare 'fsdp on 3 ranks' whole one 2e-4
train 4 pieces $high mesh.strategy=hsdp mesh.shard=2 train.accumulate=3
compare 'hsdp on 4 ranks, in micro-batches' pieces one 2e-4
# Gradients reduced in fp16, which overflow earlier.
train 3 narrow $high mesh.reduce=compute
bad=$(ended)
[ "$(skipped narrow)" -ge "$count" ] || bad="$bad $(skipped narrow) updates skipped"
result 'mesh.reduce=compute: all ranks skip the same updates' "$bad" narrow.log
train 4 mesh $high mesh.reduce=compute mesh.strategy=hsdp mesh.shard=2
compare 'mesh.reduce=compute, hsdp on 4 ranks' mesh narrow 1e-3

# Resume after updates were skipped and before the last one is.
interrupted whole part $((count - 1))
cp -a part elsewhere
train 3 part $high mesh.strategy=fsdp
result 'a run that was interrupted between two overflows resumes bit for bit' "$(ended; has part.log "resuming from .*step-0*$((count - 1)).h5"
    cmp whole/weights.safetensors part/weights.safetensors 2>&1; differ whole.loss part.loss 0)" part.log
train 4 elsewhere $high mesh.strategy=zero2
compare 'and as zero2 on 4 ranks, up to rounding' elsewhere whole 2e-4
run 1 eval eval whole/checkpoints/last.h5 predict.split=val
result 'eval in fp16' "$(ended)" eval.log
train 1 whole train.steps=28 train.precision=fp32
result 'the run continues in fp32' "$(ended; has whole.log 'resuming from .*step-00000025.h5')" whole.log

# Weights that fp16 cannot represent: no scale helps.
fails 3 'a run that overflows at every scale ends' 7 'NaN or infinity' $steps optim.lr=1e30 train.loss_scale=1 train.steps=60 \
    run.dir="$work/hopeless"
errors $small train.precision=fp16 3<<END
2|train.loss_scale=1000|train.loss_scale=1000
END
