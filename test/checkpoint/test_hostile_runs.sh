#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# Malicious checkpoints in every command that reads one: one error line and exit code 4. A run whose newest checkpoint is
# malicious resumes from an older one.
. "$TEST_SOURCE/test/support/program.sh"

change=$TEST_BUILD/test/checkpoint/test_hostile_files
train="$small debug.fraction=0.02 model.depth=1 data.format=synthetic model.classes=10 output.tensorboard=off"
good=$work/run/checkpoints/step-00000002.h5

mkfifo "$work/fifo"
run 1 run $train run.dir="$work/run" train.steps=2
result "a run of two steps" "$(ended)" "$work/run.log"
cp "$good" "$work/good.h5"

cp "$good" "$work/bad.h5"
"$change" --link "$work/bad.h5" "$work/fifo"
problem=
for command in eval predict convert train; do
    case $command in
    convert) run 1 bad convert "$work/bad.h5" "$work/out.safetensors" ;;
    train) run 1 bad $train run.dir="$work/new" checkpoint.resume="$work/bad.h5" ;;
    *) run 1 bad $command "$work/bad.h5" ;;
    esac
    problem="$problem$(failed_otherwise 4 'bad.h5 .*link' | sed "s/^/$command: /" | tr '\n' ' ')"
done
result 'units in another file' "$problem" "$run_log"

cp "$work/good.h5" "$work/bad.h5"
"$change" --deck "$work/bad.h5" '[model]
classes = 1000000000'
fails 1 'a deck with a value out of range' 4 'the deck in .*bad.h5:.*model.classes=1000000000' eval "$work/bad.h5"

for ranks in 1 2; do
    cp "$work/good.h5" "$work/run/checkpoints/step-00000009.h5"
    "$change" --link "$work/run/checkpoints/step-00000009.h5" "$work/fifo"
    run $ranks resume $train run.dir="$work/run" train.steps=$((2 + ranks)) train.global_batch=24
    problem=$([ $status -eq 0 ] || echo "exit status $status")
    grep -q 'ignored: .*step-00000009.h5 cannot be used' "$run_log" || problem="$problem; no report"
    grep -q "resuming from .*step-0000000$((1 + ranks)).h5" "$run_log" || problem="$problem; not resumed"
    result "resume=auto passes over such a file on $ranks ranks" "$problem" "$run_log"
done
