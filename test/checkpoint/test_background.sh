#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# Background checkpoints: a run resumed from one in the middle of an epoch ends with the bits of an uninterrupted run,
# with every strategy; the plan has their memory. A damaged checkpoint is refused.
. "$TEST_SOURCE/test/support/program.sh"

steps="$small optim.ema=0.9 schedule.name=onecycle schedule.per=step output.tensorboard=off \
train.epochs=2"
often="checkpoint.background=yes checkpoint.every=0.1 checkpoint.keep=50"

for case in 1:ddp 3:zero1 3:zero2 3:fsdp 4:hsdp; do
    ranks=${case%:*} strategy=${case#*:}
    mesh="mesh.strategy=$strategy"
    [ $strategy = hsdp ] && mesh="$mesh mesh.shard=2"
    run $ranks whole $steps $mesh run.dir="$work/whole$strategy" checkpoint.every=0
    run $ranks often $steps $mesh $often run.dir="$work/often$strategy"
    interrupted often$strategy $strategy 30
    run $ranks $strategy $steps $mesh $often run.dir="$work/$strategy"
    result "$strategy on $ranks ranks goes on from a checkpoint made in the background, bit for bit" "$(
        ended
        has "$run_log" 'resuming from .*step-00000030.h5' 'checkpoints: .* in the background; training was blocked'
        cmp whole$strategy/weights.safetensors $strategy/weights.safetensors 2>&1)" "$run_log"
done

run 1 now $steps run.dir="$work/now" checkpoint.every=0.1 checkpoint.background=no
result 'checkpoint.background=no writes at once' "$(ended; has "$run_log" 'checkpoints: .* written synchronously'
    cmp wholeddp/weights.safetensors now/weights.safetensors 2>&1)" "$run_log"

run 1 plan plan $steps checkpoint.background=yes plan.ranks=1
result 'the plan has their memory' "$(has plan.log '^snapshot ')" plan.log

# A checkpoint per step is due before the previous one can be written.
run 2 clock $steps $often run.dir="$work/clock" train.steps=8 checkpoint.every_seconds=1e-9
bad=$(ended; find clock -name '*.part')
[ "$(ls clock/checkpoints/step-0000000[1-8].h5 | wc -l)" = 8 ] || bad="$bad not 8 checkpoints"
result 'one at every step, the last one complete when the run is over' "$bad" clock.log

head -c 5000 clock/checkpoints/step-00000008.h5 >bad.h5
errors 3<<END
4|bad.h5 |predict bad.h5
4|bad.h5 |$steps run.dir=$work/new checkpoint.resume=bad.h5
END
