#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# system
# A rank that is alive but makes no progress is named while the others wait for it (mesh.stall_warning), once, and again
# when it continues. Nobody is named if all ranks are equally slow, while a checkpoint is written, or after processes were
# stopped and continued. The runs overlap.
. "$TEST_SOURCE/test/support/program.sh"

# start NAME WORD...: 3 ranks in the background, with a TMPDIR of their own because mpirun's session folders may collide.
start() {
    name=$1
    shift
    mkdir "$work/$name.tmp"
    TMPDIR=$work/$name.tmp \
        timeout $time_limit $MPIRUN -np 3 "$vittrain" $small run.dir="$work/$name" output.logbook= output.tensorboard=off data.val=none \
        checkpoint.every=0 mesh.stall_warning=1 "$@" >"$work/$name.log" 2>&1 </dev/null &
    eval "$name=$!"
}

# ended NAME: wait for the run; set $status.
ended() {
    eval "wait \$$1"
    status=$?
}

# named NAME COUNT PATTERN: print what is wrong with the lines of the run about stalled ranks.
named() {
    lines=$(grep -c '^warning: stalled: .* wait' "$work/$1.log")
    [ "$lines" = "$2" ] || echo "$lines lines about stalled ranks;"
    [ "$2" = 0 ] || grep -a '^warning: stalled: ' "$work/$1.log" | grep -qE "$3" || echo "no \"$3\""
}

# signal_ranks NAME SIGNAL [RANKS]: send a signal to the ranks of a run, or to the last RANKS of them.
signal_ranks() {
    for process in $(processes "^$vittrain .*run.dir=$work/$1 " | tail -n "${3:-3}"); do kill -"$2" "$process"; done
}

start stuck train.steps=1200 debug.pause="backward:20:$work/stuck.go:1"
start data train.steps=40 mesh.timeout=3 debug.pause="data:20:$work/data.go:0"
start checkpoint train.steps=40 checkpoint.every=0.4 debug.pause="checkpoint_write:20:$work/checkpoint.go:0"
start stopped train.steps=100000 debug.pause="backward:20:$work/stopped.go" # all ranks
paused 2 "$work/stopped.go" >/dev/null
paused 0 "$work/checkpoint.go" >/dev/null
sleep 3
touch "$work/stopped.go" "$work/checkpoint.go"
wait_for '^warning: stalled: ' "$work/stuck.log"
touch "$work/stuck.go"
wait_for ',24,train,' "$work/stopped/metrics.csv"
signal_ranks stopped STOP
sleep 2.5
signal_ranks stopped CONT
sleep 0.4
signal_ranks stopped STOP 1
sleep 3.5
signal_ranks stopped CONT 1
sleep 0.4
signal_ranks stopped USR1 1
ended stuck
bad=$(named stuck 1 'rank 1 on [^ ]+ \(in backward[^;]*, step 20, for [0-9]+\.[0-9] s; .*; [12] ranks? waits? for (it|them); .* mesh.timeout=600 s')
[ $status = 0 ] || bad="$bad exit status $status;"
grep -q '^warning: stalled: rank 1 on .* continues after [0-9]' "$work/stuck.log" || bad="$bad it does not continue"
result 'a rank that is stuck is named' "$bad" "$work/stuck.log"

ended data
bad=$(named data 1 'rank 0 on [^ ]+ \(in the wait for data, step 20, ')
[ $status != 0 ] && [ $status != 124 ] || bad="$bad exit status $status;"
grep -q '^vittrain: failure: .*missing: rank 0 on .*in the wait for data' "$work/data.log" || bad="$bad not ended by mesh.timeout"
result 'rank 0 that waits for its data is named before mesh.timeout ends the run' "$bad" "$work/data.log"

ended checkpoint
bad=$(named checkpoint 0)
[ $status = 0 ] || bad="$bad exit status $status"
result 'nobody is named while a checkpoint is written' "$bad" "$work/checkpoint.log"

ended stopped
bad=$(named stopped 0)
[ $status = 0 ] || bad="$bad exit status $status"
result 'nobody is named if all ranks are slow, or after processes were stopped and continued' "$bad" "$work/stopped.log"
