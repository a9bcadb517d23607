#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# Background checkpoints: a run resumed from one in the middle of an epoch ends with the bits of an uninterrupted run,
# with every strategy; the plan counts their memory. A damaged checkpoint is refused.
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

# Each rank writes its own part, so all snapshots together are as large as the files.
run 1 plan1 plan $steps checkpoint.background=yes plan.ranks=1
run 1 plan4 plan $steps checkpoint.background=yes plan.ranks=4 mesh.strategy=fsdp
run 1 plan0 plan $steps checkpoint.background=no plan.ranks=1
bad=$(awk '$1 == "snapshot" { mib[++n] = $2 } END {
    if (n != 2) print n " rows"
    else if (mib[2] < 0.24 * mib[1] || mib[2] > 0.3 * mib[1]) print "1 rank: " mib[1] ", 4 ranks: " mib[2]
    }' plan1.log plan4.log plan0.log)
taken=$(sed -n 's/.*memory: .*background checkpoints \([0-9.]*\).*/\1/p' ddp/train.log | tail -n 1)
planned=$(awk '$1 == "snapshot" { print $2 }' plan1.log)
[ "$taken" = "$planned" ] || bad="$bad; planned $planned, taken $taken"
result 'the plan has their memory, as the run takes it' "$bad" plan1.log

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
