#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# system
# A job in which one rank dies or does not come ends soon, with a message that names the rank; no rank hangs.
# The message is mpirun's if the rank was killed. The jobs are those of lost_ranks.c.
. "$TEST_SOURCE/test/support/program.sh"

# check_job NAME RANKS JOB PATTERN...: the job fails, and its stderr has a line with each pattern, and at most
# $failures_most lines of failures.
failures_most=9
check_job() {
    name=$1 ranks=$2 job=$3
    shift 3
    timeout $time_limit $MPIRUN -np "$ranks" "$TEST_BUILD/test/comm/lost_ranks" $job >output 2>&1 </dev/null
    status=$?
    bad=
    [ $status -ne 0 ] && [ $status -ne 124 ] || bad="exit status $status"
    for pattern in "$@"; do
        grep -qE "$pattern" output || bad="$bad; no line with \"$pattern\""
    done
    [ "$(grep -c '^vittrain: failure: ' output)" -le $failures_most ] || bad="$bad; more than $failures_most lines"
    result "$name" "$bad" output
}

# check NAME WAY PATTERN...: the same with 3 ranks.
check() {
    name=$1 way=$2
    shift 2
    check_job "$name" 3 "$way" "$@"
}

killed='noticed that process rank 2 with PID [0-9]+ on node [^ ]+ exited on' signal=11
# MPICH's mpirun does not report the rank. It may report the signal with which it killed another rank.
[ "$TEST_MPI" != mpich ] || killed='THE EXIT STRING: ' signal='(9|11)'
check 'a killed rank is named' kill "$killed" 'signal 9[ )]'
check 'a stopped rank is named' silent 'vittrain: failure: rank 2 on [^ ]+ \(no heartbeat for [1-9]'
check 'a stopped rank 0 is named by the next' silent0 'vittrain: failure: rank 0 on [^ ]+ \(no heartbeat for [1-9]'
check 'a rank that MPI says is gone is not a mistake of the program' broken \
    'vittrain: failure: rank 2 on .* can no longer reach other ranks: MPI_Send'
check 'a fault names its rank' fault 'vittrain: failure: rank 2 on .*: segmentation fault' "$killed" "signal $signal[ )]"
check 'a broken condition names rank and place' ensure 'rank 2 on .*: a condition of the test .*lost_ranks.c:'
check 'a stopped rank is missing in a collective' stopped 'missing: rank 2 on [^ ]+ \(no heartbeat'
check 'a message that does not come names its sender' alone 'rank 1 on .*: receiving of 1 bytes .*missing: rank 2 on .*in no collective'
"$TEST_BUILD/test/comm/lost_ranks" fault >output 2>&1 </dev/null
result 'a fault is named without a launcher' \
    "$(grep -cE '^vittrain: failure: rank 0 on .*: segmentation fault' output | grep -vx 1)" output
failures_most=1
for transport in 'ring 0 1000000' 'shared 0 1000000' 'hierarchical 2 1000000' 'shared 0 100'; do
    check_job "a rank that does not come is named: $transport" 4 "$transport" \
        "all-reduce of (${transport##* } fp32|1 int64) \(number [0-9]+ of a group of 4 .*missing: rank 3 on .*in no coll"
done
for ranks in 3 4; do
    timeout $time_limit $MPIRUN -np $ranks "$TEST_BUILD/test/comm/lost_ranks" >output 2>&1 </dev/null
    status=$?
    result "$ranks ranks end while heartbeats are being sent" "$(ended)" output
done
