#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Random faults with checkpoints in memory, on one node and on 2 nodes of this machine (cluster.sh): a rank, all ranks of a
# node or mpirun is killed at a random time or in a phase of a checkpoint or of a restart; a node is lost; a file in memory
# is changed, cut or removed. After each fault the same command is given again. Each run must end with the weights of an
# undisturbed run, and repeat at most checkpoint.memory steps per restart unless a file was damaged. Prints a TAP line for each
# run. Part of `make check-faults`.
#   FAULTS_COUNT=300 FAULTS_SEED=1

. "$TEST_SOURCE/test/support/environment.sh"
. "$TEST_SOURCE/test/support/program.sh"

take_nodes 2
tidy() {
    cluster down
    for run in "$work"/run*/.memory; do [ ! -e "$run" ] || rm -rf "/dev/shm/vittrain-$(id -u)-$(head -n 1 "$run")"; done
}
cluster hosts 4 >"$work/hosts"
mkdir "$work/segments" # else Open MPI leaves its segments in /dev/shm if mpirun is killed
export OMPI_MCA_btl_vader_backing_directory="$work/segments"
count=${FAULTS_COUNT:-300} seed=${FAULTS_SEED:-1}
steps="$small train.epochs=2 checkpoint.every=0.45 checkpoint.keep=2 output.tensorboard=off mesh.heartbeat_timeout=5"

# draw N: set $drawn to a random number from 0 to N - 1; the sequence depends on the seed only.
state=$seed
draw() {
    state=$(((state * 1103515245 + 12345) % 2147483648))
    drawn=$((state / 65536 % $1))
}

# pick WORD...: set $picked to a random one.
pick() {
    draw $#
    shift $drawn
    picked=$1
}

# on NODE COMMAND...: run it where the ranks of the run are: in that node, or here.
on() {
    place=$1
    shift
    if [ "$nodes" = 2 ]; then cluster exec "$place" "$@"; else "$@"; fi
}

# begin NAME OPTION...: start training in the background.
begin() {
    log=$work/$1.log command="$vittrain run.dir=$work/$1 $steps $setting"
    shift
    : >"$log"
    if [ "$nodes" = 2 ]; then
        cluster exec 1 sh -c '. "$0/env.sh" && cd "$0" && exec "$@"' "$work" timeout 120 mpirun -np 8 -hostfile "$work/hosts" \
            $command "$@" >"$log" 2>&1 </dev/null &
    else
        timeout 120 $MPIRUN -np "$ranks" $command "$@" >"$log" 2>&1 </dev/null &
    fi
    job=$!
}

# ends: wait for the job and for ranks that outlive mpirun; append to `bad`.
ends() {
    wait $job
    status=$?
    [ $status -ne 124 ] || bad="$bad a timeout;"
    for node in $(seq "$nodes"); do
        wait_until is_idle "$node" || bad="$bad ranks are left;"
    done
    repeated=$(sed -n 's/.* interrupted in step [0-9]*: \([0-9]*\) step.*/\1/p' "$log")
    [ $damaged = yes ] || [ "${repeated:-0}" -le "$every" ] || bad="$bad $repeated steps were repeated;"
}
ranks_on() { on "$1" pgrep -f "^$vittrain run.dir=$work/$run "; }
is_idle() { [ -z "$(ranks_on "$1")" ]; }

# strike WHAT NODE: one fault.
strike() {
    case $1 in
    rank)
        processes=$(ranks_on "$2")
        [ -z "$processes" ] || { pick $processes && on "$2" kill -9 "$picked" 2>/dev/null; }
        ;;
    all) on "$2" pkill -9 -f "^$vittrain run.dir=$work/$run " ;;
    mpirun) on 1 pkill -9 -f "^mpirun .* run.dir=$work/$run " ;;
    node)
        cluster crash 2
        cluster boot 2
        ;;
    esac
}

# damage HOW NODE: change, cut or remove the newest file in memory of a node.
damage() {
    [ -e "$work/$run/.memory" ] || return 0
    victim=$(on "$2" sh -c 'ls "$0"/step-*.h5 2>/dev/null | tail -n 1' "/dev/shm/vittrain-$(id -u)-$(head -n 1 "$work/$run/.memory")")
    [ -n "$victim" ] || return 0
    damaged=yes
    draw 200000
    case $1 in
    change) on "$2" sh -c 'printf "\377" | dd of="$0" bs=1 seek=$(($1 % $(stat -c %s "$0"))) conv=notrunc 2>/dev/null' "$victim" $drawn ;;
    cut) on "$2" truncate -s $drawn "$victim" ;;
    remove) on "$2" rm "$victim" ;;
    esac
}

# configure: draw the number of nodes and ranks, and the options of a run.
configure() {
    pick 1 1 1 2 && nodes=$picked
    pick 1 2 3 4 && ranks=$picked
    [ "$nodes" = 1 ] || ranks=8
    pick 1 2 3 5 7 && every=$picked
    pick ddp zero1 fsdp hsdp && setting="checkpoint.memory=$every mesh.strategy=$picked"
    pick adamw sgd muon && setting="$setting optim.name=$picked"
    pick 0 0.9 && setting="$setting optim.ema=$picked"
}

# disturb: start the run; one fault in a phase or at a time; now and then damage a file before the next start.
disturb() {
    draw 3
    if [ $drawn = 0 ]; then
        draw "$ranks" && rank=$drawn
        draw 45 && step=$((drawn + 2)) multiple=$((drawn / every * every + every))
        pick checkpoint_memory:$multiple checkpoint_name:$multiple backward:$step weights_read:0
        rm -f "$work/go.$rank"
        begin "$run" debug.pause="$picked:$work/go:$rank"
        wait_job=$job
        wait_until test -s "$work/go.$rank"
        wait_job=
    else
        begin "$run"
        draw 8 && drawn=$((drawn * nodes))
        sleep "$((drawn / 10)).$((drawn % 10))"
    fi
    draw "$nodes" && node=$((drawn + 1))
    pick rank rank rank all mpirun node
    [ $picked.$nodes != node.1 ] || picked=rank
    strike "$picked" $node
    ends
    draw 6
    [ $drawn != 0 ] || { pick change cut remove && damage "$picked" $node; }
}

faults=0 runs=0
while [ $faults -lt "$count" ]; do
    runs=$((runs + 1)) run=run$runs bad= damaged=no
    configure
    begin whole
    ends
    [ $status -eq 0 ] || bad="$bad exit status $status of the undisturbed run;"
    draw 5
    for try in $(seq $((drawn + 2))); do
        ! finished "$work/$run" || break
        disturb
        [ $status -eq 0 ] || faults=$((faults + 1)) # else the run had ended
    done
    finished "$work/$run" || { begin "$run" && ends; }
    cmp -s "$work/whole/weights.safetensors" "$work/$run/weights.safetensors" || bad="$bad other weights;"
    result "$setting, $ranks ranks on $nodes; $faults faults" "$bad" "$log"
    rm -rf "$work/whole" "${work:?}/$run"
done
