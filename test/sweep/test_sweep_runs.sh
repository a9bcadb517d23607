#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# `vittrain sweep`: all trials run once, and the table has their results. Mistakes are found before the first trial. A sweep
# that is killed or gets a signal continues to the same table. Several tasks share a sweep.
. "$TEST_SOURCE/test/support/program.sh"

cd "$work" || exit 1
tiny="$small debug.batches=5 train.epochs=4 checkpoint.keep=1 output.tensorboard=off output.monitor=0 output.weights=off"

# sweep NAME WORD...: like `run`.
sweep() {
    sweep_name=$1
    shift
    run 1 "$sweep_name" sweep "$@"
}

# columns FILE NAME...: prints columns of a CSV without quotes.
columns() {
    awk -F, -v names="$(shift; echo "$*")" '
        NR == 1 { n = split(names, name, " "); for (i = 1; i <= NF; i++) at[$i] = i; next }
        { for (i = 1; i <= n; i++) printf "%s%s", $at[name[i]], i < n ? " " : "\n" }' "$1"
}

# table FOLDER: prints its trials without task and time.
table() { columns "$1/trials.csv" trial state optim.lr optim.name metric; }

# told FOLDER STATES: prints differences in the states of the trials, and of metrics from result.json.
told() {
    [ "$(echo $(columns "$1/trials.csv" state))" = "$2" ] || echo 'other states;'
    columns "$1/trials.csv" state folder metric | while read -r state trial metric; do
        [ "$state" = finished ] || continue
        best=$(tr -d ' \n' <"$1/$trial/result.json" | sed 's/.*"best":{[^}]*"value":\([0-9.e-]*\).*/\1/')
        awk -v a="$best" -v b="$metric" 'BEGIN { if (!((a - b) ^ 2 < 1e-16)) print "metric " b " is " a }'
    done
}

fails 1 'a key that is none' 2 'did you mean optim.lr' sweep $tiny optim.rl=1,2
fails 1 'a value out of range' 2 'optim.lr=-1: must be' sweep $tiny optim.lr=1,-1
fails 1 'a combination that cannot work' 2 'with optim.name=adam optim.nesterov=off: optim.momentum=0.9 does not apply' \
    sweep $tiny optim.momentum=0.9 optim.name=sgd,adam optim.nesterov=off,on
fails 1 'nothing that varies' 2 'nothing varies' sweep $tiny
fails 1 'a folder that is none' 2 'is not the folder of a sweep' sweep nowhere
fails 1 'no validation' 2 'compared by their best top1' sweep $tiny data.val=none optim.lr=1,2
fails 1 'no metric' 2 'checkpoint.monitor=none: trials are compared by it' sweep $tiny checkpoint.monitor=none optim.lr=1,2
fails 1 'a metric that depends on the data' 2 'checkpoint.monitor=auto depends on the labels' \
    sweep $tiny data.format=arrays data.x=x data.y=y optim.lr=1,2
result 'all that before anything was made' "$(ls -d sweeps 2>/dev/null)"

# A grid of runs with two ranks; one trial fails.
sweep grid $tiny sweep.dir=grid optim.lr=1e-3,1e30,3e-3 train.early_stop=9 -- $MPIRUN -np 2
bad=$([ $status -eq 0 ] || echo "exit status $status;")$(told grid 'finished failed finished')
grep -q '^2,failed,0,1e+30,,.*trial-002,.*NaN or infinity' grid/trials.csv || bad="$bad no reason;"
grep -q '2 ranks' grid/trial-001/train.log || bad="$bad not on two ranks"
result 'a grid on two ranks; a trial that fails is told' "$bad" "$run_log"
best=$(columns grid/trials.csv state metric optim.lr | awk '$1 == "finished" && $2 > best { best = $2; rate = $3 } END { print rate }')
grep -q "^lr = $best\$" grid/best.ini && bad= || bad="not optim.lr=$best"
[ "$(awk 'NF == 0 { table = 1 } table && /finished/ { print $3 }' "$run_log" | sort -rnc 2>&1)" = "" ] || bad="$bad; unsorted"
result 'best.ini, and a table with the best first' "$bad" "$run_log"
before=$(cat grid/trials.csv)
sweep done grid
bad=$([ $status -eq 0 ] || echo "exit status $status;")
[ "$before" = "$(cat grid/trials.csv)" ] || bad="$bad the table has changed;"
grep -q '^best: trial' "$run_log" || bad="$bad no table"
result 'a sweep at its end runs nothing again' "$bad" "$run_log"
fails 1 'the folder of another sweep' 2 'contains another sweep' sweep $tiny sweep.dir=grid optim.lr=1e-3,2e-3
echo optim.lr >grid/keys.txt
fails 1 'what varies, damaged' 5 'keys.txt: optim.lr is not key=VALUES' sweep grid
sweep all $tiny sweep.dir=all optim.lr=1e30,1e31
bad=$([ $status -eq 1 ] || echo "exit status $status;")
grep -q '^vittrain: error: sweep: no trial succeeded' "$run_log" || bad="$bad not printed"
result 'all trials fail' "$bad" "$run_log"

