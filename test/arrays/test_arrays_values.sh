#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Values that float32 does not hold, missing targets and infinite values: losses, metrics, predictions, checkpoints.
. "$TEST_SOURCE/test/support/program.sh"

"$TEST_BUILD/test/arrays/test_arrays" --values "$work/all.h5" 24
"$TEST_BUILD/test/arrays/test_arrays" --values "$work/some.h5" 16
model="data.format=arrays data.root=$work/all.h5 data.task=regression model.name=vit_cifar model.dim=32 model.depth=1 model.heads=2 \
model.patch=1 model.image=5 model.image_width=4 train.precision=fp32 train.global_batch=8 train.epochs=2 run.threads=1 \
output.tensorboard=off output.receipt=1 train.exact=layout train.grain=8 checkpoint.every=1"
split="data.val=0.25 data.val_from=end"

# same A B: print a difference of the losses, gradients and weights of two runs.
same() {
    cut -d, -f1-4 "$1/receipt.csv" >a
    cut -d, -f1-4 "$2/receipt.csv" >b
    cmp a b 2>&1
}

# figures LOG: print the last losses and metrics of a run without the names of the outputs.
figures() { sed -n 's/^final: //p' "$1" | sed 's/near\|far//g; s/ on .*//'; }

# Doubles near 1e9 have the results of the same numbers near 0.
for kind in number plane; do
    for name in near far; do
        case $kind in
        number) targets="data.y=${name}_number" ;;
        plane) targets="data.y=$name@+1 model.head=dense" ;;
        esac
        run 1 $kind-$name $model $split data.x=$name $targets run.dir="$work/$kind-$name"
        result "$kind: $name values are trained" "$(ended)" "$kind-$name.log"
        run 1 $kind-$name-eval eval "$kind-$name" predict.split=val
    done
    figures $kind-near.log >near
    figures $kind-far.log >far
    bad=$(has near 'loss .*RMSE'; diff near far; has $kind-far.log 'mean 1e\+09; standard deviation 0\.5')
    for name in near far; do sed -n 's/^val: loss \([0-9.]*\).*/val \1/p' $kind-$name-eval.log >$name; done
    bad="$bad$(has near '^val'; differ near far 1e-5)"
    result "$kind: doubles near 1e9 have the results of the same numbers near 0" "$bad" $kind-far.log
    run 3 $kind-three $model $split data.x=far $targets run.dir="$work/$kind-three" mesh.strategy=fsdp
    result "$kind: three ranks have the bits of one" "$(ended; same $kind-far $kind-three)" $kind-three.log
    interrupted $kind-far $kind-part 3
    run 1 $kind-part $model $split data.x=far $targets run.dir="$work/$kind-part"
    result "$kind: a resumed run, too" "$(ended; has $kind-part.log 'resuming from'; same $kind-far $kind-part)" $kind-part.log
done
for name in near far; do run 1 predict predict number-$name all.h5 predict.output="$work/$name.csv"; done
bad=$(ended; awk -F, 'NR == FNR { target[$1] = $2; y[$1] = $3; next }
    FNR > 1 && (($2 - 1e9 - target[$1]) ^ 2 > 1e-10 || ($3 - 1e9 - y[$1]) ^ 2 > 1e-6) { print "sample " $1 ": " $0 }' near.csv far.csv)
result 'predictions have all digits' "$bad" far.csv
run 1 predict predict plane-far all.h5 predict.output="$work/far.h5"
run 1 describe data describe far.h5
result 'also in HDF5 files' "$(ended; has describe.log '/far *float64 \[24, 5, 4\]')" describe.log
bad=$(has plane-near.log '^final: .*of persistence\)')
run 1 zero $model $split data.x=near data.y=near model.head=dense run.dir="$work/zero"
result 'a ratio over zero is not printed' "$bad$(ended; has zero.log '^final: .* \(- of persistence\)')" zero.log

# The loss and the gradient are means over the samples that have targets.
given="augment.mean=0 augment.std=1 data.shuffle=off data.val=none data.x=near train.epochs=1 train.global_batch"
for targets in gaps_number 'gaps model.head=dense'; do
    name=${targets%% *}
    for ranks in 1 3; do
        run $ranks $name-$ranks $model $given=24 data.y=$targets run.dir="$work/$name-$ranks"
        result "$name: the same bits on $ranks ranks" "$(ended; same $name-1 $name-$ranks)" $name-$ranks.log
    done
    bad=
    run 1 $name-some $model $given=16 data.root="$work/some.h5" data.y=$targets run.dir="$work/$name-some"
    for metric in loss grad_norm; do
        column $name-1/metrics.csv train $metric >all
        column $name-some/metrics.csv train $metric >some
        bad="$bad$(ended; differ all some 1e-5)"
    done
    result "$name: empty samples change neither loss nor gradient" "$bad" $name-1.log
    run 3 $name-eval eval $name-some data.root="$work/all.h5" predict.split=train
    run 1 $name-eval-some eval $name-some predict.split=train
    bad=$(ended; sed -n 's/^train: loss \([0-9.]*\).*/\1/p' $name-eval.log >all; sed -n 's/^train: loss \([0-9.]*\).*/\1/p' $name-eval-some.log >some; \
        has some '^[0-9]'; diff all some; has $name-eval.log '^train: .* on 24 samples')
    result "$name: they do not change the loss of an evaluation" "$bad" $name-eval.log
done

run 1 none $model $split data.x=near data.y=gaps model.head=dense run.dir="$work/none"
bad=$(ended; has none.log '^val: loss -, no targets on 6 samples' '^epoch 2 done .* val loss -  '; column none/metrics.csv val loss | grep ' .'; \
    [ ! -e none/checkpoints/best.h5 ] || echo 'a best checkpoint'; has none/result.json '"value": null')
result 'without targets there is no metric and no best checkpoint' "$bad" none.log
run 1 none-eval eval none predict.split=val
result 'eval, too' "$(ended; has none-eval.log '^val: loss -, no targets on 6 samples')" none-eval.log

errors $model $split data.x=bad data.y=near model.head=dense run.dir="$work/bad" 3<<END
3|all.h5: sample 23: bad|
END
bad=$([ -e bad/checkpoints/step-00000003.h5 ] || echo 'no checkpoint')
result 'the checkpoint before it is there' "$bad"
