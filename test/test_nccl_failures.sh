#!/bin/sh
# Collectives of (emulated) GPUs that fail, or to which a rank does not come, end the job, soon, with
# one line that says what and who, and exit code 9. The jobs are `test_nccl WAY` (see there), with
# failures made by VITTRAIN_EMULATION_COLLECTIVE (cuda/emulation/collective.cpp): FAULT:RANK:NUMBER.

if [ ! -e "$TEST_BUILD/test/emulated-cuda.so" ]; then
    echo '1..0 # SKIP no C++ compiler for the emulated GPU'
    exit 0
fi

# A job that ends while a group is opened leaves the group's memory: that of processes that are gone.
tidy() {
    for memory in /dev/shm/vittrain-emulated-*; do
        process=${memory#/dev/shm/vittrain-emulated-}
        [ ! -e "$memory" ] || kill -0 "${process%-*}" 2>/dev/null || rm -f "$memory"
    done
}
trap tidy EXIT

number=0
# check NAME WAY FAULT PATTERN...: of 3 ranks, in 30 s.
check() {
    name=$1 way=$2 fault=$3
    shift 3
    number=$((number + 1))
    said=$(VITTRAIN_EMULATION_COLLECTIVE=$fault timeout 30 $MPIRUN -np 3 "$TEST_BUILD/test/test_nccl" \
        "$way" 2>&1 </dev/null)
    status=$?
    bad=
    [ $status -eq 9 ] || bad="exit status $status"
    lines=$(echo "$said" | grep -c '^vittrain: ')
    [ "$lines" -eq 1 ] || bad="$bad; $lines lines"
    for pattern in "$@"; do
        echo "$said" | grep '^vittrain: ' | grep -qE "$pattern" || bad="$bad; no \"$pattern\""
    done
    if [ -z "$bad" ]; then
        echo "ok $number - $name"
    else
        echo "not ok $number - $name"
        echo "# $bad"
        echo "$said" | sed 's/^/# /'
    fi
}

echo 1..8
check 'what NCCL reports ends the job' sums error:1:3 \
    'rank 1 on .*: GPU all-reduce of 1 fp32 \(number 4 of a group of 3 ranks\) failed after .*: emulated' \
    'remote process has exited; .*NCCL_DEBUG=INFO'
check 'a collective that is not queued ends the job' sums refuse:2:2 \
    'rank 2 on .*: GPU all-reduce of 1 fp32 \(number 3 .*failed .*unhandled system error'
check 'a collective that hangs ends the job' sums hang:1:3 \
    'rank 0 on .*: GPU all-reduce of 1 fp32 \(number 4 .* has waited for [2-9]\.' \
    'all ranks are in it, but nothing arrives; see mesh.timeout, and NCCL_DEBUG=INFO'
check 'a recorded collective that hangs ends the job' recorded hang:2:1 \
    'rank 0 on .*: GPU all-reduce of 1 fp32, or one before it in a recorded step, \(number 2 .* has waited'
check 'a rank that does not come to a collective is named' away none \
    'rank 0 on .*: GPU all-reduce of 1 fp32 \(number 3 .* has waited .*missing: rank 2 on .*no collective'
check 'a start that cannot be ends the job' sums refuse:0:0 \
    "rank 0 on .*: NCCL's start \\(number 1 of a group of 3 ranks\\) failed .*: no shared memory"
check 'a start that hangs ends the job' sums hang:2:0 \
    "rank 0 on .*: NCCL's start \\(number 1 .* has waited .*nothing arrives"
check 'a rank that does not come to the start is named' late none \
    'rank 0 on .* has waited .*missing: rank 2 on '
