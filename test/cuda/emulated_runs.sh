# SPDX-License-Identifier: BSD-3-Clause
# Shared by the tests that train on emulated GPUs and compare with the CPU. Sourced after program.sh.

take_emulated_gpu
export VITTRAIN_CUDA_MODULE="$module"
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
