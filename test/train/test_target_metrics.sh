#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# Metrics of regressions, segmentations and several labels: the same on 1 and 3 ranks, in all files of a run and in `eval`;
# errors of numbers against the lines of `predict`, errors of planes against the loss.
. "$TEST_SOURCE/test/support/program.sh"

mkdir data
"$TEST_BUILD/test/arrays/test_arrays" --make "$work/data/storms.h5"
data="data.format=arrays data.root=$work/data/storms.h5 data.val=0.2 data.val_from=end model.name=vit_cifar model.dim=32 \
model.depth=1 model.heads=2 model.patch=1 model.image=5 model.image_width=4 train.precision=fp32 train.global_batch=8 \
train.epochs=2 run.seed=3 run.threads=1 checkpoint.monitor=loss train.exact=layout train.grain=8"

# metrics FILE: print the metrics of an evaluation in a result.json.
metrics() { sed -n '/^ *"split"/,/^ *"sensors"/p' "$1" | grep -v -e seconds -e sensors; }

# number FILE KEY: print the newest value of the key.
number() { sed -n "s/.*\"$2\": *\([-0-9.e+]*\).*/\1/p" "$1" | tail -1; }

# near A B: print a difference of more than 1e-4.
near() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && b != "" && (a - b) ^ 2 <= (1e-4 * b) ^ 2) }' || echo "$1 is not $2;"; }

