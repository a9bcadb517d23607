#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# Background checkpoints: a run resumed from one in the middle of an epoch ends with the bits of an uninterrupted run,
# with every strategy; the plan counts their memory.
. "$TEST_SOURCE/test/support/program.sh"

steps="$small optim.ema=0.9 schedule.name=onecycle schedule.per=step output.tensorboard=off \
train.epochs=2"
often="checkpoint.background=yes checkpoint.every=0.1 checkpoint.keep=50"

# same NAME RUN REFERENCE: the run succeeded with the same weights.
same() {
    bad=
    [ $status -eq 0 ] || bad="exit status $status"
    [ -n "$bad" ] || bad=$(cmp "$work/$3/weights.safetensors" "$work/$2/weights.safetensors" 2>&1)
    result "$1" "$bad" "$work/$2.log"
}

# kept RUN STEP: restore the run folder as it was at STEP.
kept() {
    for file in "$work/$1"/checkpoints/step-*.h5; do
        case $file in
        *"$2".h5) ;;
        *) rm "$file" ;;
        esac
    done
    rm -f "$work/$1/result.json" "$work/$1/weights.safetensors"
}

for case in 1:ddp 3:zero1 3:zero2 3:fsdp 4:hsdp; do
    ranks=${case%:*} strategy=${case#*:} name=$strategy${case%:*}
    mesh="mesh.strategy=$strategy"
    [ $strategy = hsdp ] && mesh="$mesh mesh.shard=2"
    run $ranks whole$name $steps $mesh run.dir="$work/whole$name" checkpoint.every=0
    run $ranks $name $steps $mesh $often run.dir="$work/$name"
    kept $name 00000030
    run $ranks $name $steps $mesh $often run.dir="$work/$name"
    grep -q 'resuming from .*step-00000030.h5' "$work/$name.log" || status="$status, not resumed"
    grep -q 'checkpoints: .* in the background; training was blocked' "$work/$name.log" ||
        status="$status, not printed how long they took"
    same "$strategy on $ranks ranks goes on from a checkpoint made in the background, bit for bit" \
        $name whole$name
done

run 1 now $steps run.dir="$work/now" checkpoint.every=0.1 checkpoint.background=no
grep -q 'checkpoints: .* written synchronously' "$work/now.log" || status="$status, not synchronously"
same 'checkpoint.background=no writes at once' now wholeddp1

# Each rank writes its own part, so all snapshots together are as large as the files.
run 1 plan1 plan $steps checkpoint.background=yes plan.ranks=1
run 1 plan4 plan $steps checkpoint.background=yes plan.ranks=4 mesh.strategy=fsdp
run 1 plan0 plan $steps checkpoint.background=no plan.ranks=1
bad=$(awk '$1 == "snapshot" { mib[++n] = $2 } END {
    if (n != 2) print n " rows"
    else if (mib[2] < 0.24 * mib[1] || mib[2] > 0.3 * mib[1]) print "1 rank: " mib[1] ", 4 ranks: " mib[2]
    }' "$work/plan1.log" "$work/plan4.log" "$work/plan0.log")
taken=$(sed -n 's/.*memory: .*background checkpoints \([0-9.]*\).*/\1/p' "$work/ddp1/train.log" | tail -n 1)
planned=$(awk '$1 == "snapshot" { print $2 }' "$work/plan1.log")
[ "$taken" = "$planned" ] || bad="$bad; planned $planned, taken $taken"
result 'the plan has their memory, as the run takes it' "$bad" "$work/plan1.log"

# A checkpoint per step is due before the previous one can be written.
run 2 clock $steps $often run.dir="$work/clock" train.steps=8 checkpoint.every_seconds=1e-9
bad=
[ $status -eq 0 ] || bad="exit status $status"
for step in 1 2 3 4 5 6 7 8; do
    [ -e "$work/clock/checkpoints/step-0000000$step.h5" ] || bad="$bad no step $step;"
done
[ -z "$(find "$work/clock" -name '*.part')" ] || bad="$bad a part is left"
result 'one at every step, the last one complete when the run is over' "$bad" "$work/clock.log"
