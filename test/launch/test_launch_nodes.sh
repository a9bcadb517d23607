#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# system
# `vittrain launch` when a node is lost: with mesh.elastic=yes it continues on the other nodes, otherwise it waits for
# the node and uses it again.
. "$TEST_SOURCE/test/support/program.sh"

take_nodes 2
notice_soon
cluster hosts 2 >"$work/hosts"
second=$(cluster name 2)
steps="$small train.epochs=2 checkpoint.every=0.2 output.tensorboard=off mesh.heartbeat_timeout=5"

# launch NAME WORD...: 4 ranks on 2 nodes, in the background.
launch() {
    run_log=$work/$1.log
    : >"$run_log"
    shift
    on_first "$vittrain" launch "$@" >"$run_log" 2>&1 </dev/null &
    job=$!
}

# line PATTERN: wait for a line that matches; print a problem if there is none.
line() { wait_job=$job wait_for "$1" "$run_log" || echo "no line \"$1\";"; }

# ended: wait for the launch; add its exit status to `bad` if it fails.
ended() {
    wait $job
    status=$?
    [ $status = 0 ] || bad="$bad exit status $status"
}

mpirun_4="mpirun -np 4 -hostfile $work/hosts"
launch elastic -- $mpirun_4 "$vittrain" run.dir="$work/elastic" $steps mesh.elastic=yes debug.pause=backward:13:3
line 'debug.pause: rank 3'
cluster crash 2
bad=$(line "launch: no answer from $second: continuing with 2 ranks")
ended
result 'without the node that is off, on fewer ranks' "$bad" "$run_log"
bad=$(grep -q '2 ranks on 1 node' "$run_log" || echo 'not 2 ranks')
result 'and to its end' "$bad$(finished "$work/elastic" || echo 'no result')" "$run_log"

cluster boot 2
launch waits -- $mpirun_4 "$vittrain" run.dir="$work/waits" $steps debug.pause=backward:13:3
line 'debug.pause: rank 3'
cluster crash 2
bad=$(line "launch: no answer from $second: waiting for at most 300 s")
cluster boot 2
ended
result 'a node is waited for' "$bad" "$run_log"
[ "$(grep -c '4 ranks on 2 nodes' "$run_log")" = 2 ] && bad= || bad='not on both again'
result 'and used again' "$bad" "$run_log"
