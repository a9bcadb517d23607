#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# All faults of docs/faults.md on 2 nodes of this machine (cluster.sh) with 4 ranks each: every rank killed in every
# phase of a run, a node down, a cut network, a full disk, a stopped rank, a folder that cannot be written, NaN on one rank.
# Each must end within 30 s with one line that names the rank or the host, leave no process on any node, lose no valid
# checkpoint, and continue with `vittrain launch` to the losses of an undisturbed run. Prints TAP; FAULTS_CSV gets a row for
# each. `make check-faults` takes about half an hour. To select some:
#   FAULTS="kill node cable stop disk folder nan" FAULTS_RANKS="0 1 ..." FAULTS_PHASES="backward:13 ..."

. "$TEST_SOURCE/test/support/environment.sh"
. "$TEST_SOURCE/test/support/program.sh"

take_nodes 2
tidy() { cluster down; umount "$work/small" 2>/dev/null; }

faults=${FAULTS:-kill node cable stop disk folder nan}
ranks=${FAULTS_RANKS:-0 1 2 3 4 5 6 7}
phases=${FAULTS_PHASES:-folder:0 forward:1 data:8 forward:13 backward:13 reduce:18 evaluation:25 checkpoint_write:15 checkpoint_name:15 results:50}
csv=${FAULTS_CSV:-$work/faults.csv}
[ -s "$csv" ] || echo fault,rank,phase,seconds,named,lines,left_over,went_on,checkpoint_kept,losses_equal >"$csv"

# 50 steps, a checkpoint every fifth, two evaluations.
steps="$small train.epochs=2 checkpoint.every=0.2 checkpoint.keep=3 output.tensorboard=off"
pause=$work/go # the ranks wait for this file
mkdir "$work/small" # a disk that can be filled
mount -t tmpfs -o size=24m tmpfs "$work/small"
cluster hosts 4 >"$work/hosts"

now() { date +%s.%N; }
since() { echo "$1 $(now)" | awk '{ printf "%.1f", $2 - $1 }'; }
host_of() { cluster name $(($1 / 4 + 1)); }

# in_node_1 NAME COMMAND...: runs the command in node 1, with its output in $work/NAME.log.
in_node_1() {
    run_log=$work/$1.log
    shift
    cluster exec 1 sh -c '. "$0/env.sh" && cd "$0" && exec "$@"' "$work" "$@" >"$run_log" 2>&1 </dev/null
}
mpirun_8="mpirun -np 8 -hostfile $work/hosts"

# job NAME WORD...: 8 ranks with `vittrain launch`, in the background.
job() {
    job_name=$1
    shift
    rm -rf "${work:?}/$job_name" "$pause" "$pause".*
    : >"$work/job.log"
    in_node_1 job "$vittrain" launch --restarts 2 -- $mpirun_8 "$vittrain" run.dir="$work/$job_name" $steps "$@" &
    job=$!
    run_log=$work/job.log
}

# ranks_of NODE: prints a line for each process of a job there: process ID, rank, name.
ranks_of() {
    cluster exec "$1" sh -c 'for p in $(pgrep "^(vittrain|orted|prted)"); do
        r=$(tr "\0" "\n" <"/proc/$p/environ" 2>/dev/null | sed -nE "s/^(OMPI_COMM_WORLD|PMI)_RANK=//p")
        n=$(cat "/proc/$p/comm" 2>/dev/null)
        [ -z "$r" ] && [ "$n" = vittrain ] || echo "$p ${r:--} $n"
    done' 2>/dev/null
}
everybody() { for node in 1 2; do ranks_of $node | sed "s/^/$node /"; done; }
process_of_rank() { awk -v rank="$1" '$3 == rank && $4 == "vittrain" { print $2 }' "$work/everybody"; }

# left_over: prints the processes that were running before the fault and still are.
left_over() {
    for node in 1 2; do
        processes=$(awk -v node=$node '$1 == node { printf "%s ", $2 }' "$work/everybody")
        [ -z "$processes" ] || cluster exec $node sh -c 'for p in "$@"; do
            s=$(sed "s/.*) //; s/ .*//" "/proc/$p/stat" 2>/dev/null) && [ "$s" != Z ] && echo "$p $(cat /proc/$p/comm) $s"
        done' sh $processes 2>/dev/null
    done
}

newest() { ls "$work/$job_name/checkpoints" 2>/dev/null | sed -n 's/^step-0*\([0-9]*\)\.h5$/\1/p' | sort -n | tail -n 1; }

# losses_are_equal: true if the job's losses and weights equal those of the undisturbed run.
losses_are_equal() {
    for split in train val; do
        column "$work/$job_name/metrics.csv" $split loss >"$work/job.$split"
        [ -z "$(differ "$work/whole.$split" "$work/job.$split" 0)" ] || return 1
    done
    cmp -s "$work/whole/weights.safetensors" "$work/$job_name/weights.safetensors"
}

yes_if() { if "$@"; then echo yes; else echo no; fi; }

# give_up: ends a job that does not end, on all nodes.
give_up() {
    for node in 1 2; do cluster exec $node pkill -9 -x 'mpirun|prterun|orted|prted|vittrain' 2>/dev/null; done
}

