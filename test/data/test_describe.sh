#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# `data describe` lists Zarr stores of both versions and .npy files, and suggests options for each task. No ranks, no GPU.
. "$TEST_SOURCE/test/support/program.sh"

tar -xzf "$TEST_SOURCE/test/vectors/array_folders.tar.gz"

# array STORE/NAME TYPE SHAPE [ATTRIBUTES]: write an array of version 2 with one chunk, in the file 0, 0.0, ...
array() {
    mkdir -p "$1"
    echo '{"zarr_format": 2}' >"${1%%/*}/.zgroup"
    echo "{\"zarr_format\": 2, \"dtype\": \"$2\", \"shape\": [$3], \"chunks\": [$3], \"compressor\": null, \"filters\": null, \
\"fill_value\": 0, \"order\": \"C\"}" >"$1/.zarray"
    [ -z "$4" ] || echo "$4" >"$1/.zattrs"
    : >"$1/$(echo "$3" | sed 's/[0-9]*/0/g; s/,/./g')"
}

# suggests NAME STORE PATTERN...: describe prints lines that match.
suggests() {
    name=$1 store=$2
    shift 2
    run 1 describe data describe "$store"
    result "$name" "$(ended; has describe.log "$@")" describe.log
}

suggests 'arrays of version 2' v2 '^v2, Zarr store$' '/blosc_lz4  *int16 \[5, 3, 5, 4\], chunks \[1, 3, 5, 4\], blosc' '/boolean  *bool '
suggests 'arrays of version 3' v3 '/shards_plain  *big-endian float32 \[5, 3, 5, 4\], chunks \[1, 2, 3, 2\], no filter'
suggests '.npy files' npy '^npy, folder of .npy files$' '/type_big_f8  *big-endian float64 \[5, 3, 5, 4\]$' '/boolean  *bool '
suggests 'files that are refused' npy_refused '/fortran  *cannot be read: it is in Fortran order' '/text  *cannot be read: its type'

array classes/fields '<f4' 40,4,8,8
array classes/group/label '<i8' 40 '{"class_names": ["cyclone", "anticyclone"]}'
array classes/good '|b1' 40
array classes/absent '<i4' 40
rm classes/absent/0
echo '{"zarr_format": 2}' >classes/group/.zgroup
suggests 'classes' classes 'data.x=/fields data.y=/group/label data.val=0.1$' '/group/label .*; class_names=cyclone, \.\.\.' \
    '4 channels, order chw' '/absent .*; cannot be read: none of its chunk files exists'

array part/u '<f4' 40,8,8
sed -i 's/"chunks": .40,8,8./"chunks": [10,8,8]/' part/u/.zarray
suggests 'missing chunks' part '/u .* no filter, 3 of 4 chunks do not exist$'

array boolean/x '<f4' 40,8,8
array boolean/good '|b1' 40
suggests 'Booleans, if there is nothing else' boolean 'data.x=/x data.y=/good data.val=0.1$'
array boolean/mass '<f8' 40
suggests 'numbers' boolean 'data.y=/mass data.task=regression data.val=0.1$'

array masks/image '<u2' 40,8,8
array masks/mask '|u1' 40,8,8
suggests 'classes of pixels' masks 'data.x=/image data.y=/mask model.head=dense data.val=0.1$' 'add model.classes=K, .* in /mask'

cp -r masks three
awk 'BEGIN { for (n = 0; n < 2560; n++) printf "\\%03o", n % 3 }' | xargs -0 printf >three/mask/0.0.0
suggests 'the number of classes' three 'data.y=/mask model.classes=3 model.head=dense data.val=0.1$' \
    'the values of /mask are at most 2 in its 40 samples; .*, add train.ignore_label=V'
