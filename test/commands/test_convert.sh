#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# vittrain convert: a checkpoint becomes the weights that the run wrote, with a few MiB of memory for any model; other files are an
# error of one line and leave no output.
. "$TEST_SOURCE/test/support/program.sh"

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

run 1 convert convert "$last" "$made/average.safetensors"
small_memory=$(resident)
result 'a checkpoint becomes the weights that the run left' \
    "$(ended; cmp "$work/run/weights.safetensors" "$made/average.safetensors" 2>&1)" "$work/convert.log"
run 3 made convert "$last" "$made/average3.safetensors"
bad=$(ended)
result 'on three ranks the first one does it' \
    "$bad$(cmp "$made/average.safetensors" "$made/average3.safetensors" 2>&1)" "$work/made.log"

# 28 million parameters: 114 MB.
large="model.name=vit_cifar model.dim=768 model.heads=3 model.depth=4 model.patch=16 optim.name=sgd \
train.precision=fp32 run.threads=1"
run 1 train $large train.steps=1 train.batch=1 data.val=none debug.batches=1 output.tensorboard=off run.dir="$work/large"
run 1 convert convert "$work/large/checkpoints/last.h5" "$made/large.safetensors"
bad=$(ended; cmp "$work/large/weights.safetensors" "$made/large.safetensors" 2>&1)
bad=$bad$(echo "$small_memory $(resident)" | awk '!(NF == 2 && $1 > 0 && $2 < $1 + 24) { print "small, large: " $0 " MiB" }')
result 'memory does not grow with the model' "$bad"

head -c 200000 "$work/large/checkpoints/last.h5" >"$work/cut.h5"
cp "$work/large/checkpoints/last.h5" "$work/flipped.h5"
printf '\377\377\377' | dd of="$work/flipped.h5" bs=1 seek=100000000 conv=notrunc 2>/dev/null
cp "$work/run/deck.ini" "$work/deck.h5"
before=$(ls -R "$made")
errors convert 3<<END
2|convert|$last $made/no.h5
2|convert|$made/average.safetensors $made/no.h5
4|cut.h5|$work/cut.h5 $made/no.safetensors
4|flipped.h5|$work/flipped.h5 $made/no.safetensors
4|deck.h5|$work/deck.h5 $made/no.safetensors
5|none/x.safetensors|$last $work/none/x.safetensors
END
fails 3 'an error of three ranks' 4 cut.h5 convert "$work/cut.h5" "$made/no.safetensors"
result 'no output is left' "$([ "$before" = "$(ls -R "$made")" ] || ls -R "$made")"
(ulimit -f 40 && run 1 limit convert "$last" "$made/limit.safetensors" && exit $status)
status=$? run_log=$work/limit.log
result 'beyond the limit on files' "$(failed_otherwise 5 'limit on the size'; ls "$made" | grep -E 'limit|part$')" "$run_log"
