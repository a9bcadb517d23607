#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# system
# `vittrain launch`: a failed command is started again and resumes, with the result of an undisturbed run. A command
# that would fail again or got a signal to end is not restarted. No process of an attempt is left.
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

# check NAME STATUS RESTARTS PATTERN: print the result of `ended` as a TAP line.
check() { result "$1" "$(ended "$2" "$3" "$4" | tr '\n' ' ')" "$run_log"; }

# strike NAME SIGNAL RANK: when this rank of the launch NAME waits in debug.pause, send it the signal. In the background.
strike() {
    : >"$work/$1.log"
    (kill "-$2" "$(paused "$3" "$work/$1.log")") &
}

# fault PHASE SIGNAL RANK NAME PATTERN: send the signal to the rank while all ranks pause in the phase. The restart line
# must match the pattern, and the run must end with the weights of an undisturbed run.
fault() {
    rm -rf "$work/fault"
    strike fault "$2" "$3"
    launch fault --restarts 2 -- $MPIRUN -np 2 "$vittrain" run.dir="$work/fault" $steps debug.pause="$1:2" mesh.heartbeat_timeout=4
    bad=$(ended 0 1)
    wait
    grep '^vittrain: launch: restart' "$run_log" | grep -qE "$5" || bad="$bad; not \"$5\""
    bad=$bad$(cmp "$work/whole/weights.safetensors" "$work/fault/weights.safetensors" 2>&1)
    result "$4" "$bad" "$run_log"
}

run 2 whole run.dir="$work/whole" $steps
result 'an undisturbed run' "$([ $status -eq 0 ] || echo "status $status")" "$work/whole.log"

fault backward:13 KILL 1 'a run whose rank is killed is resumed' 'restart 1 of 2 in 0 s, from step [1-9][0-9]* of '
column "$work/whole/metrics.csv" train loss >"$work/whole.loss"
column "$work/fault/metrics.csv" train loss >"$work/fault.loss"
result 'a resumed run has the losses of an undisturbed run, each once' "$(differ "$work/whole.loss" "$work/fault.loss" 0)" "$work/fault.log"

killed_0='rank 0 on .* was killed by signal 9 \(Killed\); probable cause: '
killed_1='rank 1 on .* was killed by signal 9 \(Killed\); probable cause: '
# MPICH's mpirun does not report the rank.
[ "$TEST_MPI" != mpich ] || killed_0='exit code (9 |0, but the run did not end)' killed_1=$killed_0
fault evaluation:25 KILL 0 'a rank is killed in an evaluation' "$killed_0"
fault checkpoint_name:15 KILL 1 'a rank is killed while a checkpoint is renamed' "$killed_1"
fault folder:0 KILL 1 'a rank is killed before the run has a folder' "$killed_1"
fault backward:13 STOP 1 'a rank is stopped' 'rank 1 on .*: no heartbeat for [0-9]+\.'

# unnamed NAME OPTION...: launch a run without run.dir and kill a rank before the first checkpoint on disk.
unnamed() {
    name=$1
    shift
    strike "$name" KILL 1
    launch "$name" --restarts 3 -- $MPIRUN -np 2 "$vittrain" run.name="$name" $steps "$@" checkpoint.every=0 debug.pause=backward:13:2
    wait
}

unnamed new
check 'a run without run.dir and without a checkpoint is trained once more, in a new folder' 0 1 'from the beginning'
unnamed memory checkpoint.memory=3
bad=$(ended 0 1 'resuming from /dev/shm/.*: step 12,')$(cmp "$work/whole/weights.safetensors" runs/memory-*/weights.safetensors 2>&1)
result 'one with a checkpoint in memory resumes from it' "$bad" "$run_log"

launch mistake --restarts 2 -- $MPIRUN -np 2 "$vittrain" run.dir="$work/mistake" $steps data.root="$work/nowhere"
check "a user's mistake is not restarted" 3 0 '^vittrain: error: '
launch number --restarts 2 -- $MPIRUN -np 2 "$vittrain" run.dir="$work/number" $small optim.lr=1e30 schedule.warmup=0
check 'a loss that is not finite is not restarted' 7 0 '^vittrain: error: '

# srun's line about a death.
launch slurm --restarts 1 -- sh -c 'echo "srun: error: node7: task 5: Killed" >&2; exit 137'
check 'the death of a rank is read from a line of srun' 9 1 \
    'restart 1 of 1 .*: rank 5 on node7 was killed: Killed; probable cause: .* see dmesg on node7$'

