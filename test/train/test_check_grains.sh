#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# train.check_every: each check finds the injected fault and names the right rank.
# TEST_LONG=1: no false alarm in 10,000 steps.
. "$TEST_SOURCE/test/support/program.sh"

exact="$small train.exact=layout train.global_batch=32 train.grain=8 model.dropout=0.1 data.val=none output.tensorboard=off \
checkpoint.every=0"
checks="$exact train.check_every=1 train.check_action=continue"

# found NAME RANKS KIND WRONG OPTION...: run 25 steps with one fault each on rank WRONG; expect at least 25 warnings,
# which all name that rank.
found() {
    name=$1 ranks=$2 kind=$3 wrong=$4
    shift 4
    run "$ranks" flip $checks train.steps=25 debug.flip="$kind" debug.flip_rank="$wrong" run.dir="$work/flip" "$@"
    rm -rf "$work/flip"
    bad=$(ended)
    all=$(grep -c ' computed a wrong gradient of grain ' "$work/flip.log")
    right=$(grep -cE "warning: step [0-9]+: rank $wrong on [^ ]+ computed a wrong gradient of grain [0-9]+: two other" "$work/flip.log")
    [ "$all" = "$right" ] && [ "$right" -ge 25 ] || bad="$bad; $right of $all name rank $wrong in 25 steps"
    result "$name" "$bad" "$work/flip.log"
}

found 'a fault in an activation' 3 activation 1
found 'a fault in a gradient, fsdp' 3 gradient 2 mesh.strategy=fsdp
found 'a fault in weights' 3 weight 0 train.precision=fp32
found 'a fault in received samples' 4 message 3
found 'a fault on the only rank' 1 gradient 0
found 'a fault that does not repeat, on one of two ranks' 2 activation 1 train.accumulate=2 debug.batches=18
found 'weights with fsdp, where a gather follows' 3 weight 1 mesh.strategy=fsdp
found 'with empty micro-batches' 3 gradient 2 train.accumulate=8 debug.batches=18
run 3 quiet $checks train.steps=40 run.dir="$work/quiet"
grep -q 'wrong gradient\|different gradients' "$work/quiet.log" && bad='a false alarm' || bad=
[ $status -eq 0 ] || bad="$bad; exit status $status"
result 'no false alarm in 40 steps' "$bad" "$work/quiet.log"
run 3 plain $exact train.steps=40 run.dir="$work/plain"
cmp "$work/quiet/weights.safetensors" "$work/plain/weights.safetensors" >differ.log 2>&1 && bad= || bad='other weights'
result 'checks do not change the training' "$bad" differ.log
run 3 stop $exact train.steps=9 train.check_every=3 debug.flip=gradient debug.flip_rank=1 run.dir="$work/stop"
bad=$([ $status -eq 11 ] || echo "exit status $status")
grep -q 'error: step 3: rank 1 on ' "$work/stop.log" || bad="$bad; no error"
[ ! -e "$work/stop/weights.safetensors" ] || bad="$bad; weights were written"
result 'the run stops at a wrong gradient' "$bad" "$work/stop.log"
run 4 short $exact train.steps=20 train.check_every=1 train.global_batch=70 mesh.strategy=hsdp mesh.shard=2 run.dir="$work/short"
result 'ranks without samples in the last batch of an epoch' "$(ended)" "$work/short.log"
run 2 alike $checks train.steps=1 debug.flip=message debug.flip_rank=1 run.dir="$work/alike"
result 'with two ranks a fault that repeats is reported without the rank' "$(has "$work/alike.log" 'ranks 0 on .* and 1 on .* computed different gradients of grain .*cannot be decided')" "$work/alike.log"
refused() {
    run 1 refused "$@"
    [ $status -eq 2 ] && grep -q "$expected" "$work/refused.log" && bad= || bad="exit status $status"
    result "refused: $expected" "$bad" "$work/refused.log"
}
expected='train.check_every=1 does not apply with train.exact=off' refused train.check_every=1 train.steps=1
expected='debug.flip_rank=1: the run has 1 ranks' refused $exact train.check_every=1 debug.flip=gradient debug.flip_rank=1 train.steps=1
if [ "${TEST_LONG:-0}" = 1 ]; then
    $MPIRUN -np 3 "$vittrain" $checks train.steps=10000 output.log_every=1000 run.dir="$work/long" >"$work/long.log" 2>&1
    status=$?
    grep -q 'wrong gradient\|different gradients' "$work/long.log" && bad='a false alarm' || bad=
    [ $status -eq 0 ] || bad="$bad; exit status $status"
    result 'no false alarm in 10,000 steps' "$bad" "$work/long.log"
else
    result 'no false alarm in 10,000 steps # SKIP needs TEST_LONG=1' ''
fi
