#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Files of a run, read by the Python programs that people use: events by TensorBoard, checkpoints by h5py, weights by
# safetensors; training compared with PyTorch. Not part of `make check`, which needs no Python. TAP output.
#   PYTHON=python TEST_SOURCE=/src TEST_BUILD=/build sh check_with_python.sh

PYTHON=${PYTHON:-python3}
MPIRUN=${MPIRUN:-mpirun --oversubscribe --bind-to none}
. "$TEST_SOURCE/test/support/environment.sh"
. "$TEST_SOURCE/test/support/program.sh"

# read_by NAME SCRIPT WORD...: the script ends with status 0.
read_by() {
    name=$1 script=$2
    shift 2
    "$PYTHON" "$TEST_SOURCE/test/python/$script" "$@" >"$work/output" 2>&1 && bad= || bad="$script: status $?"
    result "$name" "$bad" "$work/output"
}

# skipped NAME MODULE...: true, with a line of output, if a Python module is missing. The continuous tests have all.
skipped() {
    name=$1
    shift
    "$PYTHON" -c 'import sys; from importlib.util import find_spec; sys.exit(not all(map(find_spec, sys.argv[1:])))' "$@" && return 1
    result "$name # SKIP needs $*"
}

# by_torch NAME SCRIPT WORD...: as read_by, with PyTorch, beside the other checks: a line of preloaded.py's list.
by_torch() {
    skipped "$1" torch torchvision timm && return
    name=$1 script=$TEST_SOURCE/test/python/$2
    shift 2
    (IFS='|' && echo "$name|$script|$*") >>"$work/list"
}

# page NAME PAGE: the Python blocks of a page of the manual run.
page() {
    skipped "$1" torch torchvision timm onnxscript onnxruntime wandb mlflow sqlalchemy && return
    PYTHON=$PYTHON sh "$TEST_SOURCE/test/docs/test_book.sh" "docs/$2" >"$work/book.log" 2>&1
    bad=$(grep -m 1 '^not ok' "$work/book.log")
    grep -E '^ok .*: (import|from) ' "$work/book.log" >"$work/blocks" || bad="$bad no block of Python"
    ! grep -q SKIP "$work/blocks" || bad="$bad a block of Python was not run"
    result "$1" "$bad" "$work/book.log"
}

# All checks with PyTorch run beside the rest, one after another. One model for each code path of the weights; check_weights.py
# without names checks all, which takes minutes.
sample=$TEST_BUILD/data/cifar-10-sample
for class in train/bird train/cat train/dog val/bird val/cat val/dog; do mkdir -p "$work/tree/$class"; done
"$TEST_BUILD/test/data/test_image_folder" --make "$work/tree" 60
by_torch "PyTorch trains convolutional models as the program does" check_convnets.py "$vittrain" "$sample" "$work"
by_torch "PyTorch trains with numbers, labels and planes as the program does" check_targets.py "$vittrain" "$work/targets"
by_torch "timm and torchvision load the weights of models" check_weights.py "$vittrain" "$sample" "$work/tree" \
    "$work/weights" vit_cifar vit_tiny_patch16_224 vit_small_patch32_224 deit3_small_patch16_224 \
    vit_small_patch14_reg4_dinov2 vit_small_patch16_dinov3 vit_small_patch16_sincos cnn_a cnn_a_lenet cnn_b cnn_c \
    resnet18 resnet50
by_torch "data.val=reference is PyTorch's random_split" check_torch_split.py "$vittrain" "$TEST_BUILD/test/base/test_random" "$work"
by_torch "the first layer has timm's weights for other numbers of channels" check_channels.py "$vittrain" "$work"
by_torch "PyTorch has the losses of augmented training with the same random numbers" check_augmented.py "$vittrain" \
    "$MPIRUN" "$sample" "$work/augmented"
by_torch "made images are evaluated as by timm" check_evaluation.py "$TEST_BUILD/test/train/test_recipe" "$work/tree" 4
by_torch "weights of timm predict as in timm, PyTorch files are converted" check_predict.py "$vittrain" \
    "$work/predict"
