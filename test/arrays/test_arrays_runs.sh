#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Training on arrays of HDF5 files: the same bits from all shapes and layouts, on 1 and 2 ranks, resumed; evaluation,
# prediction, regression and `data describe`.
. "$TEST_SOURCE/test/support/program.sh"

mkdir data
"$TEST_BUILD/test/arrays/test_arrays" --make "$work/data/storms.h5"
data="data.format=arrays data.root=$work/data/storms.h5 data.y=/label data.val=0.2"
model="model.name=vit_cifar model.dim=32 model.depth=1 model.heads=2 model.patch=1 model.image=5 model.image_width=4 \
train.precision=fp32 train.global_batch=8 train.epochs=2 run.seed=3 run.threads=1 output.log_every=1 output.tensorboard=off \
output.receipt=1 train.exact=layout train.grain=8 checkpoint.every=1 checkpoint.keep=20"

# tensors FILE: print the bytes of a safetensors file after its header, which has the names of the data sets.
tensors() { tail -c +$((9 + $(od -An -tu8 -N8 "$1"))) "$1"; }

# same A B: print a difference of losses or weights of two runs.
same() {
    cut -d, -f1-3 "$1/receipt.csv" >a
    cut -d, -f1-3 "$2/receipt.csv" >b
    cmp a b 2>&1
    tensors "$1/weights.safetensors" >a
    tensors "$2/weights.safetensors" >b
    [ -s a ] || echo "no tensors in $1"
    cmp a b 2>&1
}

run 1 describe data describe "$work/data/storms.h5"
bad=$(ended; has describe.log '  \(5 channels, order chw; if channels are last, add data.order=hwc\)' '/chw  *big-endian float32 \[30, 3, 5, 4\], chunks \[4, 2, 3, 2\], deflate' \
    '/named  *int32 \[30\]; class_names=calm, \.\.\.' '/ \[31mred  *float64' \
    '/unreadable  *cannot be read: HDF5 reports "bad version number for datatype message"' \
    "data.format=arrays data.root=.*storms.h5 'data.x=/a b' data.y=/label data.val=0.1")
result 'describe lists the data sets and options' "$bad" describe.log
eval "run 1 suggested $(sed -n 's/^  vittrain //p' describe.log) train.steps=1 run.dir=$work/suggested"
result 'these options train' "$(ended; has suggested.log 'data.x=a b: 5 channels of 3x4, order chw')" suggested.log

run 1 one $data $model data.x=/chw run.dir="$work/one"
bad=$(ended; has one.log 'data.x=chw: 3 channels of 5x4, order chw' 'data: arrays, 24 training and 6 validation samples of 5x4' \
    'statistics of 24 training samples')
result 'a model is trained' "$bad" one.log
run 3 three $data $model data.x=u0,u1,u2 run.dir="$work/three" mesh.strategy=fsdp data.workers=3
result 'three ranks have the same bits' "$(ended; same one three)" three.log
interrupted one part 3
run 3 part $data $model data.x=/chw run.dir="$work/part"
result 'a resumed run, too' "$(ended; has part.log 'resuming from .*: step 3'; same one part)" part.log

chunks="$data $model data.x=/chw data.shuffle=chunks checkpoint.every=0.3"
run 1 chunks1 $chunks run.dir="$work/chunks1"
result 'chunks are shuffled' "$(ended; has chunks1.log 'data.shuffle=chunks: 4 samples in a chunk')" chunks1.log
run 3 chunks3 $chunks run.dir="$work/chunks3" mesh.strategy=fsdp data.workers=2
result 'three ranks have the same bits' "$(ended; same chunks1 chunks3)" chunks3.log
interrupted chunks1 middle 4
run 1 middle $chunks run.dir="$work/middle"
bad=$(ended; has middle.log 'resuming from .*: step 4'; same chunks1 middle)
result 'a run that resumes in the middle of an epoch, too' "$bad" middle.log
cmp -s chunks1/receipt.csv one/receipt.csv && bad='the order is that of data.shuffle=on' || bad=
result 'the order is another one' "$bad" chunks1.log