launch tasks --restarts 0 -- sh -c 'echo "srun: error: node7: tasks 2-3: Killed" >&2; exit 137'
check 'the death of several ranks is read from a line of srun' 137 0 'gave up.*: ranks 2-3 on node7 were killed: Killed;'
launch prterun --restarts 1 -- sh -c 'printf "prterun noticed that process rank 5 with PID 17 on node n2 exited on\nsignal 9 (Killed).\n" >&2; exit 137'
check 'the death of a rank is read from two lines of Open MPI 5' 9 1 \
    'restart 1 of 1 .*: rank 5 on n2 was killed by signal 9 \(Killed\); probable cause: .* see dmesg on n2$'

# A memory limit: the kernel kills the process, and the probable cause is named.
group=/sys/fs/cgroup/memory$(sed -n 's/.*:memory://p' /proc/self/cgroup)
[ -d "$group" ] || group=/sys/fs/cgroup/memory
if mkdir "$group/vittrain-$$" 2>/dev/null; then
    echo 64M >"$group/vittrain-$$/memory.limit_in_bytes"
    run_log=$work/memory.log
    sh -c 'echo $$ >"$0/tasks"; exec "$@"' "$group/vittrain-$$" "$vittrain" launch --restarts 0 -- $MPIRUN -np 1 \
        tail /dev/zero >"$run_log" 2>&1 </dev/null
    result 'a memory limit is named as the cause of a death' \
        "$(grep -q 'probable cause: out of memory (the memory limit' "$run_log" || echo 'not named')" "$run_log"
    rmdir "$group/vittrain-$$"
else
    number=$((number + 1))
    echo "ok $number - a memory limit is named as the cause of a death # SKIP no cgroup v1 for memory"
fi

mkdir "$work/bin" && printf '%s:2\nfe80::1 slots=2\n' "$(hostname)" >"$work/hosts"
printf '#!/bin/sh\n[ "$1" = fe80::1 ]\n' >"$work/bin/agent" && chmod +x "$work/bin/agent"
printf '#!/bin/sh\n[ -e "$0.once" ] || { touch "$0.once"; exit 9; }\n' >"$work/bin/mpirun" && chmod +x "$work/bin/mpirun"
launch colon --restarts 1 -- "$work/bin/mpirun" -np 2 -f "$work/hosts" -mca plm_rsh_agent "$work/bin/agent"
result 'host files with colons are read: those of MPICH, and IPv6 addresses' "$(ended 0 1; grep 'no answer' "$run_log")" "$run_log"

# Launchers that exit with 0, or hang, after a failure.
failure='echo "vittrain: failure: rank 3 on node: killed" >&2'
launch zero --restarts 5 -- sh -c "$failure"
check 'exit code 0 is a failure: a rank reported one; after two attempts without progress launch gives up' \
    9 1 'gave up after 1 restart, two in a row without a new checkpoint: rank 3'
launch again --restarts 1 -- sh -c "[ -e '$work/once' ] && exit 0; touch '$work/once'; $failure; exit 9"
check 'a command that fails once succeeds the next time' 0 1 'rank 3 on node: killed$'
printf '#!/bin/sh\n[ -e "$0.once" ] && exec "$@"\n: >"$0.once"; mkdir -p "%s"; echo attempt 1 running >"%s/.lock"\n' \
    "$work/lost" "$work/lost" >"$work/loses" && chmod +x "$work/loses"
launch lost --restarts 1 -- "$work/loses" "$vittrain" run.dir="$work/lost" $small
check 'exit code 0 is a failure: the run did not end' 0 1 'exit code 0, but the run did not end'

# An mpirun that always returns 0 and prints nothing on stderr.
printf '#!/bin/sh\n%s "$@" 2>"%s"\nexit 0\n' "$MPIRUN" "$work/hidden" >"$work/mpirun0" && chmod +x "$work/mpirun0"

# hidden SIGNAL NAME WORD...: launch mpirun0 and send the signal to rank 0 before the run folder is opened.
hidden() {
    hidden_signal=$1 hidden_name=$2
    shift 2
    : >"$work/hidden"
    (kill "-$hidden_signal" "$(paused 0 "$work/hidden")") &
    launch "$hidden_name" --restarts 2 -- "$work/mpirun0" -np 2 "$vittrain" run.dir="$work/early" $steps "$@" debug.pause=data_open:0:2
    wait
}

