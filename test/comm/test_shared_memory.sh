#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# A /dev/shm that is too small, as in many containers: mesh.transport=auto uses the ring and logs the reason;
# mesh.transport=shared is one error.
. "$TEST_SOURCE/test/support/program.sh"

unshare --mount true 2>/dev/null || skip_all 'needs root, for a namespace'
# MPI's own shared memory uses another folder.
OMPI_MCA_btl_vader_backing_directory=$work
export OMPI_MCA_btl_vader_backing_directory

# cramped NAME WORD...: run 2 ranks with a /dev/shm of 64 KiB.
cramped() {
    run_log=$work/$1.log
    shift
    timeout $time_limit unshare --mount sh -c 'mount -t tmpfs -o size=64k tmpfs /dev/shm && "$@"; status=$?; ls /dev/shm >>left; exit $status' \
        sh $MPIRUN -np 2 "$vittrain" "$@" >"$run_log" 2>&1 </dev/null
    status=$?
}

cramped auto $small train.steps=2 output.tensorboard=off run.dir="$work/auto"
grep -q '^mesh: .*; transport: ring (.*no room in /dev/shm' "$work/auto.log" && bad= || bad="no such line"
[ $status -eq 0 ] || bad="exit status $status"
result 'auto takes the ring and says why' "$bad" "$work/auto.log"
cramped shared $small train.steps=2 run.dir="$work/shared" mesh.transport=shared
bad=$([ $status -eq 2 ] || echo "exit status $status")
[ "$(grep -c 'error: .*mesh.transport=shared: .*no room in /dev/shm' "$work/shared.log")" = 1 ] ||
    bad="$bad; not one message"
result 'shared is refused' "$bad" "$work/shared.log"
result 'no run leaves a name in /dev/shm' "$(grep '^vittrain-' left)"