balance="${data%% data.y=*} data.y=uneven data.val=0.2 $model data.x=/chw data.balance=on augment.noise=0.1 checkpoint.every=0.3"
run 1 balance1 $balance run.dir="$work/balance1"
bad=$(ended; has balance1.log '3 classes of 5 to 10 samples; each sample of the smallest class is drawn 1.67 times')
result 'classes are balanced' "$bad" balance1.log
run 3 balance3 $balance run.dir="$work/balance3" mesh.strategy=fsdp data.workers=2
result 'three ranks draw the same samples' "$(ended; same balance1 balance3)" balance3.log
interrupted balance1 balance 4
run 4 balance $balance run.dir="$work/balance"
bad=$(ended; has balance.log 'resuming from .*: step 4'; same balance1 balance)
result 'four ranks that resume in the middle of an epoch, too' "$bad" balance.log

run 1 eval eval "$work/one/checkpoints/last.h5"
result 'eval reads the held-out samples' "$(ended; has eval.log '^val: ')" eval.log
run 1 predict predict "$work/one/checkpoints/last.h5" predict.output="$work/predicted.csv"
bad=$(ended)
[ "$(wc -l <predicted.csv)" -eq 7 ] || bad="$bad $(wc -l <predicted.csv) lines"
result 'predict writes their classes' "$bad" predict.log

run 1 trained data.format=arrays data.root="$work/data/storms.h5" data.x=/chw data.y=number data.task=regression data.val=0.2 \
    model.name=linear train.epochs=1 run.dir="$work/numbers" train.global_batch=8
result 'a regression learns numbers' "$(ended)" trained.log
# Several labels, and planes of classes and of numbers at other times.
planes='data.y=u0@+2,u1 data.task=regression model.head=dense' windows='model.image=3 model.image_width=2 augment.crop=random'
for task in 'labels data.y=marks train.weights=1,2,3' \
    'classes data.y=map model.head=dense model.classes=3 train.ignore_label=255' \
    "planes $planes train.loss=huber train.weights=u0:2,u1:0.5 augment.flip=0.5 augment.vflip=0.5 augment.roll=xy augment.noise=0.1" \
    "rows $planes train.row_weight=latitude augment.flip=0.5 augment.roll=x" \
    "differences $planes data.x=u0,u1@-1 data.residual=on augment.flip=0.5 augment.noise=0.1" \
    "padded $planes train.row_weight=latitude model.patch=3 model.pad=wrap" \
    "zones $planes $windows train.row_weight=latitude" \
    "single data.y=uneven train.weights=storm:2,rain:5 train.label_smoothing=0.1 train.accumulate=2" \
    "cuts data.y=marks $windows" \
    "windows $planes $windows data.x=u0,u1@-1 data.residual=on augment.flip=0.5"; do
    name=${task%% *} targets="data.x=u0,u2@-1 ${task#* } data.val=0.2 data.val_from=end"
    run 1 "$name" $data $model $targets run.dir="$work/$name-1"
    bad=$(ended)
    run 3 "$name" $data $model $targets mesh.strategy=fsdp run.dir="$work/$name-3"
    result "$name: three ranks have the bits of one" "$bad$(ended; same "$name-1" "$name-3")" "$name.log"
done
run 1 listed $data $model data.x=u0,u2@-1 data.val=0.2 data.val_from=end $planes train.loss=huber train.weights=2,0.5 augment.flip=0.5 \
    augment.vflip=0.5 augment.roll=xy augment.noise=0.1 run.dir="$work/listed"
result 'a list of weights has the bits of weights with names' "$(ended; same planes-1 listed)" listed.log
run 1 scaled $data $model data.x=u0,u2@-1 data.val=0.2 data.val_from=end data.y=uneven train.weights=4,8,20 train.label_smoothing=0.1 \
    run.dir="$work/scaled"
result 'the loss of single labels is a weighted mean' "$(ended; same single-1 scaled)" scaled.log
run 1 others eval single-1 data.y=label
result 'evaluations of single labels read no weights' "$(ended; has others.log 'class 0 is "0" in the data, but "calm" in the weights')" others.log
run 1 balanced $data $model data.x=u0 data.val=none data.y=uneven train.weights=balanced augment.mixup=0.2 run.dir="$work/balanced"
bad=$(ended; has balanced.log 'train.weights=balanced: calm 0.8333, storm 0.8333, rain 1.667'; tr -d ' \n' <balanced/result.json >a
    has a '"loss_weights":\[0.8333[0-9]*,0.8333[0-9]*,1.666[0-9]*\]')
