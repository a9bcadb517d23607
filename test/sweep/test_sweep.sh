#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# system
# tools/sweep.py with trainings: a sweep of eight trials that is killed and stopped goes on in the folders of its trials, and two
# processes share the rest.
. "$TEST_SOURCE/test/support/program.sh"
needs python3

# Launches a trial; while the file `hold` exists, the trial waits for the file whose name it contains.
cat >launcher <<'END'
#!/bin/sh
[ ! -e hold ] || set -- "$@" debug.pause=backward:60:$(cat hold)
exec "$@"
END
chmod +x launcher
tiny="$small debug.batches=5 train.epochs=20 output.tensorboard=off output.monitor=0 output.weights=off"
rates=1e-3,2e-3,3e-3,4e-3,5e-3,6e-3,7e-3,8e-3
script=$TEST_SOURCE/tools/sweep.py

# states: print the states of all trials.
states() { awk -F, 'NR > 1 { printf "%s%s", sep, $2; sep = " " }' swept/trials.csv; }

echo "$work/one" >hold
python3 "$script" swept optim.lr=$rates -- ./launcher "$vittrain" $tiny >killed.log 2>&1 </dev/null &
job=$!
trial=$(paused 0 "$work/one")
kill -9 $job "$trial"
wait $job 2>/dev/null
[ "$(states)" = running ] && bad= || bad="states: $(states);"
[ -e swept/trial-001/checkpoints/last.h5 ] || bad="$bad no checkpoint;"
result 'a sweep and its trial are killed' "$bad" killed.log

rm hold
python3 "$script" swept >stopped.log 2>&1 </dev/null &
job=$!
wait_for '^trial 2 ' stopped.log
echo "$work/three" >hold
paused 0 "$work/three" >/dev/null
kill -TERM $job
touch "$work/three"
wait $job
status=$?
bad=$(ended)
[ "$(states)" = 'finished finished stopped' ] || bad="$bad states: $(states);"
grep -q 'resuming from .*step-00000055' swept/trial-001/train.log || bad="$bad trial 1 began anew;"
grep -q '"finished": false' swept/trial-003/result.json || bad="$bad trial 3 was not stopped with a checkpoint"
result 'the killed trial goes on; SIGTERM stops a trial with a checkpoint' "$bad" stopped.log

rm hold
timeout $time_limit python3 "$script" swept optim.lr=$rates -- "$vittrain" $tiny >task1.log 2>&1 </dev/null &
first=$!
timeout $time_limit python3 "$script" swept >task2.log 2>&1 </dev/null &
second=$!
wait $first || bad="the first failed;"
wait $second || bad="$bad the second failed;"
[ "$(states)" = 'finished finished finished finished finished finished finished finished' ] || bad="$bad states: $(states);"
[ "$(cat task1.log task2.log | grep -c '^trial [3-8] of 8')" = 6 ] || bad="$bad not once each;"
grep -q '^trial' task1.log && grep -q '^trial' task2.log || bad="$bad not by both;"
grep -q 'resuming from' swept/trial-003/train.log || bad="$bad trial 3 began anew"
result 'two processes share the other trials' "$bad" task1.log
