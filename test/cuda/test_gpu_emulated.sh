#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# The whole program on emulated GPUs, with every strategy and on 1, 2 and 4 ranks: losses equal those of one
# rank on the CPU within rounding, with and without CUDA graphs, and also if a run fails and continues on another
# number of GPUs. Two ranks on one GPU are an error. Convolutional models train, too.
. "$TEST_SOURCE/test/support/program.sh"

take_emulated_gpu
VITTRAIN_CUDA_MODULE=$module
export VITTRAIN_CUDA_MODULE
# Rows, widths and counts that are not multiples of the kernels' tiles; gradients are clipped.
tiny="$small model.patch=16 model.depth=1 model.drop_path=0.1 train.global_batch=8 debug.fraction=0.04 \
train.epochs=1 train.steps=5 train.clip_norm=1 optim.ema=0.9 data.val=none output.tensorboard=off"

# as_cpu: print the first loss or norm of the run that differs from the CPU's.
as_cpu() {
    for what in loss grad_norm; do
        column "$work/gpu/metrics.csv" train $what >"$work/a"
        column "$work/cpu/metrics.csv" train $what >"$work/b"
        differ "$work/a" "$work/b" 1e-4
    done
}

# trains NAME RANKS WORD...: losses and norms on emulated GPUs equal those on the CPU.
trains() {
    name=$1 ranks=$2
    shift 2
    run "$ranks" gpu $tiny run.backend=cuda run.dir="$work/gpu" "$@"
    bad="$(ended)$(as_cpu)"
    [ "$ranks" = 1 ] || grep -q 'emulated NCCL' "$work/gpu.log" || bad="$bad; not by NCCL"
    result "$name" "$bad" "$work/gpu.log"
    rm -rf "$work/gpu"
}

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
    : >"$work/killed.log"
    timeout $time_limit $MPIRUN -np "$second" "$vittrain" $words cuda.graph=on debug.pause=results:5:80:1 >"$work/killed.log" 2>&1 </dev/null &
    wait_job=$!
    kill -9 "$(paused 1 "$work/killed.log")"
    wait $wait_job
    status=$?
    wait_job=
    reports_kill $status && [ $status -ne 124 ] && bad= || bad="exit status $status;"
    bad="$bad$(has "$work/killed.log" 'resuming from .*step-0000000[123].h5' 'emulated NCCL')$(as_cpu)"
    result "$strategy on $second GPUs: it continues, and a rank dies" "$bad" "$work/killed.log"
    rm -rf "$work/gpu"
}

run 1 cpu $tiny run.backend=cpu run.dir="$work/cpu"
result 'the CPU trains' "$(ended)" "$work/cpu.log"
trains 'one GPU' 1
failed='failed after .*: unhandled system error'
survives ddp 4 error:1:15 "$failed" 2 cuda.dependent_launch=on cuda.graph=off
survives zero1 2 error:1:25 "$failed" 4 cuda.graph=off
survives zero2 4 error:1:25 "$failed" 2 train.accumulate=2
survives fsdp 2 hang:1:24 'in a graph, .* has waited' 4
survives hsdp 2 error:1:30 "$failed" 4 mesh.shard=2 cuda.graph=off
run 4 uneven $tiny run.backend=cuda run.dir="$work/uneven" mesh.strategy=ddp train.global_batch=10
result 'ranks with different numbers of samples' "$(ended)" "$work/uneven.log"

VITTRAIN_EMULATION_NCCL=22105
export VITTRAIN_EMULATION_NCCL
fails 4 'hsdp with an old NCCL' 2 'hsdp may deadlock on GPUs with .*use NCCL 2.26 or newer' \
    $tiny run.backend=cuda run.dir="$work/old" mesh.strategy=hsdp mesh.shard=2
unset VITTRAIN_EMULATION_NCCL

VITTRAIN_EMULATION_DEVICES=1
export VITTRAIN_EMULATION_DEVICES
fails 2 'two ranks on one GPU' 2 'rank 0 on .*: 2 ranks of this node have the same GPU \(emulated GPU.*cuda.share=yes' \
    $tiny run.backend=cuda run.dir="$work/shared"
trains 'two ranks on one GPU, as they wish' 2 mesh.strategy=fsdp cuda.share=yes
unset VITTRAIN_EMULATION_DEVICES

