#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# system
# `vittrain launch`: a failed command is started again and resumes, with the result of an undisturbed run. A command
# that would fail again or got a signal to end is not restarted. No process of an attempt is left. What follows an attempt
# is checked by test_launch_policy.c.
. "$TEST_SOURCE/test/support/program.sh"
unset SLURM_JOB_ID # within Slurm, the host of rank 0 is unknown

steps="$small train.epochs=2 checkpoint.every=0.2 output.tensorboard=off"

# launch NAME WORD...: like `run`, with `vittrain launch`.
launch() {
    launch_name=$1
    shift
    run 1 "$launch_name" launch "$@"
}

# ended STATUS RESTARTS [PATTERN]: print a problem if the newest launch had another exit status or number of restarts,
# or printed no line that matches.
ended() {
    [ $status -eq "$1" ] || echo "exit status $status, not $1;"
    restarts=$(grep -c '^vittrain: launch: restart ' "$run_log")
    [ "$restarts" = "$2" ] || echo "$restarts restarts, not $2;"
    [ -z "${3:-}" ] || grep -qE "$3" "$run_log" || echo "no line \"$3\""
}

# check NAME STATUS RESTARTS [PATTERN]: print the result of `ended` as a TAP line.
check() { result "$1" "$(ended "$2" "$3" "${4:-}" | tr '\n' ' ')" "$run_log"; }

# script NAME TEXT: create an executable.
script() { printf '#!/bin/sh\n%s\n' "$2" >"$work/$1" && chmod +x "$work/$1"; }

# fault SIGNAL RANK PAUSE NAME PATTERN OPTION...: send the signal to the rank when it pauses. The restart line must match
# the pattern, and the run must end with the weights of an undisturbed run.
fault() {
    signal=$1 rank=$2 pause=$3 title=$4 pattern=$5
    shift 5
    rm -rf "$work/fault"
    rm -f "$work/go"*
    (kill "-$signal" "$(paused "$rank" "$work/go")" && touch "$work/go") &
    launch fault --restarts 2 -- $MPIRUN -np 2 "$vittrain" run.dir="$work/fault" $steps debug.pause="$pause:$work/go" mesh.heartbeat_timeout=4 "$@"
    wait
    bad=$(ended 0 1 "^vittrain: launch: restart 1 of 2 .*$pattern")
    result "$title" "$bad$(cmp "$work/whole/weights.safetensors" "$work/fault/weights.safetensors" 2>&1)" "$run_log"
}

run 2 whole run.dir="$work/whole" $steps
result 'an undisturbed run' "$([ $status -eq 0 ] || echo "status $status")" "$work/whole.log"
fault KILL 1 backward:13 'a run whose rank is killed is resumed' 'in 0 s, from step [1-9][0-9]* of .*: exit code '
fault KILL 0 folder:0 'a rank is killed before the run has a folder' 'from the beginning; .*exit code '
fault STOP 1 backward:13 'a rank is stopped' 'exit code '
fault KILL 1 backward:13 'a run resumes from a checkpoint in memory' 'from step 1[23] of ' checkpoint.every=0 checkpoint.memory=3
result 'of the newest step' "$(has "$run_log" 'resuming from /dev/shm/.*: step 12,')" "$run_log"

launch mistake --restarts 2 -- $MPIRUN -np 2 "$vittrain" run.dir="$work/mistake" $steps data.root="$work/nowhere"
check "a user's mistake is not restarted" 3 0 '^vittrain: error: '

# An mpirun that always returns 0.
script mpirun0 "$MPIRUN \"\$@\" 2>'$work/hidden'; exit 0"
(kill -KILL "$(paused 0 "$work/zero.go")" && touch "$work/zero.go") &
launch zero --restarts 2 -- "$work/mpirun0" -np 2 "$vittrain" run.dir="$work/zero" $steps debug.pause="data_open:0:$work/zero.go"
wait
check 'exit code 0 is a failure: a rank is killed before the run has a folder' 0 1 'exit code 0, but the run did not end'
launch done --restarts 2 -- "$work/mpirun0" -np 2 "$vittrain" run.dir="$work/zero" $steps
check 'exit code 0 is accepted: a finished run that has nothing to do' 0 0 'nothing to do'

launch never --restarts 0 -- sh -c 'kill -9 $$'
check 'without restarts the exit code is that of the command' 137 0 'gave up after 0 restarts: exit code 137 .signal 9'

# A run that fails, and a command and another process that then ignore SIGTERM.
mkdir "$work/hang"
script hangs "trap '' TERM; setsid sleep 1000.25 &
exec 9<>'$work/hang/.lock'; flock 9; echo attempt 1 running >&9; sleep 2; exec 9>&-; while :; do sleep 1000.25; done"
launch hangs --grace 1 --restarts 0 -- "$work/hangs" "$vittrain" run.dir="$work/hang" $steps
bad=$(ended 137 0 'the command did not end and was killed')
[ -z "$(processes 'sleep 1000[.]25')" ] || bad="$bad; something is left"
result 'a command that hangs after a failure is killed, with all that it started' "$bad" "$run_log"

