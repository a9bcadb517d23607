#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# system
# Two nodes with private disks: the program detects at its start that the run folder is not shared, and the first node
# writes for all. A run that is resumed there equals one on a shared disk, bit for bit. If the second node is lost with
# its disk, `vittrain launch` continues with another one.
. "$TEST_SOURCE/test/support/program.sh"

take_nodes 2
# /tmp is private to a node and empty after a restart; $work is shared.
notice_soon
cluster hosts 2 >"$work/hosts"
steps="$small train.epochs=2 output.tensorboard=off"
mpirun_4="mpirun -np 4 -hostfile $work/hosts"

# nodes NAME WORD...: train on 4 ranks on both nodes.
nodes() {
    run_log=$work/$1.log run_ranks=4
    shift
    on_first timeout $time_limit $mpirun_4 "$vittrain" "$@" >"$run_log" 2>&1 </dev/null
    status=$?
}

nodes shared $steps run.dir="$work/shared"
result 'two nodes on a shared disk' "$(ended; has "$run_log" '4 ranks on 2 nodes')" "$run_log"
nodes private $steps run.dir=/tmp/private train.epochs=1
result 'two nodes with private disks' "$(ended)" "$work/private.log"
result 'the first node has the checkpoints' "$(
    cluster exec 1 test -e /tmp/private/checkpoints/last.h5 || echo 'not the first'
    cluster exec 2 test ! -e /tmp/private/checkpoints/last.h5 || echo 'the second')" "$run_log"
nodes resumed $steps run.dir=/tmp/private
result 'a run is resumed there' "$(has "$work/resumed.log" 'resuming from .*step-00000025.h5')" "$work/resumed.log"
cluster exec 1 cp /tmp/private/weights.safetensors "$work/private.safetensors"
result 'and gives the same bits' "$(cmp "$work/shared/weights.safetensors" "$work/private.safetensors" 2>&1)" \
    "$work/resumed.log"
nodes refused $steps run.dir=/tmp/refused checkpoint.writers=all
result 'checkpoint.writers=all is refused there' "$(failed_otherwise 2 checkpoint.writers)" "$run_log"

run_log=$work/lost.log
: >"$run_log"
for node in 1 2; do cluster exec $node cp -r "$TEST_BUILD/data/cifar-10-sample" /tmp/data; done
on_first timeout $time_limit "$vittrain" launch -- $mpirun_4 "$vittrain" $steps data.root=/tmp/data run.dir=/tmp/run \
    debug.pause="backward:38:$work/lost.go" mesh.heartbeat_timeout=5 >"$run_log" 2>&1 </dev/null &
job=$!
paused 3 "$work/lost.go" >/dev/null
cluster crash 2
touch "$work/lost.go"
wait_for "no answer from $(cluster name 2): waiting" "$run_log" && bad= || bad='not waited for;'
cluster boot 2
cluster exec 2 test -e /tmp/run && bad="$bad its disk is as it was;"
cluster exec 2 cp -r "$TEST_BUILD/data/cifar-10-sample" /tmp/data
wait $job
status=$?
result 'a node is lost with its disk, and another in its place goes on' \
    "$bad$(ended; has "$run_log" 'resuming from /tmp/run/checkpoints/step-00000025.h5')" "$run_log"
cluster exec 1 cp /tmp/run/weights.safetensors "$work/lost.safetensors"
result 'with the same bits' "$(cmp "$work/shared/weights.safetensors" "$work/lost.safetensors" 2>&1)" "$run_log"
result 'the checkpoints are on the first node alone' "$(cluster exec 2 ls /tmp/run/checkpoints)" "$run_log"