# A sweep that is killed and gets a signal, compared with an undisturbed one.
vary="sweep.method=random sweep.trials=3 sweep.seed=3 optim.lr=1e-3..1e-2:log optim.name=adam,adamw"
long="$tiny train.epochs=20 train.early_stop=20"
sweep alone $long $vary sweep.dir=alone
result 'random trials' "$([ $status -eq 0 ] || echo "exit status $status;")$(told alone 'finished finished finished')" "$run_log"
"$vittrain" sweep $long $vary >killed.log 2>&1 </dev/null &
job=$!
wait_for '^trial 1' killed.log
kill -9 $job
wait $job 2>/dev/null
folder=$(ls -d sweeps/vittrain-*)
bad=$(told "$folder" running)
"$vittrain" sweep "$folder" debug.pause=backward:60:2 >killed.log 2>&1 </dev/null &
job=$!
wait_for 'debug.pause: rank 0' "$folder/trial-001.log"
kill -9 $job
wait $job 2>/dev/null
bad=$bad$(told "$folder" running)
"$vittrain" sweep "$folder" debug.pause=backward:60:2 >task.log 2>&1 </dev/null &
job=$!
wait_for 'debug.pause: rank 0' "$folder/trial-002.log"
fails 1 'a second process keeps out' 2 'another process works on' sweep "$folder"
kill -TERM $job
wait $job || bad="$bad exit status $?;"
grep -q '^trial 1 of 3: .*(resumed)' task.log || bad="$bad trial 1 began anew;"
grep -q 'resuming from .*step-00000055.h5' "$folder/trial-001/train.log" || bad="$bad without its checkpoint;"
result 'what was killed goes on' "$bad$(told "$folder" 'finished running')" task.log
grep -q '"finished": false' "$folder/trial-002/result.json" && bad= || bad='not gracefully;'
grep -q 'continue with: vittrain sweep' task.log || bad="$bad not printed how to go on"
result 'told to end: the trial stops with a checkpoint' "$bad" task.log
sweep again $long $vary
bad=$([ $status -eq 0 ] || echo "exit status $status;")
grep -q 'resuming from .*step-00000060.h5' "$folder/trial-002/train.log" || bad="$bad it began anew;"
table alone >one
table "$folder" >other
bad="$bad$(cmp one other 2>&1)"
result 'the same command goes on, to the same table' "$bad" "$run_log"

# Two tasks on one sweep.
run_log=$work/prepare.log
env PATH=/nowhere "$vittrain" sweep $tiny optim.lr=1e-3,2e-3,3e-3,4e-3,5e-3 sweep.dir=shared sweep.slurm=nowhere.sh >"$run_log" 2>&1
status=$?
bad=$([ -e shared/base.ini ] || echo 'no folder;')
result 'Slurm that is not there' "$bad$(failed_otherwise 2 'cannot start sbatch' | tr '\n' ' ')" "$run_log"
for task in 1 2; do
    SLURM_JOB_ID=1 SLURM_ARRAY_TASK_ID=$task timeout $time_limit "$vittrain" sweep shared >task$task.log 2>&1 </dev/null &
done
wait
bad=$(told shared 'finished finished finished finished finished')
[ "$(cut -d, -f3 shared/trials.csv | sort -u | tr '\n' ' ')" = '1 2 task ' ] || bad="$bad not by both;"
[ "$(cat task1.log task2.log | grep -c '^trial .* of 5')" = 5 ] || bad="$bad not once each"
result 'two tasks share the trials' "$bad" task1.log

# A launcher that fails once without output, like mpirun when many start at once, and one that always does.
sweep once $tiny train.epochs=1 optim.lr=1e-3,2e-3 sweep.dir=once -- sh -c '[ -e tried ] || { touch tried && exit 1; }; exec "$@"' sh
bad=$([ $status -eq 0 ] || echo "exit status $status;")$(told once 'finished finished')
sweep silent $tiny optim.lr=1e-3,2e-3 sweep.dir=silent -- sh -c 'exit 3' sh
bad="$bad$([ $status -eq 1 ] || echo "exit status $status;")$(told silent 'failed failed')"
[ "$(grep -c 'ended with exit code 3' silent/trials.csv)" = 2 ] || bad="$bad no reason"
result 'a launcher that fails before the program starts' "$bad" "$run_log"
