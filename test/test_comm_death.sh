#!/bin/sh
# A job of which one rank dies or stays away ends, soon, with a message that names it; nobody hangs.
# The jobs are `test_comm WAY` (see there): the last of 3 ranks is the one.

number=0
# check NAME WAY PATTERN...: the job fails within 30 s, and its stderr has a line with each pattern.
check() {
    name=$1 way=$2
    shift 2
    number=$((number + 1))
    said=$(timeout 30 $MPIRUN -np 3 "$TEST_BUILD/test/test_comm" "$way" 2>&1 </dev/null)
    status=$?
    bad=
    [ $status -ne 0 ] && [ $status -ne 124 ] || bad="exit status $status"
    for pattern in "$@"; do
        echo "$said" | grep -qE "$pattern" || bad="$bad; no line with \"$pattern\""
    done
    if [ -z "$bad" ]; then
        echo "ok $number - $name"
    else
        echo "not ok $number - $name"
        echo "# $bad"
        echo "$said" | sed 's/^/# /'
    fi
}

echo 1..7
check 'a killed rank ends the job' kill 'signal 9'
check 'a fault names its rank' fault 'vittrain: rank 2 on .*: segmentation fault'
check 'a broken condition names rank and place' ensure \
    'rank 2 on .*: a condition of the test .*test_comm.c:'
check 'a rank that does not come is named' absent \
    'vittrain: rank 0 on .*: all-reduce of 100000 fp32 .*missing: rank 2 on .*in no collective'
# Whoever's time is over first speaks: of the other side.
check 'a rank that waits elsewhere is named with its place' elsewhere \
    'missing: rank 2 on .*in receiving of 1 bytes|rank 2 on .*missing: rank 0 on .*in all-reduce of'
check 'a rank that does not answer is named' stopped 'missing: rank 2 on .*does not answer'
check 'a message that does not come names its sender' alone \
    'rank 1 on .*: receiving of 1 bytes .*missing: rank 2 on .*in no collective'
