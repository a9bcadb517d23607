#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# Training from tar shards, written with tar in several formats: the losses are those of the same files in folders, also
# after an interruption in the middle of an epoch. The shards are planned, predicted and compared by doctor; mistakes give one error
# line.
. "$TEST_SOURCE/test/support/program.sh"

tree=$work/tree shards=$work/shards
mkdir "$shards"
for split in train val; do
    for class in bird cat dog; do mkdir -p "$tree/$split/$class"; done
done
"$TEST_BUILD/test/data/test_image_folder" --make "$tree" 60 || exit 1

# shard NAME FORMAT FILE...: a shard of images below the current folder; labels are .cls and .json in turn.
shard() {
    to=$shards/$1 format=$2 label_of_shard=cls
    shift 2
    : >"$work/list"
    for image; do
        key=${image%.jpg}
        case $image in bird/*) label=0 ;; cat/*) label=1 ;; *) label=2 ;; esac
        if [ $label_of_shard = cls ]; then
            echo $label >"$key.cls"
            printf '%s\n' "$image" "$key.cls" >>"$work/list"
            label_of_shard=json
        else
            echo "{\"label\": $label, \"key\": \"$key\"}" >"$key.json"
            printf '%s\n' "$key.json" "$image" >>"$work/list"
            label_of_shard=cls
        fi
    done
    tar --format="$format" -cf "$to" -T "$work/list"
    sed '/\.jpg$/d' "$work/list" | xargs rm
}
cd "$tree/train" && set -- */*.jpg && cd "$tree/train" || exit 1
shard set-train-000000.tar ustar $(printf '%s\n' "$@" | sed -n '1,25p')
shard set-train-000001.tar gnu $(printf '%s\n' "$@" | sed -n '26,50p')
shard set-train-000002.tar posix $(printf '%s\n' "$@" | sed -n '51,60p')
cd "$tree/val" && shard set-val-000000.tar pax */*.jpg
cd "$work" || exit 1
printf 'bird\ncat\ndog\n' >"$shards/classes.txt"

model="model.name=vit_cifar model.dim=32 model.depth=2 model.heads=2 model.patch=8 model.image=24 train.precision=fp32 \
train.global_batch=20 train.epochs=3 output.log_every=1 output.tensorboard=off output.weights=off run.seed=7 \
run.threads=1 optim.lr=3e-3 augment.random_resized_crop=on eval.resize=28 eval.resize_to=shorter eval.crop=center"
wds="data.format=webdataset data.root=$shards"

train() {
    ranks=$1 kept=$2
    shift 2
    run "$ranks" "$kept" $model run.dir="$work/$kept" "$@"
    losses_of "$kept"
}

train 1 folder data.format=imagefolder data.root="$tree"
train 1 shards $wds
compare 'training from shards has the losses of the folders' shards folder 0
result 'shards have the samples and class names of the folders' \
    "$(has "$work/shards.log" 'webdataset, 60 training and 20 validation samples'; has "$work/shards/train.log" ' dog ')" "$work/shards.log"
train 4 four $wds data.workers=2
compare 'four ranks have the same losses' four folder 1e-5

fails 1 'a run does not resume with other shards' 2 'step-00000009.h5.*samples\[2\] was 20, is 10' \
    $model run.dir="$work/shards" train.epochs=4 data.format=webdataset "data.root=$shards/set-{train-{000000..000001},val-000000}.tar"

# Three ranks, interrupted in the middle of an epoch of 3 steps.
train 3 whole $wds train.epochs=4 checkpoint.every=0.33 checkpoint.keep=20
interrupted whole part 5
train 3 part $wds train.epochs=4
compare 'a resumed run has the losses of an undisturbed run' part whole 0
result 'it resumes in the middle of an epoch' "$(has part.log 'resuming from .*: step 5')" part.log

run 1 predict predict "$work/shards/checkpoints/last.h5" predict.output="$work/predictions.csv"
[ "$(wc -l <"$work/predictions.csv")" = 21 ] && bad= || bad="not 20 lines and a header"
result 'predict has a line for each sample' "$bad" "$work/predict.log"
run 1 plan plan $model $wds
result 'a plan of a run from shards' "$(ended)" "$run_log"
run 1 doctor doctor $wds
grep -q 'shards: 4 files, 0\..* MB' "$work/doctor.log" && bad= || bad='no shards'
result 'doctor compares the shards' "$bad" "$work/doctor.log"

head -c 30000 "$shards/set-train-000001.tar" >"$work/cut" && mv "$work/cut" "$shards/set-train-000001.tar"
fails 3 'a truncated shard is named' 3 'set-train-000001.tar: [a-z/0-9.]* at byte [0-9]+' \
    $model $wds run.dir="$work/cut_run"