hidden KILL early_new
check 'exit code 0 is a failure: a rank is killed before the run has a folder' 0 1 'exit code 0, but the run did not end'
hidden KILL early_again train.epochs=3
check 'exit code 0 is a failure: a run that continues a finished one is killed' 0 1 'exit code 0, but the run did not end'
launch early_done --restarts 2 -- "$work/mpirun0" -np 2 "$vittrain" run.dir="$work/early" $steps train.epochs=3
check 'exit code 0 is accepted: a finished run that has nothing to do' 0 0 'nothing to do'
hidden USR1 early_stop train.epochs=4
check 'exit code 0 is accepted: a run that a signal stops before its first step' 0 0 'stopped before the first step'
launch early_off --restarts 2 -- "$work/mpirun0" -np 2 "$vittrain" run.dir="$work/off" $small train.steps=2 output.csv=no output.logbook= output.tensorboard=off
check 'exit code 0 is accepted: a run that writes few files' 0 0
launch early_version --restarts 2 -- "$work/mpirun0" -np 1 "$vittrain" --version
check 'exit code 0 is accepted: a command that is not a run' 0 0
launch early_skip --restarts 2 -- sh -c : "$vittrain" run.dir="$work/early" $steps
check 'exit code 0 is accepted: a script that does not start a finished run' 0 0
mkdir "$work/old" && : >"$work/old/.lock"
launch early_old --restarts 2 -- sh -c : "$vittrain" run.dir="$work/old" $steps
check 'exit code 0 is accepted: a script that does not start a run of an older version' 0 0
echo elsewhere >"$work/far_hosts"
launch far --restarts 2 -- "$work/bin/mpirun" -f "$work/far_hosts" "$vittrain" run.dir="$work/far"
bad=$(ended 0 0)
launch moved --restarts 2 -- "$work/bin/mpirun" -wdir elsewhere "$vittrain" run.dir=moved
result 'exit code 0 is accepted: a run whose folder is elsewhere' "$bad$(ended 0 0)" "$run_log"

launch nul --restarts 0 -- sh -c 'printf "aborted\n\0vittrain: failure: rank 3 on node: killed\n" >&2; exit 9'
check 'a NUL byte before a line, as Open MPI 5 writes, is dropped' 9 0 'gave up.*: rank 3 on node: killed$'
launch hang --grace 0.5 --restarts 0 -- sh -c "$failure; setsid sh -c 'trap \"\" TERM; sleep 1000.25' & trap '' TERM; sleep 1000.25"
bad=$(ended 137 0)
[ -z "$(processes 'sleep 1000[.]25')" ] || bad="$bad; something is left"
result 'a command that hangs after a failure is killed, with all that it started' "$bad" "$work/hang.log"
launch wrong --restarts 2 -- $MPIRUN --nonsense
check 'an mpirun with a wrong option is not restarted' 9 0 'gave up after 0 restarts, mpirun failed before the run began: the command ended with exit code [0-9]+ and no line of vittrain'
printf '%s\nother\n' "$(hostname)" >"$work/two_hosts" && printf '#!/bin/sh\n[ "$1" = other ]\n' >"$work/bin/agent2" && chmod +x "$work/bin/agent2"
rm "$work/bin/mpirun.once" && printf '#!/bin/sh\n[ -e "$0.once" ] || { touch "$0.once"; echo no daemon >&2; exit 1; }\n' >"$work/bin/mpirun"
launch two_hosts --restarts 1 -- "$work/bin/mpirun" -f "$work/two_hosts" -mca plm_rsh_agent "$work/bin/agent2"
check 'an mpirun that cannot reach a host is restarted' 0 1
launch code --restarts 1 -- sh -c 'exit 132'
check 'an exit code above 128 is not reported as a signal' 9 1 'the command ended with exit code 132 and no line'
launch signal --restarts 0 -- sh -c 'kill -9 $$'
check 'the signal that killed the command is reported' 137 0 'gave up.*: the command was killed by signal 9 \(Killed\)$'
launch line --restarts 0 -- sh -c 'printf unfinished >&2; exit 1'
check 'a last line without a newline gets one' 1 0 '^unfinished$'
launch empty -- ''
check 'an empty command' 2 0 'launch: no command after --'
launch none -- "$work/nowhere/mpirun"
check 'a command that is not there' 2 0 '^vittrain: error: launch: cannot start .*/nowhere/mpirun: No such file'
mkdir "$work/program" "$work/closed" && chmod 0 "$work/closed"
launch folder -- "$work/program"
check 'a command that is a folder' 2 0 "^vittrain: error: launch: cannot start $work/program: it is a folder"
PATH=$work/closed:$PATH launch absent -- no-such-mpirun
check 'a command that is not in PATH' 2 0 'cannot start no-such-mpirun: no executable file of this name in PATH'
launch session --restarts 0 -- $MPIRUN -np 1 sh -c 'ls -d "$OMPI_MCA_orte_tmpdir_base" >&2'
folder=$(grep '/vittrain-......$' "$run_log")
result 'mpirun gets a session folder of its own, which is removed' "$([ $status -eq 0 ] && [ -n "$folder" ] && [ ! -e "$folder" ] ||
    echo "exit status $status, folder $folder")" "$run_log"

