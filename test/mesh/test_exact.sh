#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# train.exact=layout: loss, norm of the gradient, weights and optimizer state of every step, and evaluations, have the same
# bits on any number of ranks, with every strategy, with any number of threads and micro-batches, and after a resume on
# another layout. `make check` tests some layouts; TEST_LONG=1 tests all ranks, strategies, transports and types.
. "$TEST_SOURCE/test/support/program.sh"

# 600 samples: 7 batches of 76 and one of 68 per epoch, in 10 and 9 grains of which the last has 4 samples.
exact="$small train.exact=layout train.global_batch=76 train.grain=8 train.steps=10 train.clip_norm=1 optim.ema=0.9 \
augment.mixup=0.4 augment.cutmix=1 train.label_smoothing=0.1 output.tensorboard=off output.receipt=1"
vit="$exact model.dropout=0.1 model.drop_path=0.1"
convnet="$(echo "$exact" | sed 's/model\.[a-z]*=[^ ]* //g') model.name=cnn_c model.image=16 train.global_batch=28 train.steps=5"

# figures FILE: print number of samples, loss, accuracy and confusion matrix from the result of a run or an evaluation.
figures() { sed -n -e '/"samples"/,/"top5"/p' -e '/"confusion_matrix"/,/^ ]/p' "$1" | tr -d ,; }

# evaluations NAME: print step, loss and accuracy of all evaluations of a run, and the figures of the last one.
evaluations() {
    awk -F, '$3 == "val" { print $2, $4, $5, $6 }' "$work/$1/metrics.csv"
    figures "$work/$1/result.json"
}

# same NAME REFERENCE: print errors of run NAME, which ended last, and differences from REFERENCE: receipts, evaluations.
same() {
    [ $status -eq 0 ] || echo "exit status $status"
    cmp "$work/$2/receipt.csv" "$work/$1/receipt.csv" 2>&1
    cmp "$work/$2/misclassified.json" "$work/$1/misclassified.json" 2>&1
    evaluations "$2" >"$work/expected"
    evaluations "$1" >"$work/found"
    [ -s "$work/expected" ] || echo 'no evaluations'
    cmp "$work/expected" "$work/found" 2>&1
}

# layouts MODEL REFERENCE OPTIONS 3<ROWS: train on each layout and compare the receipts. A row: RANKS OPTION...
layouts() {
    while read -r ranks words <&3; do
        name=$(echo "$2-$ranks-$words" | tr ' =' '--')
        run "$ranks" "$name" $3 run.dir="$work/$name" $words
        result "$1 on $ranks ranks, $words" "$(same "$name" "$2")" "$work/$name.log"
        rm -rf "${work:?}/$name"
    done
}

# all MODEL REFERENCE OPTIONS: the same for all layouts.
all() {
    for ranks in 2 3 4 5 6 8; do
        for transport in shared hierarchical ring; do
            for strategy in ddp zero1 zero2 fsdp; do
                echo "$ranks mesh.strategy=$strategy mesh.transport=$transport"
            done
            [ $((ranks % 2)) = 1 ] || echo "$ranks mesh.strategy=hsdp mesh.shard=$((ranks / 2)) mesh.transport=$transport"
        done
    done >"$work/rows"
    layouts "$@" 3<"$work/rows"
}

run 1 vit $vit run.dir="$work/vit"
result 'a ViT has receipts of 10 steps' "$(ended; wc -l <vit/receipt.csv | grep -vx 11)" "$work/vit.log"
layouts 'a ViT' vit "$vit" 3<<END
3 mesh.strategy=ddp run.threads=2
4 mesh.strategy=zero2 mesh.shard=2 train.accumulate=2
END
run 1 convnet $convnet run.dir="$work/convnet"
layouts 'a convolutional network with batch norm' convnet "$convnet" 3<<END
3 mesh.strategy=fsdp run.threads=2
END