result 'weights by the samples of each class' "$bad" balanced.log
# The last task again.
interrupted windows-3 windows-part 3
run 1 windows-part $data $model $targets run.dir="$work/windows-part"
bad=$(ended; has windows-part.log 'resuming from .*: step 3' 'augment.crop: windows of 3x2 from images of 5x4; evaluations read whole images in tiles'; \
    same windows-1 windows-part)
result 'a resumed run has the same windows' "$bad" windows-part.log
fails 1 'the targets of a resumed run' 2 'data.residual was on, is off' $data $model $targets data.residual=off train.epochs=3 \
    run.dir="$work/windows-part"
fails 1 'outputs in another order than those of the weights' 2 'data.y=u1,u0@.2: .*with data.y=u0@.2,u1' eval planes-1 data.y=u1,u0@+2
fails 1 'parts of fields are not predicted' 2 'predict.split=train: training samples are windows' eval windows-1 predict.split=train
# Each pixel is in one tile, with the weight of its row in the field, so the errors of persistence are those of whole fields.
for task in rows zones; do
    sed -n 's/.*"persistence_rmse": *\([0-9][-0-9.e+]*\).*/rmse \1/p' $task-1/result.json | tail -1 >$task
done
bad=$(has rows '^rmse [0-9.]*[1-9]'; differ rows zones 1e-6)
result 'tiles have the row weights of the field' "$bad" zones.log
for task in windows cuts classes padded zones; do
    run 1 $task predict "$work/$task-1/weights.safetensors" "$work/data/storms.h5" predict.output="$work/$task.h5"
    result "$task: the weights know the size of windows, the padding and the label that is ignored" "$(ended)" $task.log
done
run 1 tuned $data $model $planes $windows data.x=u0,u2@-1 model.patch=3 model.init="$work/padded-1/weights.safetensors" \
    run.dir="$work/tuned"
result 'weights of a padded grid are resized' "$(ended; has tuned.log 'pos_embed has 2 x 2 patches there and 1 x 1 here')" tuned.log
run 1 whole data describe "$work/windows.h5"
result 'fields are predicted as a whole' "$(ended; has whole.log '/u0 *float32 \[[0-9]*, 5, 4\]')" whole.log
run 3 numbers predict "$work/numbers/checkpoints/last.h5" predict.output="$work/numbers.csv"
bad=$(ended; has numbers.csv '^record,target_number,y_number$')
# The mean of the squared errors is the loss of the evaluation, in units of the variance of the training samples.
std=$(sed -n 's/.*statistics of their targets: .* deviation //p' trained.log)
awk -F, -v std="$std" -v loss="$(sed -n 's/.*"loss": *\([-0-9.e+]*\).*/\1/p' numbers/result.json | tail -1)" '
    NR > 1 { sum += (($3 - $2) / std) ^ 2; count++ }
    END { exit !(count == 6 && (sum / count - loss) ^ 2 < (1e-4 * loss) ^ 2) }' numbers.csv ||
    bad="$bad other errors than the loss in result.json;"
result 'predict writes its numbers' "$bad" numbers.csv
run 1 numbers predict "$work/numbers/checkpoints/last.h5" predict.output="$work/numbers.json"
bad=$(ended; has numbers.json '^{"record":[0-9]*,"target":[-0-9.]*,"outputs":\[[-0-9.e]*\]}$')
result 'also as JSON' "$bad" numbers.json

run 1 slash $data $model data.x=/u0 data.y=u0@+2 data.task=regression model.head=dense data.transform=log1p:/u0 train.epochs=1 \
    run.dir="$work/slash"
