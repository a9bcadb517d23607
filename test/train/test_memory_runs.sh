#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# system
# Checkpoints in memory on one node. A killed run resumes from the newest complete one and ends with the same bits as an
# undisturbed run. Damaged files, folders that others can use and checkpoints of an earlier run are not used. Too little
# memory in /dev/shm is an error at the start and a warning later.
# Its own /dev/shm, if that is permitted: a run that starts elsewhere removes what killed runs have left.
if [ -z "${OWN_MEMORY:-}" ] && unshare -m true 2>/dev/null; then
    OWN_MEMORY=yes exec unshare -m sh -c 'mount -t tmpfs tmpfs /dev/shm && exec sh "$0"' "$0"
fi
. "$TEST_SOURCE/test/support/program.sh"

steps="$small train.epochs=1 checkpoint.every=0 output.tensorboard=off"
folder() { echo "/dev/shm/vittrain-$(id -u)-$(head -n 1 "$work/$1/.memory")"; }
tidy() {
    for run in "$work"/*/.memory "$work"/runs/*/.memory; do
        [ ! -e "$run" ] || rm -rf "/dev/shm/vittrain-$(id -u)-$(head -n 1 "$run" | cut -c 1-8)"*
    done
}

# left OLD RUN: print if the folder OLD in memory or the file RUN/.memory exists after the end of a run.
left() {
    [ ! -e "$1" ] || echo "$1 was not removed;"
    [ ! -e "$work/$2/.memory" ] || echo "$2/.memory was not removed;"
}

# pause NAME PHASE:STEP RANK OPTION...: train on two ranks, in the background, until this rank waits. Set `job`, the
# process mpirun, and `victim`, the rank.
pause() {
    name=$1 place=$2 rank=$3
    shift 3
    rm -f "$work/go" "$work/go.$rank"
    timeout --foreground $time_limit $MPIRUN -np 2 "$vittrain" $steps checkpoint.memory=3 debug.pause="$place:$work/go:$rank" "$@" \
        >"$work/$name.killed" 2>&1 </dev/null &
    job=$!
    victim=$(paused "$rank" "$work/go")
}

# kill_victim: kill the rank that waits, and wait for the end of the job.
kill_victim() {
    kill -9 "$victim"
    killed_job $job "^$vittrain .*debug.pause=$place:$work/go:$rank "
}

# interrupt NAME PHASE:STEP RANK OPTION...: train on two ranks and kill one rank in that phase of that step.
interrupt() {
    name=$1 place=$2 rank=$3
    shift 3
    pause "$name" "$place" "$rank" run.dir="$work/$name" "$@"
    kill_victim
    reports_kill $? || echo 'the killed run ended with 0;'
}

# resumed NAME STEP OPTION...: start the run again. It must resume from this step in memory and end with the weights of
# `whole`.
resumed() {
    old=$(folder "$1") step=$2 name=$1
    shift 2
    run 2 "$name" run.dir="$work/$name" $steps checkpoint.memory=3 "$@"
    ended
    has "$run_log" "resuming from /dev/shm/.*: step $step,"
    cmp "$work/whole/weights.safetensors" "$work/$name/weights.safetensors" 2>&1
    left "$old" "$name"
}

# rows RUN: print the epochs, steps and splits of the rows of metrics.csv.
rows() { cut -d, -f1-3 "$work/$1/metrics.csv"; }

# damage FILE: change one byte of a vector.
damage() { printf '\377' | dd of="$1" bs=1 seek=$(($(stat -c %s "$1") - 40000)) conv=notrunc 2>/dev/null; }

run 2 whole run.dir="$work/whole" $steps checkpoint.memory=3
result 'a run with checkpoints in memory logs their cost' \
    "$(ended)$(has "$run_log" 'in memory: [0-9]+, each took [0-9.]+ ms, all [0-9.]+ % of the time')" "$run_log"
result 'removes its folder in /dev/shm' "$(left /dev/shm/none whole)"
run 2 without run.dir="$work/without" $steps
result 'has the same weights as a run without checkpoints in memory' "$(cmp "$work/whole/weights.safetensors" "$work/without/weights.safetensors" 2>&1)"