# Evaluations of one batch of 76 in grains of 8, of which the last is short. Their results set the learning rate and end the run.
course="$vit train.precision=bf16 debug.batches=1 train.steps=0 train.epochs=30 train.early_stop=4 schedule.name=plateau \
schedule.patience=0 schedule.warmup=0 optim.lr=0.3 checkpoint.monitor=loss eval.flip=on"
run 1 course $course run.dir="$work/course"
result 'evaluations end a run' "$(has course.log 'no gain for train.early_stop'; has course/result.json '"samples": 76,')" course.log
layouts 'plateau and early stop in bf16' course "$course" 3<<END
3 mesh.strategy=fsdp run.threads=2 train.checkpoint_activations=block
END
run 3 eval eval "$work/course/checkpoints/last.h5" predict.split=val train.batch=12
figures course/result.json >expected
result 'vittrain eval computes the same on 3 ranks' "$(figures eval.log | cmp expected - 2>&1)" eval.log

if [ -e "$TEST_BUILD/test/emulated-cuda.so" ]; then
    export VITTRAIN_CUDA_MODULE="$TEST_BUILD/test/emulated-cuda.so"
    # 4 full batches in 4 grains and one in 2: full batches are recorded as CUDA graphs on 1 and 4 ranks.
    gpu="$vit run.backend=cuda model.depth=1 model.patch=16 train.global_batch=32 debug.fraction=0.072 train.steps=6"
    run 1 gpu $gpu cuda.graph=off run.dir="$work/gpu"
    layouts 'a ViT on emulated GPUs' gpu "$gpu" 3<<END
1 cuda.graph=on
4 mesh.strategy=hsdp mesh.shard=2
END
    unset VITTRAIN_CUDA_MODULE
fi

vittrain=$TEST_BUILD/test/commands/start_count # with simulated nodes
mkdir counts
export START_COUNT="$work/counts" START_NODE_RANKS=2
layouts 'a ViT on nodes of 2 ranks:' vit "$vit" 3<<END
4 mesh.strategy=hsdp
4 mesh.transport=hierarchical
END
unset START_NODE_RANKS
export START_NODES=2
fails 4 'refused: ranks that are not numbered node by node' 2 'node by node' $vit run.dir="$work/refused"
unset START_NODES START_COUNT
vittrain=$TEST_BUILD/vittrain

run 3 whole $vit mesh.strategy=fsdp train.accumulate=2 checkpoint.every=0.5 run.dir="$work/whole"
interrupted whole part 4
cp -r part other
run 4 part $vit mesh.strategy=zero1 run.threads=2 train.accumulate=2 run.dir="$work/part"
result 'an interrupted run resumes on another layout with the same bits' "$(same part vit)" part.log
run 1 verify verify "$work/part" verify.from=0 train.check_every=5
result 'vittrain verify confirms it on a third layout, with checks of grains' "$(ended; has verify.log '^identical: .* 10 receipts$')" verify.log
errors $vit 3<<END
4|step-.*.h5 .*train.grain=8|train.grain=16 run.dir=$work/other
2|train.global_batch|train.global_batch=0 train.batch=8 run.dir=$work/refused
2|train.grain=16 or more|train.global_batch=4000 run.dir=$work/refused
2|mesh.reduce=compute|mesh.reduce=compute run.dir=$work/refused
END
errors $convnet run.dir="$work/refused" 3<<END
2|model.sync_bn|model.sync_bn=off
2|leave out train.accumulate|train.accumulate=2
END

if [ -n "$TEST_LONG" ]; then
    for type in fp32 bf16 fp16; do
        run 1 "vit-$type" $vit train.precision=$type run.dir="$work/vit-$type"
        all "a ViT in $type" "vit-$type" "$vit train.precision=$type"
        run 1 "convnet-$type" $convnet train.precision=$type run.dir="$work/convnet-$type"
        all "a convolutional network in $type" "convnet-$type" "$convnet train.precision=$type"
    done
fi