for task in 'labels data.x=u0,u2 data.y=marks train.loss=bce_sum checkpoint.monitor=map' \
    'pixels checkpoint.monitor=miou data.x=u0,u2 data.y=map model.head=dense model.classes=3 train.ignore_label=255' \
    'planes data.x=u0,u2 data.y=u0@+2,u1 data.task=regression model.head=dense train.row_weight=latitude train.weights=u1:3 train.loss=huber'; do
    name=${task%% *}
    run 1 "$name" $data ${task#* } run.dir="$work/$name-1"
    bad=$(ended)
    run 3 "$name" $data ${task#* } mesh.strategy=fsdp run.dir="$work/$name-3"
    metrics "$name-1/result.json" >a
    metrics "$name-3/result.json" >b
    [ "$(wc -l <a)" -gt 10 ] || bad="$bad no metrics;"
    result "$name: three ranks have the metrics of one" "$bad$(ended; cmp a b 2>&1)" "$name.log"
    run 1 "$name-eval" eval "$name-1/checkpoints/last.h5"
    bad=$(ended)
    for key in macro map miou outputs confusion_matrix iou rmse f1; do
        sed -n "/\"$key\":/,/]/p" "$name-1/result.json" | grep -v seconds | head -3 >a
        sed -n "/\"$key\":/,/]/p" "$name-eval.log" | grep -v seconds | head -3 >b
        bad="$bad$(cmp a b 2>&1)"
    done
    result "$name: eval prints them" "$bad" "$name-eval.log"
done
bad=$(has labels-1/train.log 'val: loss .*, subset accuracy [0-9.]* %, macro F1 0[.0-9]*, mAP 0' 'final: .*, subset accuracy')
bad="$bad$(near "$(column labels-1/metrics.csv val map | sed -n '2s/.* //p')" "$(number labels-1/result.json map)")"
bad="$bad$(has labels-1/train.log 'best map 0')"
result 'the lines of several labels have the F1' "$bad" labels-1/train.log
bad=$(has pixels-1/train.log 'val: loss .*, pixel accuracy [0-9.]* %, mean IoU 0' '^.*class  *recall .* iou$')
bad="$bad$(near "$(column pixels-1/metrics.csv val miou | sed -n '2s/.* //p')" "$(number pixels-1/result.json miou)")"
result 'those of a segmentation and metrics.csv have the mean IoU' "$bad" pixels-1/train.log
bad=$(has planes-1/metrics.csv '^0,[0-9]*,val,{22}u0@\+2,[0-9.]*,[0-9.]*,[-0-9.e]*,[-0-9.e]*,[0-9.]*,[0-9.]*,,,,,[0-9.e-]+$' \
    '^1,[0-9]*,val,{22}u1,[0-9.]*,[0-9.]*,[-0-9.e]*,[-0-9.e]*,,,,,,,[0-9.e-]+$')
bad="$bad$(has planes-1/train.log 'val: loss .*, RMSE u0@\+2 [0-9.e+]* \([0-9.]* of persistence\), u1 [0-9.e+]* on')"
for ranks in 1 3; do
    grep ',val,,,' planes-$ranks/metrics.csv >outputs-$ranks
done
cmp -s outputs-1 outputs-3 || bad="$bad other outputs on three ranks;"
result 'metrics.csv has the errors of outputs, and of persistence where the input has them' "$bad" planes-1/metrics.csv
run 1 weights eval planes-1/weights.safetensors data.root="$work/data/storms.h5" data.val=0.2 data.val_from=end \
    train.precision=fp32
bad=$(ended; near "$(number weights.log loss)" "$(number planes-1/result.json loss)")
result 'the weights of outputs are in the metadata' "$bad" weights.log
set -- $(sed -n 's/.*"output_loss": *\([0-9.e+-]*\).*/\1/p' planes-1/result.json)
bad=$(near "$(awk -v a="$1" -v b="$2" 'BEGIN { print (a + 3 * b) / 4 }')" "$(sed -n '/"outputs"/q; s/.*"loss": *\([0-9.e+-]*\).*/\1/p' planes-1/result.json | tail -1)")
[ "$1" != "$2" ] && [ $# = 2 ] || bad="$bad losses $*;"
result 'the loss is the weighted mean of the losses of outputs' "$bad" planes-1/result.json
bad=$(has runs/logbook/README.md '^\| .*planes-1 \| .* \| RMSE u0@\+2 [0-9.e+]* \([0-9.]* of persistence\), u1 [0-9.e+]* \| - \|' \
    '^\| .*pixels-1 \| .* mean IoU 0[0-9.]* \|')
result 'the log book has the main metrics' "$bad" runs/logbook/README.md

# Batches of one sample on each rank: two ranks draw the first samples.
for ranks in 1 3; do
    run $ranks "drawn-$ranks" $data data.x=u0,u2 data.y=map model.head=dense model.classes=3 train.ignore_label=255 train.exact=off train.grain=auto \
        train.global_batch=3 train.steps=1 run.dir="$work/drawn-$ranks"
done
result 'three ranks draw the samples of one' "$(ended; cmp drawn-1/planes.json drawn-3/planes.json 2>&1)" drawn-3.log

# Nothing changes: persistence is right. The loss is the mean of the squared errors in units of the variance.
run 1 same $data data.x=u1,u2 data.y=u2 data.task=regression model.head=dense run.dir="$work/same"
std=$(sed -n 's/.*statistics of their targets: .* deviation //p' same.log)
rmse=$(number same/result.json rmse)
bad=$(ended; near "$(echo "$rmse $std" | awk '{ print ($1 / $2) ^ 2 }')" "$(sed -n '/"outputs"/q; s/.*"loss": *\([0-9.e+-]*\).*/\1/p' same/result.json | tail -1)")
[ "$(number same/result.json persistence_rmse)" = 0.0 ] || bad="$bad persistence $(number same/result.json persistence_rmse);"
result 'the squared errors are the loss' "$bad" same.log

run 1 numbers $data data.x=u1,u2 data.y=number data.task=regression run.dir="$work/numbers"
run 1 predict predict numbers/checkpoints/last.h5 predict.output="$work/numbers.csv"
set -- $(awk -F, 'NR > 1 { n++; e = $3 - $2; s += e * e; b += e; a += e < 0 ? -e : e; t += $2; tt += $2 * $2 }
    END { print sqrt(s / n), a / n, b / n, 1 - s / (tt - t * t / n) }' OFMT=%.9g CONVFMT=%.9g numbers.csv)
bad=$(ended)
for key in rmse mae bias r2; do
    bad="$bad$(near "$(number numbers/result.json $key)" "$1")"
    shift
done
result 'the errors are those of the lines of predict' "$bad" numbers.csv

errors $data data.x=u0,u2 data.y=marks run.dir="$work/wrong" 3<<END
2|checkpoint.monitor=miou|checkpoint.monitor=miou
END
