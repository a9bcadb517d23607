#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# Image files in folders and in tar shards: the same losses on any number of ranks and threads, evaluation and prediction,
# unusable files, EXIF orientation, a run that is resumed within an epoch, and ranks that find different data.
. "$TEST_SOURCE/test/support/program.sh"

tree=$work/tree
mkdir "$tree"
"$TEST_BUILD/test/data/test_image_folder" --make "$tree" 90 || exit 1

folder="model.name=vit_cifar model.dim=32 model.depth=2 model.heads=2 model.patch=8 model.image=24 \
data.format=imagefolder data.root=$tree train.precision=fp32 train.global_batch=20 train.epochs=2 \
output.log_every=1 output.tensorboard=off run.seed=7 run.threads=1 optim.lr=3e-3"
random="augment.random_resized_crop=on eval.resize=28 eval.resize_to=shorter eval.crop=center"

train() {
    run "$1" "$2" $folder run.dir="$work/$2" $3
    losses_of "$2"
}

train 1 one "$random"
compare "one rank trains from a folder" one one 0
[ "$(wc -l <"$work/one.loss")" = 10 ] && bad= || bad="not 10 rows"
result "all 90 images in each epoch" "$bad" "$work/one.log"
[ "$(grep -c 'warning: data: 10 of 90 files have a band of alpha, which is dropped; data.format=arrays' "$work/one.log")" = 1 ] &&
    bad= || bad="not one warning"
result "a band that is dropped is one warning" "$bad" "$work/one.log"
train 1 threads "$random data.workers=3"
compare "three threads load the same, to the last digit" threads one 0
train 3 three "$random data.workers=2"
compare "losses on three ranks" three one 1e-5
train 1 square ""
differ "$work/one.loss" "$work/square.loss" 1e-5 | grep -q line && bad= || bad="the same losses"
result "another crop, other losses" "$bad" "$work/square.log"

# The classes directly in the folder: a tenth of each one of 30 images is held out.
mkdir "$work/flat" && cp -r "$tree/train/." "$work/flat"
flat="data.root=$work/flat data.val=0.1 train.test=on"
train 3 divided "$flat"
grep -q "data: imagefolder, 81 training and 9 validation samples" "$work/divided.log" &&
    grep -q "^test: .* on 9 samples" "$work/divided.log" && bad= || bad="not 81 and 9 images"
result "a folder of classes is divided for training and validation" "$bad" "$work/divided.log"
# Standard output has JSON alone. The deck names the folder relative to $work.
run 1 relative $folder data.root=flat data.val=0.1 run.dir="$work/relative" train.epochs=1
mkdir "$work/elsewhere"
(cd "$work/elsewhere" && "$vittrain" eval "$work/relative" >out.json 2>err)
result "eval finds a relative data.root and names the held-out images val" \
    "$(has "$work/elsewhere/err" '^val: loss .* on 9 samples' "^warning: data.val=0.1: the best checkpoint was chosen on these images" \
        "^data.root=$work/flat, which"; has "$work/elsewhere/out.json" '^ "split": "val"')" "$work/elsewhere/err"
result "standard output is JSON alone" \
    "$([ "$(head -c 1 "$work/elsewhere/out.json")$(tail -n 1 "$work/elsewhere/out.json")" = '{}' ] || echo no)" "$work/elsewhere/out.json"
errors 3<<END
3|$work/flat: .*data.format=imagefolder|data.root=$work/flat
END

run 1 eval eval "$work/one/checkpoints/last.h5"
eval_loss=$(sed -n 's/.*loss \([0-9.]*\).*/\1/p' "$work/eval.log" | tail -1)
wanted=$(tail -1 "$work/one.val" | cut -d' ' -f2)
bad=$(awk -v a="${eval_loss:-x}" -v b="$wanted" 'BEGIN { d = a - b; if (d < 0) d = -d
    if (!(d < 1e-3)) print "loss " a ", not " b }')
result "eval of the checkpoint has the run's loss" "$bad" "$work/eval.log"

