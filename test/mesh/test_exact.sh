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
bad=$(ended)
[ "$(wc -l <vit/receipt.csv)" = 11 ] || bad="$bad; not 10 receipts"
result 'a ViT has receipts of 10 steps' "$bad" "$work/vit.log"
layouts 'a ViT' vit "$vit" 3<<END
2 mesh.strategy=ddp run.threads=2
2 mesh.strategy=fsdp train.accumulate=3
4 mesh.strategy=hsdp mesh.shard=2
4 mesh.strategy=zero2 mesh.shard=2 train.accumulate=2
END
run 1 bf16 $vit train.precision=bf16 run.dir="$work/bf16"
layouts 'a ViT in bf16' bf16 "$vit train.precision=bf16" 3<<END
3 mesh.strategy=fsdp run.threads=2 train.checkpoint_activations=block
END
run 1 convnet $convnet run.dir="$work/convnet"
layouts 'a convolutional network with batch norm' convnet "$convnet" 3<<END
3 mesh.strategy=fsdp run.threads=2
4 mesh.strategy=hsdp mesh.shard=2
END

# Evaluations of one batch of 76 in grains of 8, of which the last is short. Their results set the learning rate and end the run.
course="$vit debug.batches=1 train.steps=0 train.epochs=30 train.early_stop=4 schedule.name=plateau schedule.patience=0 \
schedule.warmup=0 optim.lr=0.3 checkpoint.monitor=loss eval.flip=on"
run 1 course $course run.dir="$work/course"
bad=$(grep -q 'stopped at step .*: no gain for train.early_stop evaluations' "$work/course.log" || echo 'no early stop')
grep -q '"samples": 76,' course/result.json || bad="$bad; other samples"
result 'evaluations end a run' "$bad" "$work/course.log"
layouts 'plateau and early stop' course "$course" 3<<END
3 mesh.strategy=zero1 run.threads=2
END
run 3 eval eval "$work/course/checkpoints/last.h5" predict.split=val train.batch=12 eval.output="$work/eval.json"
figures course/result.json >expected
figures eval.json | cmp expected - >differ.log 2>&1 && bad= || bad='other figures'
result 'vittrain eval computes the same on 3 ranks' "$bad" differ.log

if [ -e "$TEST_BUILD/test/emulated-cuda.so" ]; then
    export VITTRAIN_CUDA_MODULE="$TEST_BUILD/test/emulated-cuda.so"
    # 4 full batches in 4 grains and one in 2: full batches are recorded as CUDA graphs on 1, 2 and 4 ranks.
    gpu="$vit run.backend=cuda model.depth=1 model.patch=16 train.global_batch=32 debug.fraction=0.072 train.steps=7"
    run 1 gpu $gpu cuda.graph=off run.dir="$work/gpu"
    layouts 'a ViT on emulated GPUs' gpu "$gpu" 3<<END
1 cuda.graph=on
2 mesh.strategy=fsdp train.accumulate=2
3 mesh.strategy=ddp
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
START_NODES=2
export START_NODES
fails 4 'refused: ranks that are not numbered node by node' 2 'needs ranks that are numbered node by node; start them with' \
    $vit run.dir="$work/refused"
unset START_NODES START_COUNT
vittrain=$TEST_BUILD/vittrain

run 1 off $vit train.exact=off train.grain=auto run.dir="$work/off"
cmp -s vit/receipt.csv off/receipt.csv && bad='the same receipts' || bad=
result 'without train.exact the receipts differ' "$bad" "$work/off.log"
run 1 grain $vit train.grain=16 run.dir="$work/grain"
cmp -s vit/receipt.csv grain/receipt.csv && bad='the same receipts' || bad=
result 'with another train.grain the receipts differ' "$bad" "$work/grain.log"

bad=$(interrupted $vit mesh.strategy=fsdp checkpoint.every=0.2)
cp -r interrupted other
run 3 resumed $vit mesh.strategy=zero1 run.threads=2 train.accumulate=2 run.dir="$work/interrupted"
result 'an interrupted run resumes on another layout with the same bits' "$bad$(same interrupted vit)" "$work/resumed.log"
run 2 verify verify "$work/interrupted" verify.from=0 train.check_every=5
bad=$(grep -qx 'identical: steps 1 to 10, 10 receipts' "$work/verify.log" || echo 'not identical')
result 'vittrain verify confirms it on a third layout, with checks of grains' "$bad" "$work/verify.log"
fails 1 'a resume with another grain is refused' 4 \
    'error: .*/step-.*.h5 was made with grains of 8 samples, this run has 16, which changes the result; set train.grain=8' \
    $vit train.grain=16 run.dir="$work/other"

while IFS='|' read -r words pattern <&3; do
    fails 1 "refused: $words" 2 "$pattern" $vit $words run.dir="$work/refused"
done 3<<END
train.global_batch=0 train.batch=8|needs train.global_batch; with train.batch
train.grain=12|train.grain=12: must be auto, or a multiple of 8 from 8 to 65536
train.global_batch=4000|has more than 256 grains; set train.grain=16 or more
mesh.reduce=compute|adds gradients in fp32; leave out mesh.reduce=compute
END
fails 1 'refused: batch norm of one rank' 2 'leave out model.sync_bn' $convnet model.sync_bn=off run.dir="$work/refused"
fails 1 'refused: batch norm of a micro-batch' 2 'leave out train.accumulate=2' $convnet train.accumulate=2 run.dir="$work/refused"

run 1 plan plan $vit train.precision=bf16 plan.cluster="$TEST_SOURCE/input/clusters/h100_ib400.ini"
bad=$(grep -qE '^ *32 .*train.grain=8: a global batch of 2432 has more than 256 grains; set train.grain=16' "$work/plan.log" || echo 'no line')
result 'a plan reports numbers of ranks with too many grains' "$bad" "$work/plan.log"

if [ -n "$TEST_LONG" ]; then
    for type in fp32 bf16 fp16; do
        run 1 "vit-$type" $vit train.precision=$type run.dir="$work/vit-$type"
        all "a ViT in $type" "vit-$type" "$vit train.precision=$type"
        run 1 "convnet-$type" $convnet train.precision=$type run.dir="$work/convnet-$type"
        all "a convolutional network in $type" "convnet-$type" "$convnet train.precision=$type"
    done
fi
