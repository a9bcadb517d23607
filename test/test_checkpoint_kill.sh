#!/bin/sh
# A rank that is killed (signal 9) anywhere in a checkpoint leaves the older one good: it is found, read
# back right, and what the dead run left is removed. The jobs are `test_checkpoint_faults PART`.

number=0
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

job() {
    (cd "$work" && timeout 60 $MPIRUN -np 2 "$TEST_BUILD/test/test_checkpoint_faults" "$@" 2>&1 </dev/null)
}

# check CALL TURN RANK STEP: the rank is killed at that call; afterwards STEP is the newest.
check() {
    number=$((number + 1))
    bad=
    job die 2 "$1" "$2" "$3" >"$work/said" && bad="the job did not die"
    job check >"$work/found" || bad="$bad; the check failed"
    grep -q "^newest $4\$" "$work/found" || bad="$bad; not newest: $4"
    left=$(find "$work" -name '*.part')
    [ -z "$left" ] || bad="$bad; $left is left"
    if [ -z "$bad" ]; then
        echo "ok $number - rank $3 killed at $1 number $2"
    else
        echo "not ok $number - rank $3 killed at $1 number $2"
        echo "# $bad"
        sed 's/^/# /' "$work/said" "$work/found"
    fi
}

job write 1 # what all the others must leave alone

echo 1..8
check fallocate 0 0 1
check pwrite 0 0 1
check pwrite 5 0 1
check pwrite 0 1 1
check pwrite 3 1 1
check fsync 0 0 1
check rename 0 0 1
check fsync 1 0 2