bad=$(interrupt step backward:11 1)
result 'the folder is private' "$bad$(stat -c %a "$(folder step)" | grep -vx 700)" "$work/step.killed"
chmod 755 "$(folder step)"
run 2 step run.dir="$work/step" $steps checkpoint.memory=3
result 'a folder to which others have access is refused' "$(failed_otherwise 5 /dev/shm/)$(grep resuming "$run_log")" "$run_log"
chmod 700 "$(folder step)"
result 'a killed run resumes from memory' "$(resumed step 9)" "$work/step.log"
result 'the log names the steps that are repeated' "$(has "$work/step.log" 'interrupted in step 11: 2 steps are repeated')"

# Rows: what happened|NAME|PHASE:STEP|RANK|STEP from which the run resumes|COMMAND before it resumes|OPTION of the killed run
while IFS='|' read -r title name place rank step change option <&3; do
    bad=$(interrupt $name $place $rank $option)
    eval "$change"
    result "$title: the run resumes from step $step" "$bad$(resumed $name $step)" "$work/$name.log"
done 3<<'END'
a rank is killed while it writes a checkpoint in memory|writing|checkpoint_memory:12|0|9||
a rank is killed before the checkpoint is complete|naming|checkpoint_name:12|1|9||
a rank is killed while the run resumes|again|backward:11|1|9|bad="$bad$(interrupt again weights_read:0 1)"|
the newest checkpoint is damaged|damaged|backward:11|1|6|damage "$(folder damaged)/step-00000009.h5"|
the checkpoint on disk is damaged|disk|backward:11|1|9|damage "$work/disk/checkpoints/step-00000010.h5"|checkpoint.every=0.4
the run folder was moved, and its step is damaged|moved|backward:11|1|9|rm "$(folder moved)/reached" && mkdir "$(folder moved)/reached"; mv moved here; name=here|
END

bad=$(interrupt off backward:11 1)
old=$(folder off)
run 2 off run.dir="$work/off" $steps checkpoint.memory=0
result 'without checkpoint.memory a run resumes from memory, too, and leaves nothing there' \
    "$bad$(ended)$(has "$run_log" 'resuming from /dev/shm/.*: step 9,')$(left "$old" off)" "$run_log"

bad=$(interrupt file backward:11 1 checkpoint.every=0.4)
old=$(folder file)
run 2 file run.dir="$work/file" $steps checkpoint.memory=3 checkpoint.resume="$work/file/checkpoints/last.h5"
result 'with checkpoint.resume=FILE those in memory are removed' \
    "$bad$(ended)$(has "$run_log" 'resuming from .*/last.h5: step 10,')$(left "$old" file)" "$run_log"

bad=$(interrupt signal backward:11 1)
bad="$bad$(signalled 2 signal USR1 weights_read:0 $steps checkpoint.memory=3)$(has signal.log 'stopped before the first step')"
result 'a signal before the first step keeps the checkpoint from which the run has resumed' "$bad$(resumed signal 9)" "$work/signal.log"

# The checkpoint of the best evaluation, that of step 25, is written in the background until the kill.
best="train.epochs=2 checkpoint.every=1 checkpoint.background=yes"
run 2 best run.dir="$work/best" $steps $best checkpoint.memory=3
bad=$(ended)
pause slow checkpoint_write:25 1 run.dir="$work/slow" $best
wait_for 'epoch 2 done' "$work/slow.killed"
kill_victim
run 2 slow run.dir="$work/slow" $steps $best checkpoint.memory=3
bad="$bad$(ended)$(has "$run_log" 'resuming from /dev/shm/.*: step 24,')"
for name in weights best; do
    bad="$bad$(cmp "$work/best/$name.safetensors" "$work/slow/$name.safetensors" 2>&1)"
done
result 'no checkpoint in memory names a best step whose checkpoint is incomplete' "$bad" "$run_log"

