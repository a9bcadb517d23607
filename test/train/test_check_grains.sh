#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# train.check_every: each check finds the injected fault and names the right rank.
# TEST_LONG=1: no false alarm in 10,000 steps.
. "$TEST_SOURCE/test/support/program.sh"

exact="$small train.exact=layout train.global_batch=32 train.grain=8 model.dropout=0.1 data.val=none output.tensorboard=off \
checkpoint.every=0"
checks="$exact train.check_every=1 train.check_action=continue"

# found NAME RANKS KIND WRONG OPTION...: run 10 steps with one fault each on rank WRONG; expect at least 10 warnings,
# which all name that rank.
found() {
    name=$1 ranks=$2 kind=$3 wrong=$4
    shift 4
    run "$ranks" flip $checks train.steps=10 debug.flip="$kind" debug.flip_rank="$wrong" run.dir="$work/flip" "$@"
    rm -rf "$work/flip"
    bad=$(ended)
    all=$(grep -c ' computed a wrong gradient of grain ' "$work/flip.log")
    right=$(grep -cE "warning: step [0-9]+: rank $wrong on [^ ]+ computed a wrong gradient of grain [0-9]+: two other" "$work/flip.log")
    [ "$all" = "$right" ] && [ "$right" -ge 10 ] || bad="$bad; $right of $all name rank $wrong in 10 steps"
    result "$name" "$bad" "$work/flip.log"
}

found 'a fault in an activation' 3 activation 1
found 'a fault in a gradient, fsdp, with empty micro-batches' 3 gradient 2 mesh.strategy=fsdp train.accumulate=8 debug.batches=7
found 'a fault in received samples' 4 message 3
found 'a fault on the only rank' 1 gradient 0
found 'a fault that does not repeat, on one of two ranks' 2 activation 1 train.accumulate=2 debug.batches=7
found 'weights with fsdp, where a gather follows' 3 weight 1 mesh.strategy=fsdp
run 3 quiet $checks train.steps=20 run.dir="$work/quiet"
result 'no false alarm in 20 steps' "$(ended; grep 'wrong gradient\|different gradients' quiet.log)" quiet.log
run 1 plain $exact train.steps=20 run.dir="$work/plain"
result 'checks do not change the training' "$(cmp quiet/weights.safetensors plain/weights.safetensors 2>&1)" plain.log
fails 3 'the run stops at a wrong gradient' 11 'step 3: rank 1 on ' $exact train.steps=9 train.check_every=3 debug.flip=gradient \
    debug.flip_rank=1 run.dir="$work/stop"
result 'and writes no weights' "$(ls stop/weights.safetensors 2>/dev/null)"
run 4 short $exact train.steps=9 train.check_every=1 train.global_batch=70 mesh.strategy=hsdp mesh.shard=2 run.dir="$work/short"
result 'ranks without samples in the last batch of an epoch' "$(ended)" "$work/short.log"
run 2 alike $checks train.steps=1 debug.flip=message debug.flip_rank=1 run.dir="$work/alike"
result 'with two ranks a fault that repeats is reported without the rank' \
    "$(has alike.log 'ranks 0 on .* and 1 on .* different gradients of grain')" alike.log
errors train.check_every=1 train.steps=1 3<<END
2|train.check_every=1|
2|debug.flip_rank|$exact debug.flip=gradient debug.flip_rank=1
END
if [ "${TEST_LONG:-0}" = 1 ]; then
    $MPIRUN -np 3 "$vittrain" $checks train.steps=10000 output.log_every=1000 run.dir="$work/long" >"$work/long.log" 2>&1
    status=$?
    result 'no false alarm in 10,000 steps' "$(ended; grep 'wrong gradient\|different gradients' long.log)" long.log
fi
