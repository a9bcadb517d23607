#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# vittrain convert data, and training with its output: the losses are those of the source data, bit for bit if the
# layout is the same, in blocks on any number of ranks. Mistakes give one error line.
. "$TEST_SOURCE/test/support/program.sh"

sample=$TEST_BUILD/data/cifar-10-sample
steps="$small train.steps=10 checkpoint.every=0 output.tensorboard=off output.weights=off"

# losses RANKS NAME WORD...: train and write the losses and evaluations to $work/NAME.loss.
losses() {
    ranks=$1 kept=$2
    shift 2
    run "$ranks" "$kept" $steps run.dir="$work/$kept" "$@"
    { column "$work/$kept/metrics.csv" train loss; column "$work/$kept/metrics.csv" val loss; } \
        >"$work/$kept.loss"
}

for ranks in 1 3; do
    run $ranks pack convert data data.root="$sample" convert.output="$work/cifar$ranks.h5"
    bad=$(ended)
    grep -q 'train  *2000 records, sum [0-9a-f]*$' "$run_log" || bad="$bad; no sum"
    result "packing on $ranks ranks" "$bad" "$run_log"
done
result 'both are the same bytes' "$(cmp "$work/cifar1.h5" "$work/cifar3.h5" 2>&1)"
run 2 pack convert data data.root="$sample" convert.output="$work/cut.h5" convert.file_size=2MiB
result 'several files' "$([ -e "$work/cut-00003-of-00004.h5" ] || echo missing)" "$run_log"

packed="data.format=packed data.root=$work/cifar1.h5"
losses 1 source data.root="$sample"
losses 1 one $packed
result 'training has the losses of the source' "$(differ "$work/source.loss" "$work/one.loss" 0)" "$work/one.log"
losses 1 several data.format=packed data.root="$work/cut.h5"
result 'from several files, too' "$(differ "$work/source.loss" "$work/several.loss" 0)" "$work/several.log"
losses 1 reference_source data.root="$sample" data.val=reference
losses 2 reference $packed data.val=reference
result 'in the random split of all, on two ranks' \
    "$(differ "$work/reference_source.loss" "$work/reference.loss" 1e-5)" "$work/reference.log"

losses 1 blocks1 $packed data.shuffle_block=8
losses 3 blocks3 $packed data.shuffle_block=8
result 'by blocks on one rank and on three' "$(differ "$work/blocks1.loss" "$work/blocks3.loss" 1e-5)" "$work/blocks3.log"
result 'which is another order' "$(cmp -s "$work/blocks1.loss" "$work/source.loss" && echo 'the same losses')"
grep -q 'sorted by class' "$work/blocks1.log" && bad='warned of what is not so' || bad=
result 'mixed classes are no reason to warn' "$bad" "$work/blocks1.log"

tree=$work/tree
for class in bird cat dog; do mkdir -p "$tree/train/$class" "$tree/val/$class"; done
"$TEST_BUILD/test/data/test_image_folder" --make "$tree" 60
folder="data.format=imagefolder data.root=$tree model.image=24"
crop="augment.random_resized_crop=on"
run 3 pack convert data $folder convert.output="$work/files.h5"
result 'packing a folder' "$(ended)" "$run_log"
files="data.format=packed data.root=$work/files.h5 model.image=24"
small="$small debug.fraction=1" steps="$steps debug.fraction=1"
losses 1 folder $folder $crop
losses 1 files $files $crop
result 'training has the losses of the folder' "$(differ "$work/folder.loss" "$work/files.loss" 0)" "$work/files.log"
run 2 pack convert data $folder convert.output="$work/restarts.h5" convert.kind=restarts
losses 1 restarts data.format=packed data.root="$work/restarts.h5" model.image=24 $crop
bad=$(differ "$work/folder.loss" "$work/restarts.loss" 0)
! cmp -s "$work/files.h5" "$work/restarts.h5" || bad="$bad; no markers were added"
result 'also with restart markers' "$bad" "$work/restarts.log"
run 2 pack convert data $folder convert.output="$work/pixels.h5" convert.size=24 convert.resize_to=square
losses 1 square $folder
losses 1 pixels data.format=packed data.root="$work/pixels.h5" model.image=24 data.exif=on
bad=$(differ "$work/square.loss" "$work/pixels.loss" 0)
[ "$(grep -c 'warning: data.exif=on has no effect: .*pixels.h5 contains decoded pixels' "$work/pixels.log")" = 1 ] ||
    bad="$bad; not one warning"
result 'also from pixels of the size, where data.exif=on has no effect' "$bad" "$work/pixels.log"
losses 1 sorted $files $crop data.shuffle_block=4
result 'blocks of sorted classes are worth a warning' "$(has "$work/sorted.log" 'files.h5: its records are sorted by class')" "$work/sorted.log"
run 2 pack convert data $folder convert.output="$work/mixed.h5" convert.shuffle=on
losses 2 mixed data.format=packed data.root="$work/mixed.h5" model.image=24 $crop \
    data.shuffle_block=4
[ $status -eq 0 ] && ! grep -q 'sorted by class' "$work/mixed.log" && bad= || bad='warned, or failed'
result 'convert.shuffle is the answer to it' "$bad" "$work/mixed.log"

run 1 plan plan $packed
result 'a plan' "$(ended)" "$run_log"
cp "$work/cifar1.h5" "$work/damaged.h5"
printf '\377\377\377' | dd of="$work/damaged.h5" bs=1 seek=1000000 conv=notrunc 2>/dev/null
fails 2 'flipped bytes end the run' 3 'damaged.h5: wrong checksum of record [0-9]+' \
    $small debug.fraction=1 train.steps=170 data.format=packed data.root="$work/damaged.h5" \
    data.shuffle=off run.dir="$work/damaged"
head -c 5000000 "$work/cifar1.h5" >"$work/damaged.h5"
fails 2 'a file that is cut' 3 'damaged.h5 cannot be used as packed data: it is truncated: it has 5000000 of' \
    $small data.format=packed data.root="$work/damaged.h5" run.dir="$work/damaged"
fails 3 'no name to write to' 2 'convert.output=FILE.h5' convert data data.root="$sample"
fails 2 'a file that is there' 5 'cifar1.h5 already exists' convert data data.root="$sample" convert.output="$work/cifar1.h5"
fails 1 'files of what has none' 2 'are pixels, not image files' convert data \
    data.root="$sample" convert.kind=encoded convert.output="$work/no.h5"
fails 2 'what has no images' 2 'packed data have one class for each image: leave out data.task=regression' convert data \
    data.format=synthetic data.task=regression convert.output="$work/no.h5"
result 'nothing is left behind' "$(ls "$work" | grep -E 'part$|^no.h5')"