# judge FAULT RANK PHASE PATTERN RESTARTS: waits for the end of the case whose fault came at $fault_at; prints a row and a
# TAP line. The first line of failure or error must match. RESTARTS 0: the same command, given again, must continue.
judge() {
    : >"$pause"
    before=$(newest)
    if [ "$5" = 0 ]; then
        wait_until job_has_ended || give_up
        wait $job
    else
        wait_job=$job
        wait_for '^vittrain: (launch: restart|error: launch)' "$run_log" || give_up
        wait_job=
    fi
    seconds=$(since "$fault_at")
    sleep 0.5
    # On a node that is cut off the ranks end by themselves. Open MPI's daemon ends only when the network is back if data
    # were in flight, because TCP then retries for minutes in spite of keep-alive.
    remains=$(left_over | grep vittrain)
    until [ -z "$remains" ] || [ "$(since "$fault_at" | cut -d. -f1)" -ge 30 ]; do
        sleep 0.5
        remains=$(left_over | grep vittrain)
    done
    reports='vittrain: (failure|error): |noticed that process rank '
    lines=$(sed '/^vittrain: launch: restart/,$d; /^vittrain: error: launch/,$d' "$run_log" | grep -cE "$reports")
    named=$(grep -E "$reports" "$run_log" | head -n 1 | { grep -cE "$4" || true; })
    undo
    tries=0
    until [ -n "$remains" ] || [ -z "$(left_over)" ] || [ $tries -gt 20 ]; do
        sleep 0.5
        tries=$((tries + 1))
    done
    [ -n "$remains" ] || remains=$(left_over)
    if [ "$5" = 0 ]; then
        from=$(newest)
        cp "$run_log" "$work/first.log"
        in_node_1 job $mpirun_8 "$vittrain" run.dir="$work/$job_name" $steps
        status=$?
        cat "$work/first.log" "$run_log" >"$work/both.log"
        run_log=$work/both.log
    else
        from=$(sed -n 's/^vittrain: launch: restart .* from step \([0-9]*\) of .*/\1/p' "$run_log" | head -n 1)
        wait $job
        status=$?
    fi
    kept=$(yes_if [ "${from:-0}" -ge "${before:-0}" ])
    row="$1,$2,$3,$seconds,$(yes_if [ "$named" = 1 ]),$lines,$(echo "$remains" | grep -c .),$(yes_if [ $status = 0 ]),$kept,$(yes_if losses_are_equal)"
    echo "$row" >>"$csv"
    echo "$row" | grep -qE ',yes,1,0,yes,yes,yes$' && [ "$(echo "$seconds" | cut -d. -f1)" -lt 30 ] && bad= || bad="$row"
    [ -z "$bad" ] || echo "$remains" >>"$run_log"
    result "$1 $2 $3, $seconds s" "$bad" "$run_log"
}
undo() { eval "$undone"; }
job_has_ended() { ! kill -0 $job 2>/dev/null; }

# at PHASE RANK: waits until that rank pauses in the phase; records all processes.
at() {
    if ! wait_job=$job wait_until test -s "$pause.$2"; then
        result "$1: rank $2 came there" "it did not" "$run_log"
        give_up
        wait $job
        return 1
    fi
    everybody >"$work/everybody"
    fault_at=$(now)
}

in_node_1 whole $mpirun_8 "$vittrain" run.dir="$work/whole" $steps
result 'a run that nothing disturbs' "$([ -s "$work/whole/weights.safetensors" ] || echo failed)" "$run_log"
for split in train val; do column "$work/whole/metrics.csv" $split loss >"$work/whole.$split"; done

# inject FOLDER PHASE:STEP RANK NAME PATTERN RESTARTS COMMAND [UNDO]: a run in FOLDER; when RANK pauses there, COMMAND is the
# fault of the ranks NAME, which UNDO undoes after the job. See judge for the others.
inject() {
    undone=${8:-:}
    job "$1" debug.pause="$2:$pause"
    at "$2" "$3" || return
    eval "$7"
    judge "$fault" "$4" "${2%:*}" "$5" "$6"
}

second=$(host_of 5) node_is_gone="ranks? [4-7-]* on $(host_of 5)"
for fault in $faults; do
    case $fault in
    kill)
        for phase in $phases; do
            for rank in $ranks; do
                inject cut "$phase" "$rank" "$rank" "rank $rank with PID [0-9]* on node $(host_of "$rank") exited on signal 9" 1 \
                    'cluster exec $((rank / 4 + 1)) kill -9 "$(process_of_rank "$rank")"'
            done
        done
        ;;
    stop) inject cut backward:13 5 5 "rank 5 on $second" 1 'cluster exec 2 kill -STOP "$(process_of_rank 5)"' ;;
    node) inject cut backward:13 5 4-7 "$node_is_gone" 1 'cluster crash 2' 'cluster boot 2' ;;
    cable) inject cut backward:13 5 4-7 "$node_is_gone" 1 'cluster link 2 down' 'cluster link 2 up' ;;
    disk)
        inject small/cut backward:13 0 - 'error: .*small/cut.*(full|No space)' 0 \
            'dd if=/dev/zero of="$work/small/all" bs=64k 2>/dev/null' 'rm "$work/small/all"'
        ;;
    folder)
        inject small/cut backward:13 0 - 'error: .*small/cut/checkpoints' 0 \
            'chattr +i "$work/small/cut/checkpoints"' 'chattr -i "$work/small/cut/checkpoints"'
        ;;
    nan)
        inject cut data:14 5 5 "error: .*rank 5 on $second" 0 \
            'cluster exec 2 python3 "$TEST_SOURCE/test/comm/plant_nan.py" "$(process_of_rank 5)"'
        ;;
    esac
done
