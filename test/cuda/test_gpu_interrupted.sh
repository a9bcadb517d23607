#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# system
# Training on emulated GPUs that is interrupted, with every strategy: a collective fails, hangs or lacks a rank, a rank is killed, and
# the run continues on another number of GPUs. And jobs/first_gpus.sh.
. "$TEST_SOURCE/test/support/program.sh"
. "$TEST_SOURCE/test/cuda/emulated_runs.sh"

# survives STRATEGY RANKS FAULT PATTERN OTHER_RANKS WORD...: after a checkpoint in the background, a collective fails, and
# the message matches PATTERN. The run continues on another number of GPUs, where a rank dies after the last step. The
# losses are those of the CPU.
survives() {
    strategy=$1 first=$2 fault=$3 pattern=$4 second=$5
    shift 5
    words="$tiny run.backend=cuda run.dir=$work/gpu checkpoint.every=0.1 mesh.strategy=$strategy $*"
    export VITTRAIN_EMULATION_COLLECTIVE="$fault"
    run "$first" failed $words mesh.timeout=3s
    unset VITTRAIN_EMULATION_COLLECTIVE
    bad="$(ended 9)$(has "$work/failed.log" "^vittrain: failure: rank [0-9] on .*: GPU .* $pattern")"
    [ "$(grep -c '^vittrain: failure' "$work/failed.log")" = 1 ] || bad="$bad; not one failure"
    grep -q '^warning: stalled' "$work/failed.log" && bad="$bad; a rank is named"
    result "$strategy on $first GPUs: a collective that fails ends the training" "$bad" "$work/failed.log"
    bad=$(signalled "$second" gpu KILL results:5 $words cuda.graph=on)
    bad="$bad$(has "$work/gpu.log" 'resuming from .*step-0000000[123].h5' 'emulated NCCL')$(as_cpu)"
    result "$strategy on $second GPUs: it continues, and a rank dies" "$bad" "$work/gpu.log"
    rm -rf "$work/gpu" "$work/gpu.log"
}

run 1 cpu $tiny run.backend=cpu run.dir="$work/cpu"
result 'the CPU trains' "$(ended)" "$work/cpu.log"
failed='failed after .*: unhandled system error'
survives ddp 4 error:1:15 "$failed" 2 cuda.dependent_launch=on cuda.graph=off
survives zero1 2 error:1:25 "$failed" 4 cuda.graph=off
survives zero2 4 error:1:25 "$failed" 2 train.accumulate=2
survives fsdp 2 hang:1:24 'in a graph, .* has waited' 4
survives hsdp 2 error:1:30 "$failed" 4 mesh.shard=2 cuda.graph=off

# The host of rank 0 waits for the GPU, whose collective waits for rank 1.
timeout $time_limit $MPIRUN -np 2 "$vittrain" $tiny run.backend=cuda run.dir="$work/stalled" train.steps=8 mesh.stall_warning=1 \
    debug.pause="data:6:$work/stalled.go:1" >"$work/stalled.log" 2>&1 </dev/null &
wait_job=$!
wait_for '^warning: stalled' "$work/stalled.log"
kill $wait_job
wait $wait_job
bad=$(grep -qE '^warning: stalled: rank 1 on .*in the wait for data, step 6, ' "$work/stalled.log" || echo 'not named')
result 'a rank that the others wait for is named' "$bad" "$work/stalled.log"

# What jobs/first_gpus.sh runs on a node with several GPUs, with a stand-in for nvidia-smi.
mkdir "$work/bin"
cat >"$work/bin/nvidia-smi" <<'END'
#!/bin/sh
case $1 in
-L) printf 'GPU %s: an emulated one\n' 0 1 ;;
--query-compute-apps=*) printf '%s\n' uuid-0 uuid-1 ;;
esac
END
chmod +x "$work/bin/nvidia-smi"
first() {
    PATH=$work/bin:$PATH VITTRAIN=$vittrain OUT=$work/first STRATEGIES=fsdp BATCH=8 STEPS=4 BYTES=64KiB \
        timeout $time_limit sh "$TEST_SOURCE/jobs/first_gpus.sh" $small model.patch=16 model.depth=1 "$@" >"$work/first.log" 2>&1
    status=$?
}
first train.clip_norm=1
bad="$(ended)$(has "$work/first/summary.txt" '^first hour on 2 GPUs' '^ok    losses of fsdp on 2 GPUs' 'all_reduce: .* GB/s' \
    '^ok    checkpoints in the background' '^ok    same bits of two fsdp runs on 2 GPUs' '^all checks passed')"
[ "$(cut -d, -f1,2 "$work/first/scaling.csv" | tr '\n' ' ')" = 'strategy,gpus one,1 fsdp,2 ' ] || bad="$bad; another table"
result 'the first hour on several GPUs' "$bad" "$work/first.log"
