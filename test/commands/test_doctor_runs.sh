#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# system
# `vittrain doctor`: its exit code is right on this machine; on two nodes it finds planted
# faults. What each check finds is in test_doctor.c.
. "$TEST_SOURCE/test/support/program.sh"

# says VERDICT CHECK PATTERN: print a problem if $run_log has no such row. -a: output of Open MPI 5 contains NUL bytes.
says() {
    grep -aE "^$1  $2 " "$run_log" | grep -qE -- "$3" || echo "no row: $1 $2 $3;"
}

# ---- here
run 1 alone doctor
bad=$(ended 0; says pass ranks "1 rank on 1 node"; says pass data "4 files")
[ "$(grep -cE '^(pass|warn)  ' "$run_log")" = 9 ] || bad="$bad not 9 rows;"
grep -qE "^1 rank on 1 node, .* 0 fail\$" "$run_log" || bad="$bad no last line;"
[ "$(ls -A | grep -c doctor)" = 0 ] || bad="$bad it left files;"
result 'doctor alone' "$bad" "$run_log"
run 1 faults doctor run.dir=/proc/none data.root=/none
bad=$(ended 10; says fail space '^'; has "$run_log" '^  *-> free some space' \
    '^vittrain: error: doctor: 3 of 9 checks failed: run folder, space, data$')
result 'without a folder and data' "$bad" "$run_log"
fails 1 'a deck that cannot be read' 2 'train.bacth' doctor train.bacth=3

# second WORD...: two ranks; the second begins with the shell words in $SECOND.
second() {
    run_log=$work/second.log
    timeout $time_limit $MPIRUN -np 2 sh -c 'eval "rank=$TEST_RANK"
        [ "$rank" = 0 ] || eval "$0"
        exec "$@" $MORE' "$SECOND" "$@" >"$run_log" 2>&1 </dev/null
    status=$?
}
SECOND='ulimit -n 200' second "$vittrain" doctor
result 'a low limit' "$(ended 0; says warn limits 'rank 1 on .*: the limit of open files is 200')" "$run_log"
run 2 hang doctor mesh.timeout=1 debug.pause="folder:0:$work/never:1"
result 'a file server that does not respond' \
    "$([ $status -ne 0 ] || echo 'exit status 0;'; has "$run_log" 'vittrain: failure: .*missing: rank 1 on .* run folder')" "$run_log"
cpu=$(taskset -cp $$ 2>/dev/null | sed 's/.*: *\([0-9]*\).*/\1/')
if [ -z "$cpu" ] || [ "$(nproc)" = 1 ]; then
    result 'two ranks on one CPU # SKIP one CPU, or no taskset'
else
    run_log=$work/bound.log
    timeout $time_limit $MPIRUN -np 2 taskset -c "$cpu" "$vittrain" doctor run.threads=1 >"$run_log" 2>&1
    status=$?
    result 'two ranks on one CPU' \
        "$(ended 0; says warn binding "2 ranks with 2 threads in total are bound to 1 of")" "$run_log"
fi
run 2 crowd $small run.dir="$work/crowd" run.threads="$(nproc)" debug.batches=1 train.epochs=1
bad=$(ended 0)
[ "$(grep -c '^warning: doctor: ' "$run_log")" = 1 ] &&
    grep -q "^warning: doctor: cores: .*: 2 ranks with $(nproc) threads* each on .*run.threads" "$run_log" || bad="$bad not one warning;"
grep -q 'doctor: cores' "$work/crowd/train.log" || bad="$bad not in the log;"
result 'train warns of threads' "$bad" "$run_log"
module=$TEST_BUILD/test/emulated-cuda.so
if [ -e "$module" ]; then
    export VITTRAIN_CUDA_MODULE="$module"
    run 2 gpus doctor run.backend=cuda
    result 'GPUs' "$(ended 0; says pass gpus 'each rank has a GPU: emulated GPU.*driver for CUDA [0-9.]*, CUDA .*, ')" "$run_log"
    SECOND='export VITTRAIN_EMULATION_DEVICES=0' second "$vittrain" doctor
    result 'a rank without a GPU' "$(ended 10; says fail gpus 'rank 1 on .* has no GPU')" "$run_log"
    unset VITTRAIN_CUDA_MODULE
else
    result 'GPUs # SKIP no g++ for the emulated GPU'
fi

# ---- on two nodes
take_nodes 2
other=$(cluster name 2)
cluster hosts 2 >"$work/hosts"
# Both nodes have the same decks and data, on disks of their own.
cp -r "$TEST_BUILD/data/cifar-10-sample" "$work/data"
for i in 1 2; do
    cluster exec $i sh -c "cp -r $work/data /run/data && echo '[train]
epochs = 3' >/run/doctor.ini"
done

# doctor WORD...: run doctor on both nodes.
doctor() {
    run_log=$work/nodes.log
    on_first timeout $time_limit mpirun -np 4 -hostfile hosts "$vittrain" doctor /run/doctor.ini data.root=/run/data \
        run.threads=1 "$@" >"$run_log" 2>&1 </dev/null
    status=$?
}

# found NAME STATUS VERDICT CHECK PATTERN: print a TAP line on the newest run's exit status and row.
found() { result "$1" "$(ended "$2"; says "$3" "$4" "$5")" "$run_log"; }

doctor
found 'two good nodes' 0 pass data 'equal on all nodes'
cluster exec 2 sh -c 'printf x | dd of=/run/data/test_batch.bin bs=1 seek=5000 conv=notrunc 2>/dev/null'
doctor
found 'other data' 10 fail data "$other: /run/data/test_batch.bin differs from"
cluster exec 2 cp "$work/data/test_batch.bin" /run/data
doctor run.dir=/run/runs
found 'disks of their own' 0 warn 'run folder' "$other: /run is not shared with the first node"