# The host of rank 0 waits for the GPU, whose collective waits for rank 1.
timeout $time_limit $MPIRUN -np 2 "$vittrain" $tiny run.backend=cuda run.dir="$work/stalled" train.steps=8 mesh.stall_warning=1 \
    debug.pause=data:6:80:1 >"$work/stalled.log" 2>&1 </dev/null &
job=$!
wait_for '^warning: stalled' "$work/stalled.log"
kill $job
wait $job
bad=$(grep -qE '^warning: stalled: rank 1 on .* in the wait for data, step 6, ' "$work/stalled.log" || echo 'not named')
result 'a rank that the others wait for is named' "$bad" "$work/stalled.log"

muon="optim.name=muon optim.momentum=0.9 optim.nesterov=on"
rm -rf "$work/cpu"
run 1 cpu $tiny $muon run.backend=cpu run.dir="$work/cpu"
trains 'Muon on one GPU' 1 $muon
trains 'Muon with fsdp on 4 GPUs' 4 $muon mesh.strategy=fsdp
trains 'Muon with ddp on 2 GPUs' 2 $muon mesh.strategy=ddp
for name in lion lamb lars; do
    rm -rf "$work/cpu"
    run 1 cpu $tiny optim.name=$name run.backend=cpu run.dir="$work/cpu"
    trains "$name with fsdp on 3 GPUs" 3 optim.name=$name mesh.strategy=fsdp
done

tiny="model.name=cnn_a data.format=cifar10 debug.fraction=0.04 train.precision=fp32 train.global_batch=8 output.log_every=1 \
run.seed=7 run.threads=1 train.epochs=1 train.steps=5 data.val=none output.tensorboard=off optim.name=sgd optim.lr=1e-2"
rm -rf "$work/cpu"
run 1 cpu $tiny run.backend=cpu run.dir="$work/cpu"
result 'the CPU trains convolutions' "$(ended)" "$work/cpu.log"
trains 'convolutions, recorded' 1
trains 'convolutions on 2 GPUs, not recorded' 2 mesh.strategy=fsdp cuda.graph=off

# The highest learning rate is one at which the loss just diverges.
for backend in cpu cuda; do
    run 1 range find lr $tiny run.backend=$backend find.steps=12 find.first=1e-3 find.last=30 find.stop=0 \
        find.output="$work/$backend" output.logbook=
    sed '1d; s/,/ /g' "$work/$backend.csv" | cut -d' ' -f1,3 >"$work/$backend.range"
done
bad=$([ "$(wc -l <"$work/cpu.range")" = 12 ] || echo "$(wc -l <"$work/cpu.range") points; ")
result 'the range test has one curve' "$bad$(differ "$work/cpu.range" "$work/cuda.range" 1e-4)" "$work/range.log"

# One rank reads a damaged record after the graph is captured: all ranks must leave the graph together.
for class in bird cat dog; do mkdir -p "$work/tree/train/$class" "$work/tree/val/$class"; done
"$TEST_BUILD/test/data/test_image_folder" --make "$work/tree" 90 || exit 1
record=$(find "$work/tree/train" -name '*.jpg' | sort | sed -n 71p)
head -c 700 "$record" >"$work/cut.jpg" && mv "$work/cut.jpg" "$record"
fails 2 'an unreadable record in a recorded step' 3 "${record#"$work/tree/"}: is truncated" model.name=vit_cifar model.dim=32 \
    model.depth=1 model.heads=2 model.patch=8 model.image=24 data.format=imagefolder data.root="$work/tree" data.shuffle=no \
    train.precision=fp32 train.global_batch=20 train.epochs=1 data.val=none run.threads=1 run.backend=cuda \
    run.dir="$work/unreadable" mesh.timeout=20s

# A third of the samples has no targets and does not count in the loss, also in recorded steps.
"$TEST_BUILD/test/data/test_arrays" --values "$work/values.h5" 24
tiny="data.format=arrays data.root=$work/values.h5 data.task=regression data.x=near data.y=gaps data.shuffle=off data.val=none \
model.name=vit_cifar model.dim=32 model.depth=1 model.heads=2 model.patch=1 model.image=5 model.image_width=4 model.head=dense \
train.precision=fp32 train.global_batch=24 train.steps=4 train.clip_norm=1 output.log_every=1 output.tensorboard=off"
rm -rf "$work/cpu"
run 1 cpu $tiny run.backend=cpu run.dir="$work/cpu"
result 'the CPU trains with missing targets' "$(ended)" "$work/cpu.log"
trains 'missing targets on 2 GPUs' 2 mesh.strategy=ddp
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
