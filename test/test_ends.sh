#!/bin/sh
# The end of a run, from its last step to result.json, is made up for after a kill or a signal. Attempts are interrupted at
# each phase of the end, one after another in one folder; together they make one run: the same result.json except times,
# the same weights, each row of metrics.csv once. TEST_LONG=1 also interrupts each phase in a run of its own.
. "$TEST_SOURCE/test/program.sh"

# Five steps per epoch; a checkpoint every second step.
steps="$small debug.fraction=0.03 data.workers=1 train.test=on optim.ema=0.9 checkpoint.every=0.4 output.monitor=0 \
output.tensorboard=off output.logbook="

# interrupt RANKS NAME SIGNAL PHASE:STEP WORD...: an attempt gets the signal in that phase. Print what is wrong with its end.
interrupt() {
    on=$1 name=$2 signal=$3 phase=$4 rank=$(($1 - 1)) launcher='' seconds=20
    shift 4
    [ "$on" = 1 ] || launcher="$MPIRUN -np $on"
    [ "$signal" = KILL ] || seconds=0.4 # the pause continues after other signals
    rm -f "$work/cut.log"
    timeout 60 $launcher "$vittrain" run.dir="$work/$name" debug.pause="$phase:$seconds" "$@" >"$work/cut.log" 2>&1 </dev/null &
    job=$!
    wait_for "debug.pause: rank $rank " "$work/cut.log"
    victim=$(sed -n "s/.*debug.pause: rank $rank on .*(process \([0-9]*\)).*/\1/p" "$work/cut.log")
    if [ -n "$victim" ]; then
        kill -"$signal" "$victim"
        wait $job
        ended=$?
        [ "$signal" = KILL ] || [ $ended = 0 ] || echo "$phase: exit status $ended;"
        [ "$signal" != KILL ] || [ $ended != 0 ] || echo "$phase: exit status 0;"
    else
        wait $job
        echo "$phase: no pause;"
    fi
    cat "$work/cut.log" >>"$work/$name.log"
}

# facts NAME: write what must be equal to an uninterrupted run to $work/NAME.facts.
facts() {
    grep -vE 'seconds|images_per_second|"name"' "$work/$1/result.json"
    cut -d, -f1-8 "$work/$1/metrics.csv"
    cut -d, -f1-9 "$work/$1/epochs.csv"
    cksum <"$work/$1/weights.safetensors"
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
    [ $status = 0 ] || bad="$bad exit status $status;"
    facts "$name"
    bad="$bad$(diff "$work/$reference.facts" "$work/$name.facts")"
    cat "$work/last.log" >>"$work/$name.log"
    result "$title" "$bad" "$work/$name.log"
}

before='data evaluation checkpoint_begin checkpoint_write checkpoint_name'
after='weights_write test results'

# The last epoch is incomplete, and the validation split is the test split.
part="$steps train.steps=9"
whole 1 part $part
whole 2 full $steps train.epochs=2
bad=
for phase in $before $after; do
    bad=$bad$(interrupt 1 killed KILL $phase:9 $part)
done
completes killed part 1 'killed in each phase of the end, on 1 rank' "$bad" $part

run 1 again $part run.dir="$work/killed"
facts killed
bad=$(diff "$work/part.facts" "$work/killed.facts")
grep -q 'nothing to do' "$work/again.log" || bad="$bad; not finished"
result 'then it is finished, and another attempt changes nothing' "$bad" "$work/again.log"

bad=
for phase in evaluation checkpoint_name test results; do
    bad=$bad$(interrupt 2 both KILL $phase:10 $steps train.epochs=2)
    [ $phase != checkpoint_name ] || continue
    bad=$bad$(interrupt 2 both USR1 $phase:10 $steps train.epochs=2)
done
completes both full 2 'killed and stopped by SIGUSR1, on 2 ranks' "$bad" $steps train.epochs=2

# Without a validation split. A signal in the final test leaves the run unfinished; the next attempt makes the test.
alone="$steps data.val=none train.epochs=2"
whole 1 alone $alone
bad=$(interrupt 1 signal USR1 test:10 $alone)
grep -q '"finished": false' "$work/signal/result.json" || bad="$bad finished;"
grep -q 'test split is left to the next attempt' "$work/signal.log" || bad="$bad no message;"
bad=$bad$(interrupt 1 signal KILL test:10 $alone)
completes signal alone 1 'a final test that a signal interrupts is made up for' "$bad" $alone

for on in ${TEST_LONG:+1 2}; do
    whole $on long$on $steps train.epochs=2
    for signal in KILL USR1; do
        for phase in $before $after; do
            rm -rf "$work/one" "$work/one.log"
            bad=$(interrupt $on one $signal $phase:10 $steps train.epochs=2)
            completes one long$on $on "$signal in $phase on $on ranks" "$bad" $steps train.epochs=2
        done
    done
done
echo "1..$number"
