# SPDX-License-Identifier: BSD-3-Clause
# Part kernels: the kernels of one step of each model by ncu, one row each in gpu-kernels.csv (README.md has its columns);
# if ncu cannot read counters, the operations' times by debug.profile. Then attention, in vittrain and in PyTorch.
# Environment: KERNEL_WORKS ("MODEL:BATCH ..."), NCU_LIMIT (seconds), TOKENS, ATTENTION_ROWS (batch x tokens), MODEL_SETTINGS.

kernels_open() { ncu=$(PATH=$PATH:/usr/local/cuda/bin command -v ncu); }

part_kernels() {
    local work tokens
    kernels_open
    for work in ${KERNEL_WORKS:-vit_base_patch32_224:384 vit_base_patch16_224:256 vit_cifar:64 resnet50:256 resnet18:256}; do
        stage "kernels of $work" 75 kernels_measure "${work%:*}" "${work#*:}"
    done
    for tokens in ${TOKENS:-50 65 197 577}; do
        stage "attention over $tokens tokens" 20 attention_ours "$tokens"
        stage "attention over $tokens tokens in PyTorch" 30 attention_theirs "$tokens"
    done
}

# Appends the launches of a step that gpu-kernels.csv does not have yet, as many as ncu reads within NCU_LIMIT. Fails if some are
# left; the next call continues.
kernels_measure() { # MODEL BATCH
    local model=$1 batch=$2 table=$out/gpu-kernels.csv known status=0
    [[ -s $table ]] || echo "model,kernel,launch,time_ns,dram_bytes,tensor_pipe_percent,grid,block" >"$table"
    known=$(grep -c "^$model," "$table")
    # Libraries choose their algorithms in this run, outside of the profile.
    gpu_steps kernels "$model" "$batch" 1 train.precision=bf16 cuda.graph=off ||
        { fail "kernels of $model"; return 1; }
    kernels_ncu "$model" "$batch" || status=$?
    if [[ ! -s $scratch/table ]]; then
        ((known == 0)) || { miss "kernels of $model after launch $known: $why"; return 1; }
        echo "ncu gives no counters: $why; times of operations instead"
        operations_measure "$model" "$batch" || return
        status=0
    fi
    cat "$scratch/table" >>"$table"
    echo "$model: $(wc -l <"$scratch/table") rows after $known"
    ((status == 0)) || miss "kernels of $model after launch $((known + $(wc -l <"$scratch/table"))): ${NCU_LIMIT:-150} s are over"
}

metrics=gpu__time_duration.sum,dram__bytes_read.sum,dram__bytes_write.sum,sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active
# The third step from launch known + 1 on, by ncu: $scratch/table. Fails if that is not the whole step; without any row, `why` has
# the reason.
kernels_ncu() { # MODEL BATCH
    local status=0 launcher="$ncu --clock-control none --profile-from-start off --launch-skip $known --target-processes all
        --metrics $metrics --csv --page raw --print-units base --print-kernel-base demangled --log-file $scratch/ncu.csv $launcher"
    rm -f "$scratch/ncu.csv" "$scratch/table"
    why="not installed"
    [[ -n $ncu ]] || return 1
    RUN_LIMIT=${NCU_LIMIT:-150} gpu_steps kernels "$1" "$2" 1 train.precision=bf16 cuda.graph=off debug.capture=3 >"$scratch/log" || status=$?
    [[ ! -s $scratch/ncu.csv ]] || awk -v model="$1" -v launch="$known" -f "$here/gpu/ncu_table.awk" "$scratch/ncu.csv" >"$scratch/table"
    why=$(cat "$scratch/ncu.csv" "$scratch/kernels.log" "$scratch/log" 2>/dev/null | grep -m 1 -iE '==error==|==warning==|error')
    if ((known > 0)) && cmp -s <(launches_named "$scratch/table") <(grep "^$1," "$out/gpu-kernels.csv" | launches_named); then
        : >"$scratch/table"
        why="ncu counts --launch-skip from the start of the program"
    fi
    [[ -s $scratch/table ]] && return $status
}
launches_named() { awk -F '"' '{ print $2 }' "$@" | head -n 5; } # of the first five rows: names of the kernels

# Times of operations over PROFILE_STEPS (20) steps except the first two, with the host waiting for each operation. Writes and prints
# $scratch/table: one row per operation, with its time per step.
operations_measure() { # MODEL BATCH
    local steps=${PROFILE_STEPS:-20}
    gpu_steps kernels "$1" "$2" $((steps - 2)) train.precision=bf16 cuda.graph=off debug.profile=on ||
        { fail "operations of $1"; return 1; }
    awk -v model="$1" -v steps=$((steps - 2)) '
        /^time by operation/ { inside = 1; next }
        /^time by unit/ { inside = 0 }
        inside && $3 == "s" { printf "%s,operation %s,%g,%.0f,,,,\n", model, $1, $6 / steps, $6 * $8 * 1000 / steps }' \
        "$scratch/kernels.log" | tee "$scratch/table"
    [[ -s $scratch/table ]]
}

attention_batch() { # TOKENS: about as many rows as ViT-B/16 has at batch 256
    echo $(((${ATTENTION_ROWS:-50432} + $1 - 1) / $1))
}
attention_ours() { # TOKENS
    device_measure attention "attention:$(attention_batch "$1"):$1"
}
attention_theirs() { # TOKENS
    timeout "$(within 90)" "$python" "$here/gpu/pytorch_kernels.py" "attention:$(attention_batch "$1"):$1" >"$scratch/rows" 2>"$scratch/log" ||
        { miss "attention of PyTorch over $1 tokens: $(explain "$scratch/log" 1)"; return 1; }
    tee -a "$csv" <"$scratch/rows"
}