[ ! -e "$work/list" ] ||
    "$PYTHON" "$TEST_SOURCE/test/python/preloaded.py" "$work" torch torchvision timm <"$work/list" >"$work/finished" &
beside=$!

folder=$work/run
steps="$small run.tags=python,suite run.dir=$folder train.epochs=2 checkpoint.every=0.5 checkpoint.keep=9 optim.ema=0.9"
run 2 first $steps
result "a run on two ranks" "$(ended)" "$work/first.log"

read_by "TensorBoard reads the events of a run" check_tensorboard.py "$folder" 1
read_by "h5py reads a checkpoint, safetensors the weights" check_checkpoint.py "$folder/checkpoints/last.h5" \
    "$folder/weights.safetensors" average

# As if killed in its second epoch: the newest checkpoint is that of the first.
for file in "$folder"/checkpoints/step-*.h5; do newest=$file; done
rm "$newest" "$folder/result.json"
run 2 second $steps
result "the run goes on" "$(has "$work/second.log" 'resuming from')" "$work/second.log"
read_by "TensorBoard sees no step twice in a resumed run" check_tensorboard.py "$folder" 2

# A third attempt after two checkpoints were lost, ended by a killed rank.
for i in 1 2; do for file in "$folder"/checkpoints/step-*.h5; do newest=$file; done; rm "$newest"; done
rm "$folder/result.json"
timeout $time_limit "$vittrain" launch -- $MPIRUN -np 2 "$vittrain" $steps debug.pause="backward:46:$work/third.go" >"$work/third.log" 2>&1 </dev/null &
job=$!
paused 1 "$work/third.go" >/dev/null
touch "$work/third.go"
pkill -9 -f "^$vittrain model.name.*debug.pause"
wait $job
result "the run goes on twice more" \
    "$([ "$(grep -c 'resuming from' "$work/third.log")" = 2 ] || echo 'not twice')" "$work/third.log"
read_by "TensorBoard and its server read four parts as one run" check_tensorboard.py "$folder" 4 server
skipped "Weights & Biases and MLflow import a run" wandb mlflow sqlalchemy alembic ||
    read_by "Weights & Biases and MLflow import a run" check_trackers.py "$folder" "$work/trackers"

run 1 half $small run.dir="$work/half" train.precision=fp16 train.epochs=1
result "a run in fp16" "$(ended)" "$work/half.log"
read_by "TensorBoard reads the scale of the loss" check_tensorboard.py "$work/half" 1

page "the book's Python reads a checkpoint" read-checkpoint.md
page "the book's Python makes weights for timm, torchvision and ONNX" fine-tune.md

read_by "h5py rewrites data sets as data describe advises" check_advice.py "$vittrain" "$work/advice"

skipped "xarray reads predictions of arrays" xarray netCDF4 h5netcdf ||
    read_by "xarray reads predictions of arrays" check_predict_arrays.py "$vittrain" "$work/predict_arrays"
skipped "series of files against xarray" xarray netCDF4 h5netcdf ||
    read_by "series of files against xarray" check_series.py "$vittrain" "$work/series"
skipped "times and grids against xarray" xarray netCDF4 h5netcdf zarr cftime ||
    read_by "times and grids against xarray" check_times.py "$vittrain" "$work/times"

skipped "shards of webdataset have its samples" webdataset ||
    read_by "shards of webdataset have its samples" check_webdataset.py "$vittrain" "$work/tree" "$work"
wait "$beside"
if [ -e "$work/list" ]; then
    ran=$(wc -l <"$work/finished") listed=$(wc -l <"$work/list")
    result "all checks with PyTorch ran" "$([ "$ran" = "$listed" ] || echo "$ran of $listed ran")"
    while read -r script status name; do
        [ "$status" = 0 ] && bad= || bad="$script: status $status"
        result "$name" "$bad" "$work/$script.output"
    done <"$work/finished"
fi