# A memory limit: the kernel kills the process, and the cause is named.
group=/sys/fs/cgroup/memory$(sed -n 's/.*:memory://p' /proc/self/cgroup)
[ -d "$group" ] || group=/sys/fs/cgroup/memory
if mkdir "$group/vittrain-$$" 2>/dev/null; then
    echo 64M >"$group/vittrain-$$/memory.limit_in_bytes"
    launch memory --restarts 0 -- sh -c 'echo $$ >"$0/tasks"; tail /dev/zero' "$group/vittrain-$$"
    check 'a memory limit is named as the cause of a death' 137 0 'out of memory$'
    rmdir "$group/vittrain-$$"
else
    result 'a memory limit is named as the cause of a death # SKIP no cgroup v1 for memory'
fi

# A spare host takes the place of one that does not answer.
printf '%s:2\nlost slots=2\nfe80::1 slots=2\n' "$(hostname)" >"$work/hosts"
script agent "[ \"\$1\" = -q ] && [ \"\$2\" = fe80::1 ]"
script mpirun "[ -e '$work/second' ] && cat \"\$4\" >&2 && exit; touch '$work/second'; exit 205"
launch hosts --restarts 1 -- "$work/mpirun" -np 4 -f "$work/hosts" -mca plm_rsh_agent "$work/agent -q"
bad=$(ended 0 1 'no answer from lost: continuing with 4 ranks')
[ "$(grep -c '^lost' "$run_log")" = 0 ] || bad="$bad the lost host is used;"
result 'a spare host is used instead of a lost one' "$bad$(has "$run_log" '^fe80::1 slots=2')" "$run_log"
rm "$work/second"
OMPI_MCA_plm_rsh_agent=false launch waits --wait 0 --restarts 1 -- "$work/mpirun" -np 4 -f "$work/hosts"
check 'too few hosts answer' 9 1 '^vittrain: error: launch: no answer from lost, fe80::1 for 0 s'
rm "$work/second"
launch file --restarts 1 -- "$work/mpirun" -np 4 -f "$work/no_hosts"
check 'a host file that is missing' 2 1 "^vittrain: error: launch: .*$work/no_hosts"

# fails_with STATUS NAME PATTERN WORD...: launch with wrong words.
fails_with() {
    wrong_status=$1 wrong_name=$2 wrong_pattern=$3
    shift 3
    launch wrong "$@"
    check "$wrong_name" "$wrong_status" 0 "^vittrain: error: launch: .*$wrong_pattern"
}
fails_with 2 'an empty command' 'after --' -- ''
fails_with 2 'a command that is not there' "$work/nowhere/mpirun" -- "$work/nowhere/mpirun"
fails_with 2 'an unknown flag' '--retries' --retries 1 -- true
fails_with 2 'a number with a fraction' '--restarts' --restarts 1.5 -- true
OMPI_COMM_WORLD_RANK=0 fails_with 2 'launch under mpirun' 'mpirun' -- true

if [ "$TEST_MPI" != mpich ]; then
    launch session --restarts 0 -- $MPIRUN -np 1 sh -c 'ls -d "$OMPI_MCA_orte_tmpdir_base" >&2'
    folder=$(grep '/vittrain-......$' "$run_log")
    result 'mpirun gets a session folder of its own, which is removed' "$(ended 0 0)$([ -n "$folder" ] && [ ! -e "$folder" ] || echo "folder $folder")" "$run_log"
fi

run_log=$work/cancelled.log
timeout --preserve-status -s TERM 0.7 "$vittrain" launch -- false 2>"$run_log"
status=$?
check 'a signal before a restart' 9 1 '^vittrain: error: launch: cancelled by signal'

# A signal to end is passed on; the command is not restarted.
: >"$work/told.log"
"$vittrain" launch -- sh -c 'trap "exit 41" USR1; echo ready >&2; while :; do sleep 0.05; done' 2>"$work/told.log" &
told=$!
wait_for ready "$work/told.log"
kill -USR1 $told
wait $told
status=$? run_log=$work/told.log
check 'signals are passed on' 41 0 ready
"$vittrain" launch -- $MPIRUN -np 2 "$vittrain" run.dir="$work/term" $steps debug.pause="backward:3:$work/term.go" >"$work/term.log" 2>&1 </dev/null &
told=$!
paused 0 "$work/term.go" >/dev/null
kill -TERM $told
touch "$work/term.go"
wait $told
status=$? run_log=$work/term.log
check 'the first SIGTERM stops a run' 0 0 'stopped at step'
result 'with a checkpoint' "$([ -e "$work/term/checkpoints/last.h5" ] || echo none)" "$run_log"
