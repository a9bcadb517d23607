#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# A /dev/shm that is too small, as in many containers: mesh.transport=auto uses the ring and logs the reason;
# mesh.transport=shared is one error. If shared weights and gradients do not fit, each rank keeps its own. The weights have the
# same bits in all cases.
. "$TEST_SOURCE/test/support/program.sh"

unshare --mount true 2>/dev/null || skip_all 'needs root, for a namespace'
# MPI's own shared memory uses another folder.
OMPI_MCA_btl_vader_backing_directory=$work
export OMPI_MCA_btl_vader_backing_directory

# cramped NAME SIZE WORD...: run 2 ranks with a /dev/shm of that size.
cramped() {
    run_log=$work/$1.log room=$2
    shift 2
    timeout $time_limit env room="$room" unshare --mount sh -c 'mount -t tmpfs -o size="$room" tmpfs /dev/shm && "$@"; status=$?; ls /dev/shm >>left; exit $status' \
        sh $MPIRUN -np 2 "$vittrain" "$@" >"$run_log" 2>&1 </dev/null
    status=$?
}

cramped auto 64k $small mesh.strategy=fsdp train.steps=2 output.tensorboard=off run.dir="$work/auto"
grep -q '^mesh: .*; transport: ring (.*no room in /dev/shm' "$work/auto.log" && bad= || bad="no such line"
[ $status -eq 0 ] || bad="exit status $status"
result 'auto takes the ring and says why' "$bad" "$work/auto.log"
cramped shared 64k $small train.steps=2 run.dir="$work/shared" mesh.transport=shared
bad=$([ $status -eq 2 ] || echo "exit status $status")
[ "$(grep -c 'error: .*mesh.transport=shared: .*no room in /dev/shm' "$work/shared.log")" = 1 ] ||
    bad="$bad; not one message"
result 'shared is refused' "$bad" "$work/shared.log"
middle="$small model.dim=192 model.depth=6 train.steps=2 optim.ema=0.9 mesh.strategy=fsdp output.tensorboard=off"
# 8 MiB hold the window, but not 17 MiB of weights and gradients.
cramped own 8m $middle run.dir="$work/own"
result 'weights and gradients that do not fit are not shared' "$(
    [ $status -eq 0 ] || echo "exit status $status;"
    grep -q '^ranks do not share memory for weights and gradients: rank 0 on .*: shared memory of .* KiB: no room in /dev/shm' "$run_log" || echo "no such line;"
    grep -q '^mesh: .*; transport: shared$' "$run_log" || echo "not by shared memory")" "$run_log"
cramped common 64m $middle run.dir="$work/common"
result 'weights in shared memory have the same bits' "$(
    ! grep 'ranks do not share memory' "$run_log"
    cmp "$work/own/weights.safetensors" "$work/common/weights.safetensors" 2>&1)" "$run_log"
# Checkpoints take 83 MiB, weights and gradients 17 MiB, the window 5 MiB.
cramped kept 95m $middle run.dir="$work/kept" checkpoint.memory=1
result 'checkpoints in memory have the first claim on shared memory' "$(
    [ $status -eq 0 ] || echo "exit status $status;"
    grep -q '^ranks do not share memory .*: with checkpoint.memory they need .* MB of /dev/shm, where .* MB are free' "$run_log" || echo "no such line;"
    cmp "$work/own/weights.safetensors" "$work/kept/weights.safetensors" 2>&1)" "$run_log"
large="$small model.dim=192 model.depth=48 train.global_batch=0 train.batch=2 train.steps=1 mesh.strategy=fsdp output.tensorboard=off"
needs() { # NAME WORD...: print the MiB of a rank
    run 1 "$@"
    awk '$1 == "rank" { print $2 }' "$work/$1.log"
}
enough=$(awk -v a="$(needs planned plan $large plan.ranks=2)" -v b="$(needs slots plan $large plan.ranks=2 mesh.transport=ring)" \
    'BEGIN { print b < a ? int(1024 * (a + b) / 2) "KiB" : "slots need more" }')
run 2 less train $large plan.memory="$enough" run.dir="$work/less"
result 'a run that fits with slots only does not share' "$(
    [ $status -eq 0 ] || echo "exit status $status;"
    grep -q '^ranks do not share memory .*: slots need less' "$run_log" || echo "no such line with $enough")" "$run_log"
run 2 eval eval "$work/common/checkpoints/last.h5"
run 2 exact $small train.steps=2 train.exact=layout output.tensorboard=off run.dir="$work/exact"
run 1 plan plan $small train.exact=layout plan.cluster="$TEST_SOURCE/input/clusters/epyc_ib100.ini"
result 'nothing to share is no reason for a message' "$(
    ! grep -h 'do not share\|internal error' "$work/eval.log" "$work/exact.log" "$work/plan.log"
    grep -q '^ *4096 ' "$work/plan.log" || grep -q 'less than one per rank' "$work/plan.log" || echo "no plan;")" "$work/eval.log"
result 'no run leaves a name in /dev/shm' "$(grep '^vittrain-' left)"