: >"$tree/train/cat/900.jpg"
fails 3 "a broken file ends the run" 3 "1 of 91 files .*train/cat/900.jpg" $folder run.dir="$work/broken"
train 3 skipped "$random data.skip_broken=on"
compare "left out, the others give the same losses" skipped one 1e-5
result "what is left out is said" "$(has "$work/skipped.log" "1 of 91 files are skipped")" "$work/skipped.log"
rm "$tree/train/cat/900.jpg"

# Its header is valid, so the damage is found during training.
mv "$tree/train/cat/001.jpg" "$work/whole.jpg"
head -c 700 "$tree/train/dog/014.jpg" >"$tree/train/cat/001.jpg"
fails 3 "a cut file is named where it is found" 3 "train/cat/001.jpg" $folder run.dir="$work/cut"
train 1 cut_skipped "$random data.skip_broken=on"
result "it is found before training with data.skip_broken=on" "$(ended; has "$work/cut_skipped.log" \
    "1 of 90 files are skipped, the first: .*/001.jpg: is truncated inside")" "$work/cut_skipped.log"
mv "$work/whole.jpg" "$tree/train/cat/001.jpg"

# The data of a run must be those of its checkpoint: PATTERN|COMMAND that changes a copy of the tree.
cp -r "$work/one" "$work/before"
while IFS='|' read -r line change <&3; do
    cp -r "$tree" "$work/copy"
    (cd "$work/copy" && eval "$change")
    fails 1 "changed data: $change" 2 "step-00000010.h5.*$line.*run.dir" $folder $random data.root="$work/copy" run.dir="$work/one" \
        train.epochs=3
    rm -r "$work/copy"
done 3<<'END'
data.classes\[1\] was "cat", is "dog"|mv train/cat train/zebra; mv val/cat val/zebra
data.train.list was|for split in train val; do mv $split/cat x; mv $split/dog $split/cat; mv x $split/dog; done
"dog"|rm -r train/dog val/dog
data.train.samples\[1\] was 30, is|rm train/cat/00*
data.train.content was|cp train/dog/014.jpg train/cat/$(ls train/cat | head -1)
END
result "nothing in the run's folder has changed but its log" "$(diff -r -x train.log -x .lock "$work/before" "$work/one")"
mv "$tree/train/cat" "$tree/train/zebra"
mv "$tree/val/cat" "$tree/val/zebra"
run 1 purpose $folder $random run.dir="$work/purpose" train.epochs=3 checkpoint.resume="$work/one/checkpoints/last.h5"
bad=$(ended)
grep -q "^warning: changed since the checkpoint: data.classes.1. was .cat., is .dog." "$run_log" || bad="$bad; no warning"
result "checkpoint.resume=FILE continues with other data" "$bad" "$run_log"
mv "$tree/train/zebra" "$tree/train/cat"
mv "$tree/val/zebra" "$tree/val/cat"

# Each rank in its own directory, where data.root=. is a different tree.
mkdir "$work/other" && cp -r "$tree/." "$work/other" && mv "$work/other/train/cat/001.jpg" "$work/other/train/cat/002.jpg"
differ="'$vittrain' $folder data.root=. run.dir='$work/differ'"
run_pair differ "env -C '$tree' $differ" "env -C '$work/other' $differ"
result "ranks must find the same data" "$(failed_otherwise 3 'ranks find different data' | tr '\n' ' ')" "$work/differ.log"

