#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# The algorithms of matrix products that GPUs choose by measurement: ranks that measure differently agree on
# one, checkpoints contain the choices, and a resumed run is bit-identical although its own GPUs would choose
# differently. On emulated GPUs with two algorithms, which differ in rounding.
. "$TEST_SOURCE/test/support/program.sh"

take_emulated_gpu
export VITTRAIN_CUDA_MODULE="$module"
# 53 samples in batches of 8: in the last of an epoch's 7 steps rank 0 has 3 samples, rank 1 has 2.
steps="$small model.patch=16 model.depth=1 model.drop_path=0.1 train.global_batch=8 debug.fraction=0.0265 \
train.epochs=2 data.val=none output.tensorboard=off run.backend=cuda cuda.cache=none"

# ranks NAME FIRST SECOND WORD...: a run on two ranks with these fastest algorithms.
ranks() {
    name=$1 first=$2 second=$3
    shift 3
    command="'$vittrain' $steps run.dir='$work/$name' $*"
    run_pair "$name" "env VITTRAIN_EMULATION_PRODUCT='$first' $command" "env VITTRAIN_EMULATION_PRODUCT='$second' $command"
}

# resumed STEP NAME FIRST SECOND WORD...: resume the run "mixed" from its checkpoint of this step.
resumed() {
    start=$work/mixed/checkpoints/step-0000000$1.h5
    shift
    ranks "$@" checkpoint.resume="$start"
}

# ended_as NAME REFERENCE: print nothing if the last run succeeded with the reference's weights.
ended_as() {
    [ $status -eq 0 ] || echo "exit status $status;"
    cmp "$work/$2/weights.safetensors" "$work/$1/weights.safetensors" 2>&1
}

# norms NAME: gradient norms of steps 3 to 6.
norms() {
    column "$work/$1/metrics.csv" train grad_norm | awk '$1 >= 3 && $1 <= 6'
}

ranks mixed 0 1apart checkpoint.every=0.1 checkpoint.keep=50
# The plan has the workspace of 64 and 16 MiB.
result 'two ranks that measure differently train' "$(ended; has "$run_log" '^memory: .* buffers 8[0-9]\.')" "$run_log"
ranks other 1 1 train.steps=6
norms mixed >"$work/mixed.norms"
norms other >"$work/other.norms"
[ "$(differ "$work/mixed.norms" "$work/other.norms" 0)" ] && bad= || bad="the same norms by other algorithms"
result 'other algorithms give other bits' "$bad" "$run_log"
resumed 2 first 0 0 train.steps=6
norms first >"$work/first.norms"
result 'after the first step both have the algorithms of rank 0' \
    "$(differ "$work/mixed.norms" "$work/first.norms" 0)" "$run_log"
resumed 7 same 0 0
result 'after the first epoch also those of its last batch' "$(ended_as same mixed)" "$run_log"
resumed 8 swapped 1apart 0
result 'a resumed run has the algorithms of its checkpoint, and so the same bits' "$(ended_as swapped mixed)" "$run_log"
resumed 8 plain 1apart 1 cuda.graph=off
result 'without recorded steps, too' "$(ended_as plain mixed)" "$run_log"
export VITTRAIN_EMULATION_LIBRARY=2
resumed 6 version 0 1apart checkpoint.every=0.1 checkpoint.keep=50
bad=$(ended; has "$run_log" '^algorithms of matrix products for .* products 1 do not apply to .* products 2: results agree')
[ "$(ended_as version mixed)" ] || bad="$bad; they were taken"
result 'those of another version of the library do not apply' "$bad" "$run_log"
ranks late 0 0 checkpoint.resume="$work/version/checkpoints/step-00000010.h5"
result 'after a resume at a last batch both have the algorithms of rank 0, too' "$(ended_as late version)" "$run_log"
unset VITTRAIN_EMULATION_LIBRARY
run 2 cpu $steps run.backend=cpu run.dir="$work/cpu" checkpoint.resume="$work/mixed/checkpoints/step-00000008.h5"
result 'the CPU resumes from such a checkpoint' "$(ended)" "$work/cpu.log"
