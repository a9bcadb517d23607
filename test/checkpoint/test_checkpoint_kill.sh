#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# system
# A rank that is killed (signal 9) at any point of a checkpoint, in the foreground or in the background, leaves the older checkpoint
# valid: it is found and read, and the files of the dead run are removed. The model is sharded over all ranks. The jobs run
# `test_checkpoint_faults`. `make check` runs one mode on 2 ranks and the other on 3; TEST_LONG=1 runs both on both.
. "$TEST_SOURCE/test/support/program.sh"

job() { timeout $time_limit $MPIRUN -np $ranks "$TEST_BUILD/test/checkpoint/test_checkpoint_faults" "$@" 2>&1 </dev/null; }

# check PHASE CALL TURN RANK STEP: kill the rank at this call of a checkpoint in mode $way; then STEP must be the newest.
check() {
    bad=
    # MPICH's mpirun may return 0 after a rank was killed. The newest step also shows the kill, except at the folder's sync.
    job die 2 "$2" "$3" "$4" $way >output && [ "$TEST_MPI" != mpich ] && bad="the job did not die"
    job check >found || bad="$bad; the check failed"
    grep -q "^newest $5\$" found || bad="$bad; not newest: $5"
    left=$(find . -name '*.part')
    [ -z "$left" ] || bad="$bad; $left is left"
    cat found >>output
    result "rank $4 of $ranks killed at $1 ($2 number $3), $way" "$bad" output
}

for ranks in 2 3; do
    last=$((ranks - 1))
    if [ -n "$TEST_LONG" ]; then ways="at-once background"
    elif [ $ranks = 2 ]; then ways=at-once
    else ways=background; fi
    for way in $ways; do
        rm -f ./*.h5
        job write 1 # what all the others must leave alone
        check 'its beginning' fallocate 0 0 1
        check 'its frame' pwrite 0 0 1
        check 'its data' pwrite 5 0 1
        check 'its first data' pwrite 0 $last 1
        check 'its data' pwrite 1 $((ranks / 2)) 1
        check 'its sync' fsync 0 0 1
        check "the last rank's sync" fsync 0 $last 1
        check 'its renaming' rename 0 0 1
        check "the folder's sync" fsync 1 0 2
    done
done