sed -i 's/|u1/|i1/' three/mask/.zarray
printf '\377' | dd of=three/mask/0.0.0 conv=notrunc 2>dd.log
suggests 'pixels without a class' three 'data.y=/mask model.classes=3 train.ignore_label=-1 model.head=dense data.val=0.1$'
cp -r masks instances
awk 'BEGIN { for (n = 0; n < 2560; n++) printf "\\%03o", n % 21 }' | xargs -0 printf >instances/mask/0.0.0
suggests 'masks of instances' instances 'data.x=/image data.y=/mask' \
    'first sample of /mask has 21 values: if they number objects, they are instances and not classes'

array planes/x '<f4' 40,3,8,8
array planes/y '<f4' 40,4,8,8
suggests 'planes of numbers' planes 'data.x=/x data.y=/y data.task=regression model.head=dense data.val=0.1$'

array many/x '<f4' 40,3,8,8
array many/tags '|u1' 40,5
suggests 'several labels' many 'data.y=/tags train.loss=bce data.val=0.1$'

array series/u '<f4' 40,8,8
array series/v '<f4' 40,8,8
array series/time '<i8' 40 '{"units": "hours since 2020-01-01", "_ARRAY_DIMENSIONS": ["time"]}'
suggests 'a forecast' series 'data.x=/u,/v data.y=/u@\+1,/v@\+1 data.task=regression model.head=dense data.val=0.1 data.val_from=end$'
echo '{"scale_factor": 0.01, "_ARRAY_DIMENSIONS": ["time", "y", "x"]}' >series/v/.zattrs
sed -i 's/<f4/<i2/' series/v/.zarray
suggests 'packed numbers are no classes' series 'data.x=/u,/v data.y=/u@\+1,/v@\+1 data.task=regression'

array uneven/u '<f4' 40,33,8 '{"_ARRAY_DIMENSIONS": ["time", "lat", "lon"], "coordinates": "period place", "grid_mapping": "map"}'
array uneven/time '<i8' 40 '{"units": "hours since 2020-01-01", "bounds": "time_bnds", "_ARRAY_DIMENSIONS": ["time"]}'
array uneven/time_bnds '<f8' 40,2
array uneven/period '<i4' 40
array uneven/place '<f4' 40,33,8
array uneven/map '<i4' 40
suggests 'coordinates and bounds are no targets; the model takes any grid' uneven \
    'data.x=/u data.y=/u@\+1 data.task=regression model.head=dense data.val=0.1 data.val_from=end$'
result 'and nothing else' "$([ "$(grep -c '^  vittrain' describe.log)" = 1 ] || echo several)" describe.log

for size in '600,1024 model.patch=16 train.batch=16' '192,200 train.batch=16' \
    '200,8000 augment.crop=random model.image=200 model.image_width=256 model.patch=8'; do
    array large/u '<f4' 40,${size%% *}
    array large/time '<i8' 40 '{"units": "hours since 2020-01-01", "_ARRAY_DIMENSIONS": ["time"]}'
    suggests "planes of $size" large "model.head=dense ${size#* } data.val=0.1 data.val_from=end$"
done

mkdir times
array times/a.zarr/u '<f4' 1,32,64 '{"_ARRAY_DIMENSIONS": ["time", "lat", "lon"]}'
array times/a.zarr/time '<i8' 1 '{"units": "hours since 2020-01-01", "_ARRAY_DIMENSIONS": ["time"]}'
echo '{"zarr_format": 2}' >times/a.zarr/.zgroup
rm times/.zgroup
suggests 'one time' times/a.zarr '^/u has the shape of images, but only one sample: set data.root to a folder'
cp -r times/a.zarr times/b.zarr
suggests 'files of one time are joined' times 'data.x=/u data.y=/u@\+1 .* data.join=on data.val=none$'

mkdir -p several/train several/test
cp -r classes several/train/b.zarr
cp -r boolean several/test/a.zarr
suggests 'the first training file of a folder' several '^several/train/b.zarr, Zarr store, the first of 2 files$' \
    'data.root=several data.x=/fields data.y=/group/label data.val=0.1$'
mkdir empty
run 1 describe data describe empty
result 'a folder without arrays is refused' "$(ended 3; has describe.log 'data.root=empty: .* it is empty; set data.root to a file')" describe.log
