#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# Training in fp16 has the losses of fp32 up to rounding. Losses, scales and skipped updates are the same with every
# strategy on any number of ranks, overflows included. A run resumes bit for bit after skipped updates.
. "$TEST_SOURCE/test/support/program.sh"

steps="$small train.precision=fp16 train.clip_norm=1 schedule.warmup=5 optim.ema=0.9 \
debug.check_weights=1 output.tensorboard=off"

# train RANKS NAME WORD...: write columns of the run to $work/NAME.COLUMN.
train() {
    on=$1 name=$2
    shift 2
    run "$on" "$name" $steps run.dir="$work/$name" "$@"
    [ $status -eq 0 ] || return
    for column in loss grad_norm loss_scale skipped_steps; do
        column "$work/$name/metrics.csv" train $column >"$work/$name.$column"
    done
}

# compare NAME RUN REFERENCE TOLERANCE: compare losses; scales and skipped updates must be equal.
compare() {
    bad=
    [ $status -eq 0 ] || bad="exit status $status"
    [ -n "$bad" ] || bad=$(differ "$work/$3.loss" "$work/$2.loss" "$4")
    [ -n "$bad" ] || bad=$(cmp "$work/$3.loss_scale" "$work/$2.loss_scale" 2>&1)
    [ -n "$bad" ] || bad=$(cmp "$work/$3.skipped_steps" "$work/$2.skipped_steps" 2>&1)
    result "$1" "$bad" "$work/$2.log"
}

# skipped NAME: number of updates that the run skipped.
skipped() { tail -1 "$work/$1.skipped_steps" | cut -d' ' -f2; }

# Without overflow, compared with fp32.
train 1 plain train.steps=50 train.loss_scale=128
train 1 wide train.steps=50 train.precision=fp32
bad="exit status $status"
[ $status -ne 0 ] || bad=$(differ "$work/wide.loss" "$work/plain.loss" 2e-3)
[ -n "$bad" ] || [ "$(skipped plain)" = 0 ] || bad="$(skipped plain) updates skipped"
result 'the losses of 50 steps are those of fp32, up to rounding' "$bad" "$work/plain.log"
bad=$(differ "$work/wide.grad_norm" "$work/plain.grad_norm" 2e-2)
result 'so are the norms of the gradients' "$bad"
bad=$([ -z "$(tr -d ' 0-9\n' <"$work/wide.loss_scale")$(tail -1 "$work/wide.loss_scale" | cut -d' ' -f2)" ] ||
    echo "not empty")
result 'fp32 has no scale' "$bad"
bad=$([ -n "$(differ "$work/wide.loss" "$work/plain.loss" 1e-7)" ] || echo "the same losses")
result 'fp16 rounds' "$bad"

# The initial scale is so high that the first updates are skipped.
high="train.steps=25 train.loss_scale=65536"
train 1 one $high
compare 'a run that begins with overflows' one one 0
count=$(skipped one)
bad=$([ "$count" -ge 3 ] && [ "$count" -le 20 ] || echo "$count updates skipped")
result 'some updates are skipped' "$bad" "$work/one.log"
bad=$([ "$(grep -c 'gradients overflowed in fp16, 1 update skipped' "$work/one.log")" = "$count" ] ||
    echo "the log does not say so")
result 'the log says so' "$bad" "$work/one.log"
bad=$(awk -v count="$count" 'NR <= count && NF != 1 || NR > count && NF != 2 { print }' "$work/one.grad_norm")
result 'there is a norm where there was an update' "$bad" "$work/one.grad_norm"
for setting in "2 ddp" "4 zero1" "4 hsdp mesh.shard=2" "2 fsdp train.accumulate=3" "4 zero2 mesh.shard=2"; do
    set -- $setting
    ranks=$1 strategy=$2
    shift 2
    train "$ranks" mesh $high mesh.strategy="$strategy" "$@"
    compare "$strategy on $ranks ranks${1:+, $1}" mesh one 2e-4
    rm -rf "$work/mesh"
done
# Gradients reduced in fp16, which overflow earlier.
train 2 narrow $high mesh.reduce=compute
bad="exit status $status"
[ $status -ne 0 ] || bad=
[ -n "$bad" ] || [ "$(skipped narrow)" -ge "$count" ] || bad="$(skipped narrow) updates skipped"
result 'mesh.reduce=compute: all ranks skip the same updates' "$bad" "$work/narrow.log"
for setting in "2 fsdp" "4 hsdp mesh.shard=2"; do
    set -- $setting
    ranks=$1 strategy=$2
    shift 2
    train "$ranks" mesh $high mesh.reduce=compute mesh.strategy="$strategy" "$@"
    compare "mesh.reduce=compute, $strategy on $ranks ranks${1:+, $1}" mesh narrow 1e-3
    rm -rf "$work/mesh"
done

# Resume after updates were skipped and before the last one is.
train 2 whole $high mesh.strategy=fsdp
train 2 part $high mesh.strategy=fsdp train.steps=$((count - 1))
rm "$work/part/weights.safetensors"
cp -a "$work/part" "$work/elsewhere"
train 2 part $high mesh.strategy=fsdp
grep -q "resuming from .*step-0*$((count - 1)).h5" "$work/part.log" || status="0, but not resumed"
compare 'a run on 2 ranks that was stopped between two overflows goes on' part whole 0
bad=$(cmp "$work/whole/weights.safetensors" "$work/part/weights.safetensors" 2>&1)
result 'bit for bit' "$bad" "$work/part.log"
train 4 elsewhere $high mesh.strategy=zero2
compare 'and as zero2 on 4 ranks, up to rounding' elsewhere whole 2e-4
run 2 eval eval "$work/whole/checkpoints/last.h5" predict.split=val
result 'eval in fp16' "$(ended)" "$work/eval.log"
train 1 whole train.steps=28 train.precision=fp32
bad="exit status $status"
[ $status -ne 0 ] || bad=$(grep -q 'resuming from .*step-00000025.h5' "$work/whole.log" || echo "not resumed")
result 'the run goes on in fp32' "$bad" "$work/whole.log"

# Weights that fp16 cannot represent: no scale helps.
train 2 hopeless optim.lr=1e30 train.loss_scale=1 train.steps=60
bad=$([ $status -eq 7 ] || echo "exit status $status")
[ "$(grep -c '^vittrain: error: .*NaN or infinity' "$work/hopeless.log")" = 1 ] || bad="$bad; not one line of error"
result 'a run that overflows at every scale ends' "$bad" "$work/hopeless.log"
run 1 scale train.loss_scale=1000 $small train.precision=fp16
bad=$([ $status -eq 2 ] || echo "exit status $status")
grep -q 'train.loss_scale=1000 is not a power of two; the nearest below is 512' "$work/scale.log" || bad="$bad; not said so"
result 'a scale that is no power of two' "$bad" "$work/scale.log"
