#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# system
# SIGUSR1 to any rank ends a run on all ranks together, after a step or during an evaluation. The attempts together make
# one run: weights equal bit for bit, each row and line once.
. "$TEST_SOURCE/test/support/program.sh"

# Most of the time is spent in evaluations; an epoch has two steps. The run is long enough for a slow shell to signal it.
steps="$small optim.ema=0.9 schedule.name=onecycle schedule.per=step checkpoint.every=0 \
debug.overfit=2 train.early_stop=0 train.epochs=200"

# epochs_of RUN: the rows of epochs in metrics.csv, without times.
epochs_of() {
    grep ',epoch,' "$work/$1/metrics.csv" | cut -d, -f1-7
}

# begin NAME WORD...: two ranks, in the background; returns after one more epoch.
begin() {
    name=$1
    shift
    before=$(epochs_done)
    $MPIRUN -np 2 "$vittrain" run.dir="$work/$name" "$@" >"$work/$name.log" 2>&1 </dev/null &
    job=$!
    wait_job=$job wait_until one_more
}
epochs_done() { epochs_of "$name" 2>/dev/null | wc -l; }
one_more() { [ "$(epochs_done)" -gt "$before" ]; }

# stopped_otherwise NAME: prints what is wrong with the end of the job that got a signal; $ended is its status.
stopped_otherwise() {
    [ $ended -eq 0 ] || echo "exit status $ended;"
    has "$work/$1.log" 'stopped at step .*: a signal'
    has "$work/$1/result.json" '"finished": false'
    [ -e "$work/$1/checkpoints/last.h5" ] || echo 'no checkpoint'
}

run 2 whole $steps run.dir="$work/whole"
bad=$(ended)
for part in 1 2 3; do
    begin parts $steps
    case $part in
    2) kill -USR1 "$(processes "^$vittrain run.dir=$work/parts " | tail -n 1)" ;; # of one rank
    *) kill -USR1 $job ;;
    esac
    [ $part != 3 ] || kill -USR1 $job
    wait $job
    ended=$?
    wrong=$(stopped_otherwise parts)
    column parts/metrics.csv epoch loss | tail -n 1 >expected
    sed -n '/^  *"train": {/,/}/ s/.*"loss": \([^,]*\).*/\1/p' parts/result.json | sed "s/^/$(cut -d' ' -f1 expected) /" >parts.loss
    wrong=$wrong$(differ expected parts.loss 1e-5)
    [ -z "$wrong" ] || bad="$bad part $part: $wrong"
done
result 'three times a signal, to mpirun or to one rank: a checkpoint, exit status 0, the loss of the last epoch' "$bad" "$work/parts.log"

run 2 parts $steps run.dir="$work/parts"
bad=$(ended; cmp whole/weights.safetensors parts/weights.safetensors 2>&1)
result 'the run in four parts ends with the same weights, bit for bit' "$bad" "$work/parts.log"
bad=
for name in whole parts; do
    for split in train val; do
        for value in loss top1 lr; do
            column "$work/$name/metrics.csv" $split $value
        done
    done >"$work/$name.rows"
    epochs_of $name >"$work/$name.epochs"
    grep -o 'epoch [0-9]* done .* val loss [0-9.]*' "$work/$name/train.log" >"$work/$name.lines"
done
[ "$(wc -l <"$work/whole.lines")" = 200 ] || bad='not 200 lines of epochs; '
for kind in rows epochs lines; do
    bad=$bad$(diff "$work/whole.$kind" "$work/parts.$kind" | head -n 5)
done
result 'its tables and its log have the rows and epochs of one part, each once' "$bad" "$work/parts.log"

# Before the first step nothing is written, and no failure is reported.
bad=$(signalled 1 first USR1 start:0 $steps)
result 'a signal before the program receives signals ends the run, too' "$bad$(has first.log 'stopped before the first step')" first.log

# A rank whose mpirun is killed while MPI starts does not wait for it.
$MPIRUN -np 2 "$vittrain" $steps run.dir="$work/orphan" debug.pause="mpi:0:$work/orphan.go" >"$work/orphan.log" 2>&1 </dev/null &
job=$!
no_orphans() { [ -z "$(processes "^$vittrain .*run.dir=$work/orphan ")" ]; }
for rank in 0 1; do paused $rank "$work/orphan.go" >/dev/null; done
kill -9 $job
wait_until no_orphans
result 'the ranks of an mpirun that is killed while MPI starts end' "$(no_orphans || echo 'ranks are left')" "$work/orphan.log"
kill -9 $(processes "^$vittrain .*run.dir=$work/orphan ") 2>/dev/null

# A signal during the opening of the data ends the pass for statistics before its first sample.
mkdir big
npy() {
    printf '\223NUMPY\001\000v\000%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': $2, }" >"$1"
    truncate -s $((128 + $3)) "$1"
}
npy big/x.npy '(64, 1, 8, 8)' 16384
npy big/y.npy '(64,)' 256
bad=$(signalled 2 zeros USR1 data_open:0 data.format=arrays data.root="$work/big" data.x=x data.y=y data.task=regression data.val=none \
    model.name=linear train.steps=1 train.batch=2)
bad="$bad$(has zeros.log 'stopped before the first step'; grep 'statistics of' zeros.log)"
result 'a signal ends the pass for statistics' "$bad" "$work/zeros.log"

# A signal during the final evaluation, in the middle of an epoch: two steps and many batches.
end="$small debug.fraction=1 data.val=0.5 train.global_batch=2 train.steps=2 model.depth=8 checkpoint.every=0 output.tensorboard=off"
bad=$(signalled 2 end USR1 evaluation:2 $end; stopped_otherwise end)
grep -q 'after step 2 is left to the next attempt' "$work/end.log" || bad="$bad evaluated"
run 2 end $end run.dir="$work/end"
run 2 straight $end run.dir="$work/straight"
for name in end straight; do
    epochs_of $name >"$work/$name.epochs"
    column "$work/$name/metrics.csv" val loss >"$work/$name.val"
done
for kind in epochs val; do
    bad=$bad$(diff "$work/straight.$kind" "$work/end.$kind")
done
bad=$bad$(cmp "$work/straight/weights.safetensors" "$work/end/weights.safetensors" 2>&1)
grep -q '"finished": true' "$work/end/result.json" || bad="$bad not finished"
result 'the evaluation at the end of a run is made by the next part' "$bad" "$work/end.log"