# EXIF orientation 6 in the JPEG files of one class; the others are PNG and WebP.
marked=$work/marked
cp -r "$tree" "$marked"
for file in "$marked"/*/cat/*.jpg; do
    [ "$(head -c 2 "$file" | od -An -tx1)" = " ff d8" ] || continue
    { head -c 2 "$file"
        printf '\377\341\0\042Exif\0\0MM\0*\0\0\0\010\0\001\001\022\0\003\0\0\0\001\0\006\0\0\0\0\0\0'
        tail -c +3 "$file"; } >"$work/file" && mv "$work/file" "$file"
done
train 1 stored "data.root=$marked"
compare "EXIF orientation is ignored" stored square 0
[ "$(grep -c 'warning: data: 10 of 90 files have an EXIF orientation, which is ignored; data.exif=on' "$work/stored.log")" = 1 ] &&
    grep -q 'data: [34] of 30 files have' "$work/stored.log" && bad= || bad="not one warning for each split"
result "a warning has the number of files with an orientation" "$bad" "$work/stored.log"
train 1 turned "data.root=$marked data.exif=on"
bad=
differ "$work/stored.loss" "$work/turned.loss" 1e-5 | grep -q line || bad="the losses of images as stored"
grep -q 'data: 10 of 90 files are turned' "$work/turned.log" || bad="$bad no line with their number"
result "data.exif=on turns them" "$bad" "$work/turned.log"

# The same images in tar shards: SHARD FORMAT ENDING LABEL.
shards=$work/tar
mkdir "$shards" && printf 'bird\ncat\ndog\n' >"$shards/classes.txt"
while read -r class format ending label; do
    for split in train val; do
        (cd "$marked/$split" && for file in "$class"/*.jpg; do echo "$label" >"${file%.jpg}.$ending"; done &&
            tar --format="$format" -cf "$shards/set-$split-$class.tar" "$class"/*)
    done
done <<'END'
bird ustar cls 0
cat gnu json {"key": "x", "label": 1}
dog posix cls 2
END
stored="data.format=webdataset data.root=$shards" turned="data.format=webdataset data.root=$shards data.exif=on"
train 1 shards "$turned"
compare "images in shards are turned, too" shards turned 0
result 'shards have the samples and class names of the folders' \
    "$(has shards.log 'webdataset, 90 training and 30 validation samples'; has shards/train.log ' dog ')" shards.log
train 1 shards_stored "$stored"
result "files with an orientation in shards are counted" "$(has "$work/shards_stored.log" 'warning: data: 10 of 90 files have an EXIF orientation')" "$work/shards_stored.log"
train 3 whole "$turned data.workers=2 checkpoint.every=0.2 checkpoint.keep=20"
compare 'shards on three ranks' whole turned 1e-5
interrupted whole part 7
train 3 part "$turned data.workers=2 checkpoint.every=0.2 checkpoint.keep=20"
compare 'a resumed run has the losses of an undisturbed run' part whole 0
result 'it resumes in the middle of an epoch' "$(has part.log 'resuming from .*: step 7')" part.log
fails 1 'a run does not resume with other shards' 2 'step-00000010.h5.*samples\[2\] was 30, is 0' \
    $folder $turned run.dir="$work/shards" train.epochs=3 data.root="$shards/set-train-{bird,cat}.tar::$shards/set-val-*.tar"
run 1 predict predict shards/checkpoints/last.h5 predict.output=predictions.csv
result 'predict has a line for each sample' "$(ended; [ "$(wc -l <predictions.csv)" = 31 ] || echo 'not 30 lines and a header')" predict.log
run 1 plan plan $folder $turned
result 'a plan of a run from shards' "$(ended)" plan.log
run 1 doctor doctor $turned
result 'doctor compares the shards' "$(has doctor.log 'tar: 6 files, 0\..* MB')" doctor.log
head -c 30000 "$shards/set-train-cat.tar" >short && mv short "$shards/set-train-cat.tar"
fails 3 'a truncated shard is named' 3 'set-train-cat.tar: [a-z/0-9.]* at byte [0-9]+' $folder $turned run.dir="$work/cut_run"

for from in weights.safetensors checkpoints/last.h5; do
    run 1 predict predict "$work/turned/$from" "$marked/val/cat" train.precision=fp32 predict.output="$work/$(basename "${from%.*}").csv"
done
run 1 ignored predict "$work/turned/weights.safetensors" "$marked/val/cat" train.precision=fp32 data.exif=off predict.output="$work/ignored.csv"
bad=
cmp -s "$work/weights.csv" "$work/last.csv" || bad="weights and checkpoint differ;"
! cmp -s "$work/weights.csv" "$work/ignored.csv" || bad="$bad data.exif=off changes nothing"
result "predict turns images as training did" "$bad" "$work/ignored.log"
