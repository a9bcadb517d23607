#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# system
# Checkpoints in memory on several nodes. After the loss of a node, a run resumes with the copy of its state on another
# node, with a spare node or on fewer ranks. After the loss of two nodes it resumes from the disk.
. "$TEST_SOURCE/test/support/program.sh"

take_nodes 3
notice_soon
cluster hosts 2 >"$work/hosts"
second=$(cluster name 2) third=$(cluster name 3)
steps="$small train.epochs=2 checkpoint.every=0 checkpoint.memory=3 output.tensorboard=off mesh.heartbeat_timeout=5 mesh.strategy=fsdp"

# launch NAME RANKS OPTION...: train on the nodes of the host file, in the background.
launch() {
    run_log=$work/$1.log
    : >"$run_log"
    name=$1 ranks=$2
    shift 2
    on_first "$vittrain" launch -- mpirun -np "$ranks" -hostfile "$work/hosts" "$vittrain" run.dir="$work/$name" $steps "$@" \
        >"$run_log" 2>&1 </dev/null &
    job=$!
}

# ended PATTERN...: wait for `vittrain launch`; set `bad` if it fails or if its output lacks a pattern.
ended() {
    wait $job && bad= || bad="exit status $?;"
    bad="$bad$(has "$run_log" "$@")"
}

# whole RANKS: train without a fault.
whole() { on_first mpirun -np "$1" -hostfile "$work/hosts" "$vittrain" run.dir="$work/whole$1" $steps >"$work/whole.log" 2>&1 </dev/null; }

whole 4
result 'an undisturbed run' "$([ $? -eq 0 ] || echo "status $?")" "$work/whole.log"
result 'removes its folders in memory' "$(for i in 1 2 3; do cluster exec $i ls /dev/shm | grep vittrain; done)"

launch spare 4 debug.pause="backward:14:$work/spare.go"
paused 3 "$work/spare.go" >/dev/null
cluster crash 2
touch "$work/spare.go"
ended "no answer from $second: continuing with 4 ranks on the other hosts$" 'resuming from /dev/shm/.*: step 12,' \
    'interrupted in step 14: 2 steps are repeated'
result 'a node is lost and replaced by a spare one' "$bad" "$run_log"
result 'the weights are those of an undisturbed run' "$(cmp "$work/whole4/weights.safetensors" "$work/spare/weights.safetensors" 2>&1)"
cluster boot 2

launch fewer 6 debug.pause="backward:14:$work/fewer.go" mesh.elastic=yes
paused 5 "$work/fewer.go" >/dev/null
cluster crash 3
touch "$work/fewer.go"
ended "no answer from $third: continuing with 4 ranks on the other hosts .mesh.elastic" \
    'resuming from /dev/shm/.*: step 12,'
result 'a node is lost and the run continues on fewer ranks' "$bad" "$run_log"
cluster boot 3

launch two 6 debug.pause="backward:14:$work/two.go" mesh.elastic=yes checkpoint.every=0.2
paused 5 "$work/two.go" >/dev/null
cluster crash 2
cluster crash 3
touch "$work/two.go"
ended 'checkpoint in memory of step 12: some pieces are on no node' 'resuming from .*/two/checkpoints/step-'
result 'after the loss of a node and of its copies the run resumes from the disk' "$bad" "$run_log"
cluster boot 2
cluster boot 3

# interrupt STEP: train on two nodes and kill rank 1 in this step. `memory` is then the run's folder in memory.
interrupt() {
    rm -f "$work/returns.go"*
    on_first mpirun -np 4 -hostfile "$work/hosts" "$vittrain" run.dir="$work/returns" $steps debug.pause="backward:$1:$work/returns.go:1" \
        >"$work/returns.log" 2>&1 </dev/null &
    job=$!
    cluster exec 1 kill -9 "$(paused 1 "$work/returns.go")"
    wait $job
    memory=/dev/shm/vittrain-$(id -u)-$(head -n 1 "$work/returns/.memory")
}

# A node returns with a damaged checkpoint of a step that the other node has repeated since.
step12=step-00000012.h5
interrupt 14
cluster exec 1 mv "$memory/$step12" /dev/shm/earlier.h5
cluster exec 2 rm "$memory/$step12"
interrupt 14
cluster exec 1 sh -c "printf '\377\377' | dd status=none of=/dev/shm/earlier.h5 bs=1 seek=100000 conv=notrunc && mv /dev/shm/earlier.h5 $memory/$step12"
run_log=$work/returns.log
on_first mpirun -np 4 -hostfile "$work/hosts" "$vittrain" run.dir="$work/returns" $steps >"$run_log" 2>&1 </dev/null
bad="$([ $? -eq 0 ] || echo failed)$(has "$run_log" 'resuming from /dev/shm/.*: step 12,')"
result 'an incomplete checkpoint of a node does not replace that of another node' \
    "$bad$(cmp "$work/whole4/weights.safetensors" "$work/returns/weights.safetensors" 2>&1)" "$run_log"
