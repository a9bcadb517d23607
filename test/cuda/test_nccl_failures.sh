#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# system
# Collectives of (emulated) GPUs that fail or lack a rank end the job soon, with one line that names the
# collective and the rank, and exit code 9. The rank that prints it aborts its communicators. Illegal uses of
# NCCL are faults of the emulation. The jobs are `test_nccl WAY`, with failures injected by
# VITTRAIN_EMULATION_COLLECTIVE (test/emulation/collective.cpp).
. "$TEST_SOURCE/test/support/program.sh"
take_emulated_gpu

# A job that ends while a group is opened leaves the group's shared memory: remove that of dead processes.
tidy() {
    for memory in /dev/shm/vittrain-emulated-*; do
        process=${memory#/dev/shm/vittrain-emulated-}
        [ ! -e "$memory" ] || kill -0 "${process%-*}" 2>/dev/null || rm -f "$memory"
    done
}

# run RANKS WAY FAULT: set $status, write what it prints to the file `output`.
run() {
    VITTRAIN_EMULATION_COLLECTIVE=$3 timeout $time_limit $MPIRUN -np "$1" "$TEST_BUILD/test/cuda/test_nccl" "$2" >output 2>&1 </dev/null
    status=$?
}

ranks=3
communicators=1 # that a rank aborts
lines_most=1     # where several groups fail, each may print a line
# check NAME WAY FAULT PATTERN...
check() {
    name=$1 way=$2 fault=$3
    shift 3
    run $ranks "$way" "$fault"
    bad=
    [ $status -eq 9 ] || bad="exit status $status"
    lines=$(grep -c '^vittrain: ' output)
    [ "$lines" -ge 1 ] && [ "$lines" -le $lines_most ] || bad="$bad; $lines lines"
    for pattern in "$@"; do
        grep '^vittrain: ' output | grep -qE "$pattern" || bad="$bad; no \"$pattern\""
    done
    [ $communicators -eq 0 ] || grep -q "aborted communicators: $communicators\$" output || bad="$bad; not aborted"
    result "$name" "$bad" output
}

# faulty NAME RANKS WAY PATTERN: the emulated GPU reports a fault.
faulty() {
    run "$2" "$3" none
    bad=$([ $status -ne 0 ] || echo 'exit status 0')
    grep -q "emulated GPU: $4" output || bad="$bad; no \"$4\""
    result "$1" "$bad" output
}

check 'what NCCL reports ends the job' sums error:1:3 \
    'rank 1 on .*: GPU all-reduce of 1 fp32 \(number 4 of a group of 3 ranks\) failed after .*: emulated' \
    'unhandled system error; .*NCCL_DEBUG=INFO'
check 'a collective that is not queued ends the job' sums refuse:2:2 \
    'rank 2 on .*: GPU all-reduce of 1 fp32 \(number 3 .*failed .*unhandled system error'
check 'a collective that hangs ends the job' sums hang:1:3 \
    'rank [0-9] on .*: GPU all-reduce of 1 fp32 \(number 4 .* has waited for ([2-9]|[1-9][0-9])\.' \
    'all ranks have started it, but no data arrives; see mesh.timeout'
check 'a recorded collective that hangs ends the job' recorded hang:2:1 \
    'rank [0-9] on .*: GPU all-reduce of 1 fp32, or an earlier one in a graph, \(number 2 .* has waited'
check 'a rank that does not come to a collective is named' away none \
    'rank [0-9] on .*: GPU all-reduce of 1 fp32 \(number 3 .* has waited .*missing: rank 2 on .*no collective'
check 'a rank that does not come to a later all-to-all is named' connected none \
    'rank [0-9] on .*: GPU all-to-all of 1 fp32 \(number 4 .* has waited .*missing: rank 2 on .*no collective'
check 'an abort that hangs does not hang the job' sums hang:1:3,stuck:0:0 \
    'rank [0-9] on .*: GPU all-reduce of 1 fp32 \(number 4 .* has waited for ([2-9]|[1-9][0-9])\.'
export VITTRAIN_EMULATION_FAULT=cudaEventQuery:700
check 'a query of an event that fails is no progress' sums hang:1:3 'rank [0-9] on .*: GPU all-reduce of 1 fp32 .* has waited'
unset VITTRAIN_EMULATION_FAULT
ranks=4 communicators=2 lines_most=4
check 'all groups are aborted' overlapping hang:0:4 'rank [0-9] on .*: GPU all-reduce of 1 fp32 .* has waited'
ranks=3 communicators=0 lines_most=1
check 'a start that cannot be ends the job' sums refuse:0:0 \
    "rank 0 on .*: NCCL's start \\(number 1 of a group of 3 ranks\\) failed .*: no shared memory"
check 'a start that hangs ends the job' sums hang:2:0 \
    "rank [0-9] on .*: NCCL's start \\(number 1 .* has waited .*no data arrives"
check 'a rank that does not come to the first all-to-all is named' unconnected none \
    'rank [0-9] on .*: GPU all-to-all of 1 fp32 \(number 2 .* has waited .*missing: rank 2 on .*no collective'
check 'a rank that does not come to the start is named' late none 'has waited .*missing: rank 2 on '

faulty 'a collective that only one rank records' 3 mixed 'a collective is captured in a graph on some ranks only'
faulty 'ranks that do not call the same' 3 different 'ranks call different collectives'
faulty 'a group that is closed before a recorded step' 3 recorded 'a communicator is closed before the graphs'
export NCCL_LAUNCH_ORDER_IMPLICIT=0
faulty 'two groups without an order' 4 overlapping 'collectives of two communicators overlap without'
