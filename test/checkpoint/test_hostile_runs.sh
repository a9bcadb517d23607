#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# A damaged checkpoint in every command that reads one: one error line and exit code 4. A run whose newest checkpoint is
# damaged resumes from an older one.
. "$TEST_SOURCE/test/support/program.sh"

train="$small debug.fraction=0.02 model.depth=1 data.format=synthetic model.classes=10 output.tensorboard=off"
run 1 run $train run.dir="$work/run" train.steps=2
result "a run of two steps" "$(ended)" "$work/run.log"
head -c 5000 "$work/run/checkpoints/step-00000002.h5" >"$work/bad.h5"
problem=
for command in eval predict convert train; do
    case $command in
    convert) run 1 bad convert "$work/bad.h5" "$work/out.safetensors" ;;
    train) run 1 bad $train run.dir="$work/new" checkpoint.resume="$work/bad.h5" ;;
    *) run 1 bad $command "$work/bad.h5" ;;
    esac
    problem="$problem$(failed_otherwise 4 'bad.h5 ' | sed "s/^/$command: /" | tr '\n' ' ')"
done
result 'each command refuses it' "$problem" "$run_log"
for ranks in 1 3; do
    cp "$work/bad.h5" "$work/run/checkpoints/step-00000009.h5"
    run $ranks resume $train run.dir="$work/run" train.steps=$((2 + ranks)) train.global_batch=24
    result "resume=auto passes over it on $ranks ranks" \
        "$(ended)$(has "$run_log" 'ignored: .*step-00000009.h5 ' 'resuming from .*step-0000000[23].h5')" "$run_log"
done