# A signal to end is passed on; the command is not restarted.
: >"$work/told.log"
"$vittrain" launch -- sh -c 'trap "exit 41" USR1; echo ready >&2; while :; do sleep 0.05; done' 2>"$work/told.log" &
told=$!
wait_for ready "$work/told.log"
kill -USR1 $told
wait $told
status=$? run_log=$work/told.log
check 'signals are passed on' 41 0 ready
: >"$work/term.log"
"$vittrain" launch -- $MPIRUN -np 2 "$vittrain" run.dir="$work/term" $steps debug.pause=backward:3:2 >"$work/term.log" 2>&1 </dev/null &
told=$!
wait_for 'debug.pause: rank 0 ' "$work/term.log"
kill -TERM $told
wait $told
status=$? run_log=$work/term.log
check 'the first SIGTERM stops a run' 0 0 'stopped at step'
result 'with a checkpoint' "$([ -e "$work/term/checkpoints/last.h5" ] || echo none)" "$run_log"
OMPI_COMM_WORLD_RANK=0 run 1 inside launch -- true
result 'launch refuses to run under mpirun' "$(failed_otherwise 2 'cannot be run by them' | tr '\n' ' ')" "$work/inside.log"

# The reader of stderr exits.
{
    "$vittrain" launch -- sh -c "sleep 0.3; echo one >&2; sleep 0.2; echo two >&2; touch '$work/reached'" 2>&1
    echo $? >"$work/unread"
} | true
result 'the command continues if nobody reads its stderr' \
    "$([ -e "$work/reached" ] && [ "$(cat "$work/unread")" = 0 ] || echo "status $(cat "$work/unread")")"
# dd makes stderr non-blocking for all processes that share it.
lines=$({
    dd oflag=nonblock status=none </dev/null >&2
    "$vittrain" launch -- sh -c 'seq 100000 >&2'
} 2>&1 | { sleep 0.5 && wc -l; })
result 'all lines reach a slow reader of a non-blocking stderr' "$([ "$lines" -eq 100000 ] || echo "$lines lines")"
launch half --restarts 1.5 -- true
check '--restarts must be a whole number' 2 0 'takes a whole number'

# Another run of the same name is in progress, and its folder was changed last.
mkdir "$work/twins" && cd "$work/twins" || exit 1
strike twin KILL 1
(
    wait_for 'debug.pause: rank 1 ' "$work/twin.log"
    mkdir -p runs/twin-29990101-000000 && exec flock runs/twin-29990101-000000/.lock sleep 1000.5
) &
launch twin --restarts 1 -- $MPIRUN -np 2 "$vittrain" run.name=twin $steps debug.pause=backward:13:2
kill $(processes 'sleep 1000[.]5')
wait
check 'the folder of another run of the same name, which is in use, is not used' 0 1 'from step 10 of runs/twin-2[^9]'

# Another run, whose name has the same prefix, makes progress.
mkdir "$work/names" && cd "$work/names" || exit 1
launch names --restarts 1 -- sh -c "mkdir -p runs/vit-large-20260101-000000/checkpoints
    : >runs/vit-large-20260101-000000/checkpoints/step-00000005.h5; $failure; exit 9" vittrain run.name=vit
check 'the folder of another run is not used' 9 1 'from the beginning'
