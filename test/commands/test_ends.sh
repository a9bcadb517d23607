#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# system
# The end of a run, from its last step to result.json, is completed by the next attempt after a kill or a signal. Attempts are interrupted at
# each phase of the end, one after another in one folder; together they make one run: the same result.json except times,
# the same weights, each row of metrics.csv once.
. "$TEST_SOURCE/test/support/program.sh"

# Five steps per epoch; a checkpoint every second step.
steps="$small debug.fraction=0.06 data.workers=1 train.test=on optim.ema=0.9 checkpoint.every=0.4 output.monitor=0 \
output.tensorboard=off output.logbook="

# facts NAME: write what must be equal to an uninterrupted run to $work/NAME.facts.
facts() {
    sed '/^ "attempts"/,$d' "$work/$1/result.json" | grep -vE 'seconds|images_per_second|"name"|peak_flops'
    cut -d, -f1-8 "$work/$1/metrics.csv"
    cksum <"$work/$1/weights.safetensors"
    readlink "$work/$1/checkpoints/best.h5" "$work/$1/checkpoints/last.h5"
} >"$work/$1.facts"

# whole RANKS NAME WORD...: an uninterrupted run.
whole() {
    run "$@" run.dir="$work/$2"
    facts "$2"
}

# completes NAME REFERENCE RANKS TITLE BAD WORD...: one more attempt completes the run; then it equals the reference.
completes() {
    name=$1 reference=$2 on=$3 title=$4 bad=$5
    shift 5
    run "$on" last "$@" run.dir="$work/$name"
    facts "$name"
    bad="$bad$(ended; diff "$work/$reference.facts" "$work/$name.facts")"
    cat "$work/last.log" >>"$work/$name.log"
    result "$title" "$bad" "$work/$name.log"
}

before='data evaluation checkpoint_begin checkpoint_write checkpoint_name checkpoint_link'
after='weights_write test results'

# The last epoch is incomplete, and the validation split is the test split.
part="$steps train.steps=9"
whole 1 part $part
whole 3 full $steps train.epochs=2
bad=
for phase in $before $after; do
    bad=$bad$(signalled 1 killed KILL $phase:9 $part)
done
completes killed part 1 'killed in each phase of the end, on 1 rank' "$bad" $part

run 1 again $part run.dir="$work/killed"
facts killed
bad=$(diff "$work/part.facts" "$work/killed.facts")
grep -q 'nothing to do' "$work/again.log" || bad="$bad; not finished"
result 'an attempt of a finished run changes nothing' "$bad" "$work/again.log"

bad=
for phase in evaluation checkpoint_name test results; do
    bad=$bad$(signalled 3 both KILL $phase:10 $steps train.epochs=2)
    [ $phase != checkpoint_name ] || continue
    bad=$bad$(signalled 3 both USR1 $phase:10 $steps train.epochs=2)
done
completes both full 3 'killed and stopped by SIGUSR1, on 3 ranks' "$bad" $steps train.epochs=2

# Without a validation split. A signal in the final test leaves the run unfinished; the next attempt makes the test.
alone="$steps data.val=none train.epochs=2"
whole 1 alone $alone
bad=$(signalled 1 signal USR1 test:10 $alone)
bad="$bad$(has signal/result.json '"finished": false'; has signal.log 'test split is left to the next attempt')"
bad=$bad$(signalled 1 signal KILL test:10 $alone)
completes signal alone 1 'a final test that a signal interrupts is repeated' "$bad" $alone

# A start without run.dir waits between its choice of an unfinished run and the lock, and the run finishes.
late="$steps data.val=none train.test=off train.epochs=2 run.name=late"
run 1 late $late train.max_seconds=0.0001
"$vittrain" $late debug.pause="folder_lock:0:$work/second.go" >"$work/second.log" 2>&1 </dev/null &
job=$!
paused 0 "$work/second.go" >/dev/null
sed -i 's/"finished": false/"finished": true/' "$work"/runs/late-*/result.json
cksum "$work"/runs/late-*/result.json >"$work/sum"
touch "$work/second.go"
wait $job
status=$?
bad=$(ended)$(cksum $(cut -d' ' -f3 "$work/sum") | diff "$work/sum" -)
[ "$(ls "$work/runs" | grep -c ^late-)" = 2 ] || bad="$bad no new folder;"
result 'a run that has just finished is not continued by another start' "$bad" "$work/second.log"

# ---- symbolic links in the run folder

echo 'not yours' >"$work/victim"
mkdir -p "$work/real/checkpoints" "$work/linked.book"
ln -s real "$work/linked"
for name in deck.ini metrics.csv result.json weights.safetensors monitor.csv; do
    [ "${name%.csv}" != $name ] || ln -s "$work/victim" "$work/real/$name.part" # new tables need no temporary file
    [ $name = deck.ini ] || ln -s "$work/victim" "$work/real/$name"
done
ln -s "$work/victim" "$work/linked.book/README.md"
run 1 linked $steps train.epochs=1 run.dir="$work/linked" output.logbook="$work/linked.book" output.monitor=1
bad=
[ $status = 0 ] || bad="exit status $status;"
for name in step-00000010.h5 step-00000010.h5.part last.h5.part; do
    ln -s "$work/victim" "$work/real/checkpoints/$name"
done
ln -sf "$work/victim" "$work/real/checkpoints/last.h5"
run 1 linked $steps train.epochs=2 run.dir="$work/linked"
[ $status = 0 ] || bad="$bad exit status $status;"
[ "$(cat "$work/victim")" = 'not yours' ] || bad="$bad the victim was written;"
bad=$bad$(find "$work/real" "$work/linked.book" -lname "$work/victim" ! -name '*.damaged' ! -name '*.old') # set aside
result 'links in a run folder are replaced, not followed; the run folder may be a link' "$bad" "$work/linked.log"
bad=
for name in train.log .lock metrics.csv; do
    rm "$work/real/$name"
    ln -s "$work/victim" "$work/real/$name"
    run 1 link $steps train.epochs=3 run.dir="$work/linked"
    bad=$bad$(failed_otherwise 5 "/$name: it is a symbolic link")
    rm "$work/real/$name"
done
[ "$(cat "$work/victim")" = 'not yours' ] || bad="$bad the victim was written;"
result 'a link that would be appended to is an error' "$bad" "$work/link.log"

errors 3<<END
4|none.safetensors|$steps run.dir=$work/init model.init=none.safetensors data.root=nowhere
4|none.safetensors|eval none.safetensors
2|/: the root|$steps run.dir=/
2|the root|$steps run.dir=$work/../../../../../../../..
END
result 'missing weights leave no run folder' "$([ ! -e "$work/init" ] || echo "$work/init is there")" "$work/init"
# Another job has just locked its folder and written nothing else yet.
mkdir -p "$work/begun/checkpoints"
flock "$work/begun/.lock" timeout $time_limit "$vittrain" $steps run.dir="$work/begun" >"$work/begun.log" 2>&1 </dev/null
status=$? run_log=$work/begun.log
bad=$(failed_otherwise 2 /begun)
[ "$(ls -A "$work/begun" | paste -s -d ' ')" = '.lock checkpoints' ] || bad="$bad only $(ls -A "$work/begun") is left"
result 'a job that is refused removes nothing from the folder of another' "$bad" "$run_log"