result 'a slash before a name does not matter' "$(ended; has slash.log 'RMSE u0@\+2 .* of persistence\)')" slash.log
errors $data data.x=u0 3<<END
2|data.transform=sqrt:/u0|data.y=number data.task=regression data.transform=log1p:u0,sqrt:/u0
2|the model has 4.*data.order|data.x=/chw model.channels=4
END
errors $data $model data.x=u0 3<<END
2|model.head=dense|data.y=map model.classes=3
2|data.residual=on applies only with|data.y=number data.task=regression data.residual=on
2|augment.erase=0.5|data.y=map model.classes=3 model.head=dense augment.erase=0.5
2|train.loss=bce|data.y=number data.task=regression train.loss=bce
2|data.balance|data.y=marks data.balance=on
2|data.shuffle=off|data.balance=on data.shuffle=off
2|data.shuffle=chunks|data.balance=on data.shuffle=chunks
2|augment.repeat|data.balance=on augment.repeat=2
2|debug.overfit|data.balance=on debug.overfit=1
2|train.weights=1,2: .* each of the 3 outputs|data.y=marks train.weights=1,2
2|train.weights=x:2: .*; the names are marks 0, marks 1, marks 2$|data.y=marks train.weights=x:2
2|train.weights=u0:3: |data.y=u0@+2,u1 data.task=regression model.head=dense train.weights=u0:2,u0:3
2|train.weights|train.weights=1,2
2|train.loss|train.weights=1,2,3 train.loss=bce
2|train.weights=balanced|data.y=marks train.weights=balanced
2|data.balance=on|train.weights=balanced data.balance=on
2|train.weights|data.y=marks train.weights=0,0,0
END
errors 3<<END
2|data.shuffle=chunks|data.shuffle=chunks
END
mkdir splits
"$TEST_BUILD/test/arrays/test_arrays" --odd "$work/splits/train.h5" calm
"$TEST_BUILD/test/arrays/test_arrays" --odd "$work/splits/test.h5" storm
errors data.format=arrays data.root="$work/splits" data.x=u 3<<END
3|class 0 .*'storm'.*'calm'|data.y=label data.val=test
3|train.h5: sample 0: u|data.y=number data.task=regression data.val=none model.name=linear
END
# zeros FOLDER NAME:SHAPE...: write zeros to FOLDER/NAME.npy.
zeros() {
    to=$1
    mkdir -p "$to"
    shift
    for array; do
        shape=${array#*:}
        printf "\\223NUMPY\\001\\000\\166\\000%-117s\\n" "{'descr': '<f4', 'fortran_order': False, 'shape': ($shape)}" >"$to/${array%:*}.npy"
        head -c $((4 * $(echo "$shape" | tr , '*'))) /dev/zero >>"$to/${array%:*}.npy"
    done
}
zeros shapes/train x:9,3,5,4 y:9,2 wide:9,2,5,4 high:9,5,4 more:9,2
zeros shapes/test x:9,3,5,4 y:9,2 wide:9,3,5,4 high:9,6,4 more:9,1
# 100 files and .npy folders with 64 descriptors: files are closed and opened again.
mkdir crowd
for n in $(seq 100 149); do
    cp "$work/data/storms.h5" crowd/$n.h5
    zeros crowd/$n u0:30,5,4 number:30
done
crowd="data.format=arrays data.root=$work/crowd data.x=u0 data.y=number data.task=regression data.val=0.2 $model train.epochs=1 train.steps=40 \
checkpoint.every=0 data.workers=3"
run 1 many $crowd run.dir="$work/many"
bad=$(ended)
(ulimit -n 64 && run 1 few $crowd run.dir="$work/few" && exit $status) || bad="$bad status $?;"
result 'more files than descriptors have the same bits' "$bad$(same many few)" few.log

tar -xzf "$TEST_SOURCE/test/vectors/array_folders.tar.gz" v2
lost="data.format=arrays data.root=$work/v2 data.x=missing data.y=type_u1 data.task=regression model.head=dense data.val=0.2 $model \
train.epochs=1 train.global_batch=2"
run 1 lost $lost run.dir="$work/lost"
bad=$(ended; has lost.log "v2: 'missing': 8 of 24 chunks do not exist: their values are the fill value -1.5; data.missing=error makes this an error")
[ "$(grep -c 'chunks do not exist' lost.log)" = 1 ] || bad="$bad not one warning;"
result 'missing chunks are counted' "$bad" lost.log
errors $lost run.dir="$work/lost-2" 3<<END
3|v2: 'missing'|data.missing=error
END
errors data.format=arrays data.root="$work/shapes" data.task=regression 3<<END
3|3x5x4.* 2x5x4|data.val=test data.x=wide data.y=y
3|6x4.*5x4|data.val=test data.x=high data.y=y
3|1x1x1 targets.* and .*2x1x1|data.val=test data.x=x data.y=more
3|3x5x4.* 2x5x4|data.val=none train.test=on data.x=wide data.y=y model.name=linear run.dir=$work/tested
2|model.classes=3|data.val=test data.x=x data.y=y model.classes=3
END

# Without targets: a segmentation of which all pixels are ignored, and outputs that are missing in all samples (log10 of 0).
zeros none x:9,3,8,8 y:9,8,8 z:9,8,8 two:9,2,8,8 many:9,33 point:9,1,1
none="data.format=arrays data.root=$work/none data.val=0.3 data.x=x model.name=vit_cifar model.dim=32 model.depth=1 model.heads=2 \
model.patch=4 train.precision=fp32 train.epochs=2 train.global_batch=4 run.threads=1"
run 1 ignored $none data.y=y model.head=dense model.classes=2 train.ignore_label=0 run.dir="$work/ignored"
bad=$(ended; has ignored.log 'val: loss -, no targets')
[ "$(grep -c 'all targets of epoch 1 are missing' ignored.log)" = 1 ] || bad="$bad no warning, or several;"
result 'all pixels are ignored' "$bad" ignored.log
planes="$none data.y=y,z data.task=regression model.head=dense train.weights=z:0.5"
run 1 missing $planes data.transform=log10:z run.dir="$work/missing"
bad=$(ended; has missing.log 'val: loss .*, RMSE y [0-9.e-]*, z \(no targets\)'; has missing/metrics.csv '^0,2,val,{22}z,{11}$')
grep -w nan missing.log missing/train.log && bad="$bad nan;"
result 'an output without targets' "$bad" missing.log
run 1 without $planes data.transform=log10:y,log10:z run.dir="$work/without"
result 'no output has targets' "$(ended; has without.log 'val: loss -, no targets' 'all targets of epoch 1 are missing')" without.log

errors $planes run.dir="$work/missing" train.epochs=3 3<<END
2|data.y|data.y=y,z@+1 data.transform=log10:z
2|data.transform|data.transform=sqrt:z
2|data.join|data.transform=log10:z data.join=on
2|data.train.samples.* was 6, is 5|data.transform=log10:z data.val=0.4
END
zeros bare x:2,3,8,8
run 1 bare predict missing bare predict.output="$work/bare.h5"
result 'files without data.y do not need the names of weights' "$(ended)" bare.log
mkdir narrow
mv none/two.npy narrow/x.npy
zeros wide x:9,3,8,12
errors predict missing 3<<END
3|narrow|narrow predict.output=narrow.h5
3|wide|wide predict.output=wide.h5
3|narrow|narrow predict.output=narrow.h5 augment.crop=random model.image=9 model.image_width=8
END
zeros hwc image:24,27,4 mask:24,27 x:24,8,8 plane:24,65
errors $none 3<<END
2|train.weights|data.y=many data.task=regression train.weights=1,2
2|model.head=dense|data.x=point data.y=point data.task=regression model.head=dense model.patch=1
2|model.patch|data.y=y,z data.task=regression model.head=dense model.patch=3 model.pad=none
3|z.npy|data.root=$work/none/z.npy data.x=z data.y=y data.task=regression
3|data.y=mask|data.root=$work/hwc data.x=image data.y=mask
3|model.classes=65|data.root=$work/hwc data.y=plane data.task=regression
END
run 1 confirmed $none data.root="$work/hwc" data.y=plane data.task=regression model.classes=65 train.steps=1 run.dir="$work/confirmed"
result 'these are trained' "$(ended)" confirmed.log

zeros hot x:9,8,8 y:9,2
{ head -c 128 hot/y.npy; for n in 1 2 3 4 5 6 7 8 9; do printf '\000\000\200?\000\000\000\000'; done; } >ones && mv ones hot/y.npy
run 1 hot $none data.root="$work/hot" data.y=y train.steps=1 run.dir="$work/hot-run"
bad=$(ended)
[ "$(grep -c 'data.y=y: each sample has exactly one of the 2 labels; .* numpy.argmax(y, axis=1)' hot.log)" = 1 ] || bad="$bad no note, or several;"
result 'one label of each sample' "$bad" hot.log

run 1 images $small train.steps=1 run.dir="$work/images"
errors predict images/weights.safetensors 3<<END
3|data.format=arrays|$work/data/storms.h5
END
