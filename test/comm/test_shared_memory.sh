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

# cramped NAME SIZE WORD...: run 2 ranks with a /dev/shm of that size and the folder NAME.
cramped() {
    run_log=$work/$1.log run_ranks=2 room=$2
    set -- "$@" output.tensorboard=off run.dir="$work/$1"
    shift 2
    timeout $time_limit env room="$room" unshare --mount sh -c 'mount -t tmpfs -o size="$room" tmpfs /dev/shm && "$@"; status=$?; ls /dev/shm >>left; exit $status' \
        sh $MPIRUN -np 2 "$vittrain" "$@" >"$run_log" 2>&1 </dev/null
    status=$?
}

cramped auto 64k $small mesh.strategy=fsdp train.steps=2
result 'auto takes the ring and says why' "$(ended; has "$run_log" '^mesh: .*; transport: ring \(.*no room in /dev/shm')" "$run_log"
cramped shared 64k $small train.steps=2 mesh.transport=shared
result 'shared is refused' "$(failed_otherwise 2 'mesh.transport=shared: .*no room in /dev/shm')" "$run_log"
middle="$small model.dim=192 model.depth=6 train.steps=2 optim.ema=0.9 mesh.strategy=fsdp"
# 8 MiB hold the window, but not 17 MiB of weights and gradients.
cramped own 8m $middle
result 'weights and gradients that do not fit are not shared' "$(ended; has "$run_log" '^mesh: .*; transport: shared$' \
    '^ranks do not share memory for weights and gradients: rank 0 on .*: shared memory of .* KiB: no room in /dev/shm')" "$run_log"
cramped common 64m $middle
result 'weights in shared memory have the same bits' \
    "$(grep 'ranks do not share memory' "$run_log"; cmp own/weights.safetensors common/weights.safetensors 2>&1)" "$run_log"
# Checkpoints take 83 MiB, weights and gradients 17 MiB, the window 5 MiB.
cramped kept 95m $middle checkpoint.memory=1
result 'checkpoints in memory have the first claim on shared memory' "$(
    ended
    has "$run_log" '^ranks do not share memory .*: with checkpoint.memory they need .* MB of /dev/shm, where .* MB are free'
    cmp own/weights.safetensors kept/weights.safetensors 2>&1)" "$run_log"
large="$small model.dim=192 model.depth=48 train.global_batch=0 train.batch=2 train.steps=1 mesh.strategy=fsdp output.tensorboard=off"
planned() { # NAME WORD...: print the MiB of a rank
    run 1 "$@"
    awk '$1 == "rank" { print $2 }' "$run_log"
}
enough=$(awk -v a="$(planned window plan $large plan.ranks=2)" -v b="$(planned slots plan $large plan.ranks=2 mesh.transport=ring)" \
    'BEGIN { print b < a ? int(1024 * (a + b) / 2) "KiB" : "slots need more" }')
run 2 less train $large plan.memory="$enough" run.dir="$work/less"
result 'a run that fits with slots only does not share' \
    "$(ended; has "$run_log" '^ranks do not share memory .*: slots need less')" "$run_log"
run 2 eval eval "$work/common/checkpoints/last.h5"
run 2 exact $small train.steps=2 train.exact=layout output.tensorboard=off run.dir="$work/exact"
run 1 plan plan $small train.exact=layout plan.cluster="$TEST_SOURCE/input/clusters/epyc_ib100.ini"
result 'nothing to share is no reason for a message' "$(
    grep -h 'do not share\|internal error' eval.log exact.log plan.log
    has plan.log '^ *8192 |less than one per rank')" eval.log
result 'no run leaves a name in /dev/shm' "$(grep '^vittrain-' left)"
