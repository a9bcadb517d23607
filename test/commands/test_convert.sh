#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# vittrain convert: converting a checkpoint to safetensors and back gives the same bytes and needs a few MiB of memory for any
# model; other files are an error of one line and leave no output.
. "$TEST_SOURCE/test/support/program.sh"

# converts NAME IN OUT WORD...
converts() {
    title=$1 name=$2
    shift
    run 1 convert convert "$@"
    result "$title" "$([ $status -eq 0 ] || echo "status $status of $name")" "$work/convert.log"
}

# resident: MiB of memory of the last conversion.
resident() {
    sed -n 's/.*peak memory \([0-9.]*\) MiB/\1/p' "$work/convert.log"
}

mkdir "$work/made"
made=$work/made
average="$small optim.ema=0.9 train.epochs=1 output.tensorboard=off"
run 4 train $average train.steps=5 mesh.strategy=fsdp run.dir="$work/run"
result 'a run with fsdp' "$(ended)" "$work/train.log"
last=$work/run/checkpoints/last.h5

converts 'a checkpoint to weights' "$last" "$made/average.safetensors"
result 'they are the weights that the run left' "$(cmp "$work/run/weights.safetensors" "$made/average.safetensors" 2>&1)"
converts 'weights to a checkpoint with an average' "$made/average.safetensors" "$made/start.h5" $average
converts 'and back' "$made/start.h5" "$made/back.safetensors"
result 'the same bytes' "$(cmp "$made/average.safetensors" "$made/back.safetensors" 2>&1)"
run 3 made convert "$last" "$made/average3.safetensors"
bad=$(ended)
result 'on three ranks the first one does it' \
    "$bad$(cmp "$made/average.safetensors" "$made/average3.safetensors" 2>&1)" "$work/made.log"

# Another head and another grid of positions, as for model.init, on any mesh.
other="$average augment.resize=64 model.classes=12 train.steps=3"
run 1 init $other model.init="$made/average.safetensors" run.dir="$work/init"
converts 'weights to a checkpoint of another shape' "$made/average.safetensors" "$made/other.h5" $other
run 3 resume $other checkpoint.resume="$made/other.h5" mesh.strategy=fsdp train.global_batch=24 run.dir="$work/resume"
for name in init resume; do
    column "$work/$name/metrics.csv" train loss >"$work/$name.loss"
done
bad=$(differ "$work/init.loss" "$work/resume.loss" 1e-5)
grep -q 'resuming from .*other.h5: step 0' "$work/resume.log" || bad="$bad; not resumed"
result 'training goes on with it as with the weights' "$bad" "$work/resume.log"

# 28 million parameters: 114 MB.
large="model.name=vit_cifar model.dim=768 model.heads=3 model.depth=4 model.patch=16 optim.name=sgd \
train.precision=fp32 run.threads=1"
"$vittrain" convert "$made/average.safetensors" "$made/start.h5" $average >"$work/convert.log" 2>&1
small_memory=$(resident)
run 1 train $large train.steps=1 train.batch=1 data.val=none debug.batches=1 output.tensorboard=off run.dir="$work/large"
converts 'a large checkpoint to weights' "$work/large/checkpoints/last.h5" "$made/large.safetensors"
large_memory=$(resident)
converts 'and back' "$made/large.safetensors" "$made/large.h5" $large
bad=$(cmp "$work/large/weights.safetensors" "$made/large.safetensors" 2>&1)
bad=$bad$(echo "$small_memory $large_memory $(resident)" | awk '
    !(NF == 3 && $1 > 0 && $2 < $1 + 24 && $3 < $1 + 24) { print "small, large, large back: " $0 " MiB" }')
result 'memory does not grow with the model' "$bad"

head -c 200000 "$work/large/checkpoints/last.h5" >"$work/cut.h5"
cp "$work/large/checkpoints/last.h5" "$work/flipped.h5"
printf '\377\377\377' | dd of="$work/flipped.h5" bs=1 seek=100000000 conv=notrunc 2>/dev/null
cp "$work/run/deck.ini" "$work/deck.h5"
head -c 9000 "$made/average.safetensors" >"$work/cut.safetensors"
ln "$made/average.safetensors" "$made/same.h5"
before=$(ls -R "$made")
errors convert 3<<END
2|convert|$last $made/no.h5
2|same.h5|$made/average.safetensors $made/same.h5 $small
4|cut.h5|$work/cut.h5 $made/no.safetensors
4|flipped.h5|$work/flipped.h5 $made/no.safetensors
4|deck.h5|$work/deck.h5 $made/no.safetensors
4|average.safetensors.* blocks.2|$made/average.safetensors $made/no.h5 $small model.depth=3
4|cut.safetensors|$work/cut.safetensors $made/no.h5 $small
5|none/x.safetensors|$last $work/none/x.safetensors
END
fails 3 'an error of three ranks' 4 cut.h5 convert "$work/cut.h5" "$made/no.safetensors"
result 'no output is left' "$([ "$before" = "$(ls -R "$made")" ] || ls -R "$made")"
(
    ulimit -f 40
    for out in limit.safetensors limit.h5; do
        in=$last
        [ $out = limit.safetensors ] || in=$made/average.safetensors
        "$vittrain" convert "$in" "$made/$out" $average 2>"$work/limit.log" </dev/null
        [ $? -eq 5 ] && grep -q "limit on the size" "$work/limit.log" || echo "$out: no error"
    done
) >"$work/bad" 2>&1
result 'beyond the limit on files' "$(cat "$work/bad"; ls "$made" | grep -E 'limit|part$')" "$work/limit.log"