ends="train.steps=40 checkpoint.memory=5"
run 2 ends run.dir="$work/ends" $steps $ends
bad=$(interrupt evaluation evaluation:40 0 $ends)
run 2 evaluation run.dir="$work/evaluation" $steps $ends
rows ends >"$work/ends.rows"
bad="$bad$(ended)$(rows evaluation | diff "$work/ends.rows" -)$(cmp "$work/ends/weights.safetensors" "$work/evaluation/weights.safetensors" 2>&1)"
result 'a run that is killed in its last evaluation repeats it' "$bad" "$run_log"
run 2 evaluation run.dir="$work/evaluation" $steps checkpoint.memory=5 train.steps=60
result 'and can be extended' "$(ended)$(has "$run_log" 'resuming from .*/checkpoints/step-00000040.h5')" "$run_log"
pause unnamed backward:11 1
kill_victim
run 2 unnamed $steps checkpoint.memory=3
bad=$(ended)$(has "$run_log" 'resuming from /dev/shm/.*: step 9,')$(cmp "$work/whole/weights.safetensors" runs/*/weights.safetensors 2>&1)
result 'a run without run.dir resumes from memory in the same folder' "$bad" "$run_log"

cp "$work/whole/weights.safetensors" "$work/init.safetensors"
bad=$(interrupt init backward:11 1 model.init="$work/init.safetensors")
rm "$work/init.safetensors"
run 3 init run.dir="$work/init" $steps checkpoint.memory=3 model.init="$work/init.safetensors" mesh.strategy=fsdp
result 'a run that resumes from memory on another mesh does not need the file of model.init' "$bad$(ended)$(has "$run_log" 'resuming from /dev/shm/.*: step 9,')" "$run_log"

# aside NAME: move the folder in memory away, as if its node were lost. `return_aside` moves it back.
aside() { old=$(folder "$1") && mv "$old" "$work/aside"; }
return_aside() { mv "$work/aside" "$old"; }

bad=$(interrupt other backward:23 1 checkpoint.every=0.4)
aside other
bad="$bad$(interrupt other backward:22 1)$(has "$work/other.killed" 'the checkpoints in memory of the last attempt are lost' '/step-00000020.h5: step 20,')"
rm -rf "$(folder other)"
return_aside
run 2 other run.dir="$work/other" $steps checkpoint.memory=3
bad="$bad$(ended)$(has "$run_log" '/checkpoints/step-00000020.h5: step 20,')$(left "$old" other)"
result 'checkpoints of another node are not used if the run has continued without them' "$bad" "$run_log"

bad=$(interrupt continued backward:23 1 checkpoint.every=0.4)
aside continued
bad="$bad$(interrupt continued backward:22 1 checkpoint.memory=0)"
return_aside
run 2 continued run.dir="$work/continued" $steps
bad="$bad$(ended)$(has "$run_log" '/checkpoints/step-00000020.h5: step 20,')"
rm -rf "$old"
result 'nor if it has continued without checkpoint.memory' "$bad" "$run_log"

bad=$(interrupt advice backward:13 1 checkpoint.every=0.4)
tidy_advice=$(folder advice)
advice="run.dir=$work/advice $steps data.val=0.1"
run 2 advice $advice
bad="$bad$(failed_otherwise 2 'file .memory .*checkpoint.resume=FILE')"
rm "$work/advice/.memory"
run 2 advice $advice checkpoint.resume="$work/advice/checkpoints/last.h5"
result 'and the advice continues from the disk' "$bad$(ended)$(has "$run_log" 'resuming from .*/last.h5: step 10,')" "$run_log"
rm -rf "$tidy_advice"

bad=$(interrupt newer backward:11 1 checkpoint.every=0.2)
cp "$work/newer/checkpoints/step-00000005.h5" "$work/file.h5"
rm -r "$work/newer/checkpoints"
run 2 newer run.dir="$work/newer" $steps checkpoint.memory=3 checkpoint.resume="$work/file.h5"
bad="$bad$(failed_otherwise 2 'step 5.* step 9 .*file .memory')"
result 'checkpoint.resume=FILE is refused if those in memory are newer' "$bad$(resumed newer 9)" "$work/newer.log"

bad=$(interrupt first backward:11 1)
mv "$work/first" "$work/second"
cp -r "$work/second" "$work/third"
run 2 third run.dir="$work/third" $steps checkpoint.memory=3
bad="$bad$(ended)$(grep 'resuming from' "$run_log")$(has "$run_log" 'warning: .*third/.memory')"
bad="$bad$(cmp "$work/whole/weights.safetensors" "$work/third/weights.safetensors" 2>&1)"
result 'a copy of a folder neither uses nor removes the memory of the original' "$bad$(resumed second 9)" "$work/second.log"

bad=$(interrupt hidden backward:11 1)
old=$(folder hidden)
rm -r "$work/hidden"/[a-z]*
run 2 hidden run.dir="$work/hidden" $steps checkpoint.memory=3
bad="$bad$(ended)$(grep 'resuming from' "$run_log")$(rows whole >"$work/whole.rows"; rows hidden | diff "$work/whole.rows" -)"
result 'a folder whose visible files were removed starts over' "$bad$(left "$old" hidden)" "$run_log"

bad=$(interrupt patience backward:38 1 train.epochs=2 train.eval_every=1)
run 2 patience run.dir="$work/patience" $steps checkpoint.memory=3 train.epochs=2 train.early_stop=1
bad="$bad$(ended)"
run 2 patience run.dir="$work/patience" $steps checkpoint.memory=3 train.epochs=3
result 'a run that ends at a checkpoint in memory writes it to the disk' "$bad$(ended)$(grep -a 'starting from step 0' "$run_log")$(has "$run_log" 'resuming from .*/checkpoints/step-')" "$run_log"

bad=$(interrupt stale backward:11 1)
tidy_stale=$(folder stale)
rm -rf "$work/stale"
run 2 stale run.dir="$work/stale" $steps checkpoint.memory=3
result 'a new run does not use the checkpoints of an earlier run' "$bad$(ended)$(has "$work/stale/train.log" 'run: 25 steps')$(grep resuming "$run_log")" "$run_log"
rm -rf "$tidy_stale"

# The folder of a run that was removed stays while a process holds it.
pause gone backward:11 1 run.dir="$work/gone"
old=$(folder gone)
rm -rf "$work/gone"
run 2 next run.dir="$work/next" $steps checkpoint.memory=3
bad=$(ended)$([ -e "$old" ] || echo 'removed too early;')
kill_victim
run 1 doctor doctor
bad="$bad$(has "$run_log" "checkpoints of killed runs: .*$old .[0-9.]* MB, of $work/gone.")"
run 2 last run.dir="$work/next" $steps
result 'the folder of a killed run that cannot resume is listed by doctor and removed by the next start' \
    "$bad$(ended)$(left "$old" next)$(has "$run_log" "^$old is removed: a killed run left it, and $work/gone does not need it")" "$run_log"

# small_memory MEGABYTES COMMAND: run the command with a /dev/shm of this size.
small_memory() { unshare -m sh -c "mount -t tmpfs -o size=$1 tmpfs /dev/shm && exec $2" >"$run_log" 2>&1 </dev/null; }
if unshare -m true 2>/dev/null; then
    run_log=$work/full.log
    small_memory 600k "timeout 120 '$vittrain' run.dir='$work/full' $steps checkpoint.memory=3"
    status=$?
    result 'too little memory is an error at the start' \
        "$(failed_otherwise 6 '0.8 MB in /dev/shm .* 0.6 MB')" "$run_log"
    bad=$(interrupt elsewhere backward:11 1)
    small_memory 600k "timeout 120 '$vittrain' run.dir='$work/elsewhere' $steps checkpoint.memory=3"
    status=$?
    bad="$bad$(failed_otherwise 6 /dev/shm)"
    run_log=$work/elsewhere.usr1
    unshare -m sh -c 'mount -t tmpfs tmpfs /dev/shm && exec "$@"' sh "$vittrain" run.dir="$work/elsewhere" $steps checkpoint.memory=3 \
        debug.pause="weights_read:0:$work/usr1:0" >"$run_log" 2>&1 </dev/null &
    job=$!
    kill -USR1 "$(paused 0 "$work/usr1")"
    sleep 0.5
    touch "$work/usr1"
    wait $job
    bad="$bad$(has "$run_log" 'stopped before the first step')"
    result 'failed and stopped starts on another host leave the checkpoints in memory' "$bad$(resumed elsewhere 9)" "$work/elsewhere.log"
    result 'and the rows of the tables' "$(rows elsewhere | diff "$work/whole.rows" -)"
    run_log=$work/full.log
    small_memory 900k "sh -c \"(until test -s '$work/filled.0'; do sleep 0.05; done; head -c 800k /dev/zero >/dev/shm/other; touch '$work/filled') & \
        timeout 120 '$vittrain' run.dir='$work/fills' $steps checkpoint.memory=20 debug.pause=backward:10:$work/filled\""
    status=$?
    result 'a full /dev/shm is a warning later' "$(ended)$(has "$run_log" 'warning: no more checkpoints in memory: .* No space left')$(left /dev/shm/none fills)" "$run_log"
else
    result 'too little memory, and starts on another host # SKIP needs root, to mount a /dev/shm'
fi
