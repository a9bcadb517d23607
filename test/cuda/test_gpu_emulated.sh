#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# The whole program on emulated GPUs, with every strategy and on 1, 3 and 4 ranks: losses equal those of one
# rank on the CPU within rounding, with and without CUDA graphs. Two ranks on one GPU are an error. Convolutional
# models train, too.
. "$TEST_SOURCE/test/support/program.sh"
. "$TEST_SOURCE/test/cuda/emulated_runs.sh"

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

run 1 cpu $tiny run.backend=cpu run.dir="$work/cpu"
result 'the CPU trains' "$(ended)" "$work/cpu.log"
trains 'one GPU' 1
export VITTRAIN_EMULATION_ATS=1
trains 'one GPU that reads pageable memory late' 1
unset VITTRAIN_EMULATION_ATS
trains 'ddp on 4 GPUs' 4 cuda.dependent_launch=on cuda.graph=off
trains 'zero1 on 3 GPUs' 3 mesh.strategy=zero1
trains 'zero2 on 4 GPUs with micro-batches' 4 mesh.strategy=zero2 train.accumulate=2
trains 'fsdp on 3 GPUs' 3 mesh.strategy=fsdp cuda.graph=on debug.rank_factor=60
result 'NCCL starts with several roots' "$(has "$work/gpu.log" '^emulated NCCL: 2 roots$')" "$work/gpu.log"
trains 'hsdp on 4 GPUs' 4 mesh.strategy=hsdp mesh.shard=2 cuda.graph=off

export VITTRAIN_EMULATION_NCCL=22105
run 4 uneven $tiny run.backend=cuda run.dir="$work/uneven" mesh.strategy=ddp train.global_batch=10 debug.rank_factor=60
result 'ranks with different numbers of samples, an old NCCL has one root' "$(ended; grep roots "$work/uneven.log")" "$work/uneven.log"
fails 4 'hsdp with an old NCCL' 2 'hsdp may deadlock on GPUs with .*use NCCL 2.26 or newer' \
    $tiny run.backend=cuda run.dir="$work/old" mesh.strategy=hsdp mesh.shard=2
unset VITTRAIN_EMULATION_NCCL

export VITTRAIN_EMULATION_DEVICES=1
fails 2 'two ranks on one GPU' 2 'rank 0 on .*: 2 ranks of this node have the same GPU \(emulated GPU.*cuda.share=yes' \
    $tiny run.backend=cuda run.dir="$work/shared"
trains 'two ranks on one GPU, as they wish' 2 mesh.strategy=fsdp cuda.share=yes
unset VITTRAIN_EMULATION_DEVICES

muon="optim.name=muon optim.momentum=0.9 optim.nesterov=on"
rm -rf "$work/cpu"
run 1 cpu $tiny $muon run.backend=cpu run.dir="$work/cpu"
trains 'Muon on one GPU' 1 $muon
trains 'Muon with fsdp on 4 GPUs' 4 $muon mesh.strategy=fsdp
rm -rf "$work/cpu"
run 1 cpu $tiny optim.name=lamb run.backend=cpu run.dir="$work/cpu"
trains 'lamb with ddp on 3 GPUs' 3 optim.name=lamb mesh.strategy=ddp

tiny="model.name=cnn_a data.format=cifar10 debug.fraction=0.04 train.precision=fp32 train.global_batch=8 output.log_every=1 \
run.seed=7 run.threads=1 train.epochs=1 train.steps=5 data.val=none output.tensorboard=off optim.name=sgd optim.lr=1e-2"
rm -rf "$work/cpu"
run 1 cpu $tiny run.backend=cpu run.dir="$work/cpu"
result 'the CPU trains convolutions' "$(ended)" "$work/cpu.log"
trains 'convolutions, recorded' 1
trains 'convolutions on 2 GPUs, not recorded' 2 mesh.strategy=fsdp cuda.graph=off

# The first convolution of ResNets reads the images in 16 bits, without a transposition.
run 1 plan plan model.name=resnet50 data.format=synthetic data.image=64 train.batch=2 train.precision=bf16 \
    run.backend=cuda plan.machine=none plan.operations="$work/plan.csv"
awk -F, '$7 == "fold" || $6 == "transpose" { printf "%s %s;", $7, $8 }' "$work/plan.csv" >"$work/folded"
result 'images are folded for the first convolution' \
    "$(ended; grep -qx 'fold filters;fold images;fold images;fold dweight;' "$work/folded" || cat "$work/folded")" "$work/plan.log"

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
    run.dir="$work/unreadable"

# A third of the samples has no targets and does not count in the loss, also in recorded steps.
"$TEST_BUILD/test/arrays/test_arrays" --values "$work/values.h5" 24
tiny="data.format=arrays data.root=$work/values.h5 data.task=regression data.x=near data.y=gaps data.shuffle=off data.val=none \
model.name=vit_cifar model.dim=32 model.depth=1 model.heads=2 model.patch=1 model.image=5 model.image_width=4 model.head=dense \
train.precision=fp32 train.global_batch=24 train.steps=4 train.clip_norm=1 output.log_every=1 output.tensorboard=off"
rm -rf "$work/cpu"
run 1 cpu $tiny run.backend=cpu run.dir="$work/cpu"
result 'the CPU trains with missing targets' "$(ended)" "$work/cpu.log"
trains 'missing targets on 2 GPUs' 2 mesh.strategy=ddp
