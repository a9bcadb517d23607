#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# `predict` of arrays to HDF5: a forecast with coordinates, classes, classes of pixels, and files without data.y; on 1 and 3
# ranks. test/python/check_predict_arrays.py compares the values.
. "$TEST_SOURCE/test/support/program.sh"

# array STORE/NAME TYPE SHAPE DIMENSIONS CHUNK [ATTRIBUTE]: write a Zarr array of version 2, whose chunk CHUNK is standard input.
array() {
    mkdir -p "$1"
    echo '{"zarr_format": 2}' >"${1%/*}/.zgroup"
    echo "{\"zarr_format\": 2, \"dtype\": \"$2\", \"shape\": [$3], \"chunks\": [$3], \"compressor\": null, \"filters\": null, \
\"fill_value\": null, \"order\": \"C\"}" >"$1/.zarray"
    echo "{\"_ARRAY_DIMENSIONS\": [$4]$6}" >"$1/.zattrs"
    cat >"$1/$5"
}

# numbers COUNT [DIFFERENT [FACTOR]]: write 0, FACTOR (1), 2 * FACTOR, ... modulo DIFFERENT (250) as bytes.
numbers() {
    awk -v count="$1" -v different="${2:-250}" -v factor="${3:-1}" \
        'BEGIN { for (n = 0; n < count; n++) printf "\\%03o", n * factor % different }' |
        xargs -0 printf
}

planes='"time", "lat", "lon"'
numbers 1280 251 77 | array test.zarr/u '|u1' 20,8,8 "$planes" 0.0.0 ', "units": "m/s"'
numbers 1280 239 101 | array test.zarr/v '|u1' 20,8,8 "$planes" 0.0.0
numbers 20 | array test.zarr/time '|u1' 20 '"time"' 0 ', "units": "hours since 2020-01-01"'
numbers 8 | array test.zarr/lat '|u1' 8 '"lat"' 0 ', "units": "degrees_north"'
numbers 20 3 | array test.zarr/label '|u1' 20 '"time"' 0 ', "class_names": ["a", "b", "c"]'
numbers 1280 2 | array test.zarr/mask '|u1' 20,8,8 "$planes" 0.0.0
cp -r test.zarr/u test.zarr/g_u
mkdir test.zarr/g
cp -r test.zarr/u test.zarr/.zgroup test.zarr/g
cp -r test.zarr train.zarr
rm -rf test.zarr/label test.zarr/mask
model="data.format=arrays data.root=$work/train.zarr data.x=u,v model.name=vit_cifar model.dim=32 model.depth=1 model.heads=2 \
model.patch=4 model.image=8 train.epochs=1 train.global_batch=8 train.precision=fp32 run.threads=1 data.val=0.2"

# output NAME PATTERN...: describe lists such data sets.
output() {
    output=$1
    shift
    run 1 described data describe "$output"
    ended
    has described.log "$@"
}

run 1 forecast $model data.y=u@+6,v@+6 data.task=regression model.head=dense data.val_from=end train.exact=layout \
    run.dir="$work/forecast"
run 1 predict predict forecast test.zarr predict.output=forecast.h5
bad=$(ended; output forecast.h5 '/u  *float32 \[20, 8, 8\]; units=m/s$' '/v  *float32 \[20, 8, 8\]$' \
    '/time  *float64 \[20\]; units=hours since 2020-01-01$' '/lat  *float64 \[8\]; units=degrees_north$')
[ ! -e forecast.h5.part ] || bad="$bad a part is left"
result 'a forecast has coordinates' "$bad" predict.log
run 3 predict predict forecast test.zarr predict.output=three.h5
result 'three ranks write the same file' "$(ended; cmp forecast.h5 three.h5 2>&1)" predict.log
run 1 predict predict forecast predict.output=split.nc
result 'the split of the run' "$(ended; output split.nc '/u  *float32 \[3, 8, 8\]' '/time  *float64 \[3\]' '/record  *int64 \[3\]' \
    '/file  *int64 \[3\]' '/file_sample  *int64 \[3\]')" predict.log
run 1 predict predict forecast/weights.safetensors test.zarr predict.output=weights.h5
result 'weights have statistics and names' "$(ended; output weights.h5 '/v  *float32 \[20, 8, 8\]')" predict.log
run 1 predict predict forecast test.zarr
result 'planes are not printed' "$(ended 2; has predict.log 'the predictions are planes: set predict.output=FILE.h5')" predict.log
hours="$model data.y=u@+6h,v@+360min data.task=regression model.head=dense data.val_from=end train.exact=layout"
run 1 hours $hours run.dir="$work/hours"
bad=$(ended; has hours.log 'RMSE u@\+6h .* v@\+360min'; \
    for name in forecast hours; do sed -n 's/^final: //p' $name.log | sed 's/@+[0-9a-z]*//g' >$name.final; done; cmp forecast.final hours.final 2>&1)
result 'hours are steps' "$bad" hours.log
run 3 predict predict hours test.zarr predict.output=hours.h5
result 'their predictions have the same times' "$(ended; output hours.h5 '/u  *float32 \[20, 8, 8\]'; \
    cmp forecast.h5 hours.h5 2>&1)" predict.log

# Of 14 samples with a target, three are held out, whose values are those of the first 9 hours.
period="$model data.y=u@+6h data.task=regression model.head=dense data.val=..2020-01-01T02 train.exact=layout train.epochs=4 \
output.receipt=1 checkpoint.every=1 train.global_batch=5"
run 1 period $period run.dir="$work/period"
bad=$(ended; has period.log '5 training and 3 validation samples'; has period/deck.ini '^val = \.\.2020-01-01T02$')
result 'a period is held out' "$bad" period.log
run 3 period-3 $period run.dir="$work/period-3" mesh.strategy=fsdp
interrupted period period-part 2
run 3 period-part $period run.dir="$work/period-part"
bad=$(ended; has period-part.log 'resuming from .*: step 2'; for name in period period-3 period-part; do cut -d, -f1-4 $name/receipt.csv >$name.bits; done; \
    cmp period.bits period-3.bits 2>&1; cmp period.bits period-part.bits 2>&1)
result 'three ranks and a resumed run have the same bits' "$bad" period-part.log
run 1 eval eval period predict.split=val
result 'eval reads the period' "$(ended; has eval.log 'on 3 samples' 'data.val=\.\.2020-01-01T02: the best checkpoint was chosen')" eval.log
errors 3<<END
2|data.format=cifar10 have no times|data.val=2020
END
run 1 names $model data.y=g/u@+6,g_u@+6,g/u@+3 data.task=regression model.head=dense run.dir="$work/names"
run 1 predict predict names test.zarr predict.output=names.h5
result 'each output has a name of its own' "$(ended; output names.h5 '/g_u  *float32 .*; units=m/s' '/g_u@\+6  *float32' '/g_u@\+3  *float32')" \
    predict.log

run 1 classes $model data.y=label train.exact=layout run.dir="$work/classes"
run 1 predict predict classes test.zarr predict.output=classes.h5
result 'classes of a file without labels' "$(ended; output classes.h5 '/class  *uint8 \[20\]; class_names=a, \.\.\.$' \
    '/probability  *float32 \[20, 3\]; class_names=a, \.\.\.$' '/time  *float64 \[20\]')" predict.log
run 3 predict predict classes test.zarr predict.output=classes.csv
result 'lines without labels' "$(ended; has classes.csv '^record,label,predicted,class,p_a,p_b,p_c$' '^19,,[0-2],[abc],0')" predict.log

cp -r test.zarr mirror.zarr
for name in u v; do
    od -An -v -w8 -tu1 test.zarr/$name/0.0.0 | awk '{ for (i = NF; i > 0; i--) printf "\\%03o", $i }' | xargs -0 printf >mirror.zarr/$name/0.0.0
done
run 1 predict predict classes mirror.zarr predict.output=mirror.csv
run 3 predict predict classes test.zarr predict.output=flipped.csv eval.flip=on
bad=$(ended; paste -d, classes.csv mirror.csv flipped.csv | awk -F, 'NR > 1 {
        sum = 0
        for (c = 5; c <= 7; c++) { root[c] = sqrt($c * $(c + 7)); sum += root[c]; other += (($c - $(c + 7))^2 > 1e-8) }
        for (c = 5; c <= 7; c++) if ((root[c] / sum - $(c + 14))^2 > 4e-12) print "line " NR ": " $0 }
    END { if (NR != 21 || other < 20) print NR " lines, " other " numbers of mirror images differ" }')
result 'eval.flip: the mean of the logits of an image and its mirror image' "$bad" predict.log

errors predict classes test.zarr 3<<END
2|predict.output=x.zarr|predict.output=x.zarr
2|predict.output=x|predict.output=x
5|none/x.h5|predict.output=none/x.h5
END

cp -r train.zarr from_1.zarr
numbers 20 2 | tr '\000\001' '\001\002' >from_1.zarr/label/0
rm from_1.zarr/label/.zattrs
run 1 from_1 $model data.root="$work/from_1.zarr" data.y=label run.dir="$work/from_1"
bad=$(ended; has from_1.log 'data.y=label: the labels are 1 to 2, so class 0 of the 3 classes has no samples; do the labels count from 1\?')
[ "$(grep -c 'count from 1' from_1.log)" = 1 ] || bad="$bad several warnings;"
result 'labels that count from 1' "$bad" from_1.log

cp -r test.zarr a_test.zarr
cp -r test.zarr b_train.zarr
numbers 1280 241 89 >b_train.zarr/u/0.0.0
for file in a_test.zarr b_train.zarr; do run 1 predict predict classes $file predict.output=$file.csv; done
run 1 predict predict classes b_train.zarr a_test.zarr predict.output=both.csv
cut -d, -f2- a_test.zarr.csv >a
cut -d, -f2- b_train.zarr.csv | sed 1d >>a
cut -d, -f2- both.csv >b
result 'several files, in the order of their names' "$(ended; cmp a b 2>&1)" predict.log

run 1 masks $model data.y=mask model.head=dense model.classes=2 run.dir="$work/masks"
run 1 predict predict masks test.zarr predict.output=masks.h5
result 'classes of pixels' "$(ended; output masks.h5 '/class  *uint8 \[20, 8, 8\]; class_names=0, \.\.\.$' '/lat  *float64 \[8\]')" predict.log

cp -r train.zarr radians.zarr
sed -i s/degrees_north/radians/ radians.zarr/lat/.zattrs
mkdir regions joined
cp -r train.zarr regions/a.zarr
cp -r train.zarr regions/b.zarr
cp -r regions/*.zarr joined
numbers 9 | tail -c 8 >regions/b.zarr/lat/0
cp -r train.zarr twice.zarr
echo '{"class_names": ["a", "b", "a"]}' >twice.zarr/label/.zattrs
cp classes.h5 before.h5
plane="data.y=u data.task=regression model.head=dense"
cp -r train.zarr globe.zarr
numbers 8 | array globe.zarr/lon '|u1' 8 '"lon"' 0 ', "units": "degrees_east", "scale_factor": 45'
cp -r globe.zarr part.zarr
sed -i 's/: 45/: 40/' part.zarr/lon/.zattrs
for name in globe:wrap part:edge train:edge; do
    run 1 padded $model $plane model.patch=3 data.root="$work/${name%:*}.zarr" run.dir="$work/padded-${name%:*}"
    bad=$(ended; has padded.log "model.pad=${name#*:}: the model pads images of 8x8 pixels")
    grep -aq "\"model.pad\":\"${name#*:}\"" padded-${name%:*}/weights.safetensors || bad="$bad it is not in the weights"
    result "longitudes of $name" "$bad" padded.log
done
array rows/train.zarr/u '|u1' 20,8,8 '' 0.0.0 </dev/null
array rows/test.zarr/u '|u1' 20,16,8 '' 0.0.0 </dev/null
errors 3<<END
3|evaluation have 16 rows|$model data.x=u $plane train.row_weight=latitude augment.crop=random model.image=4 data.val=test data.root=$work/rows
2|model.pad=wrap needs all 8 columns|$model $plane model.pad=wrap augment.crop=random model.image=6 run.dir=$work/none
3|radians.zarr: .*'lat'|$model $plane train.row_weight=latitude data.root=$work/radians.zarr run.dir=$work/none
3|b.zarr: .*'lat'|$model $plane train.row_weight=latitude data.root=$work/regions run.dir=$work/none
3|b.zarr: 'time'|$model $plane data.root=$work/joined data.join=on run.dir=$work/none
3|'label'|$model data.root=$work/twice.zarr data.y=label run.dir=$work/none
3|classes.h5|predict classes classes.h5 predict.output=classes.h5
END
result 'the output is no input' "$(cmp classes.h5 before.h5 2>&1)"

# Forcings, on windows and on whole fields.
cp -r train.zarr forced.zarr
numbers 8 251 45 | array forced.zarr/lon '|u1' 8 '"lon"' 0 ', "units": "degrees_east"'
forced="$model data.root=$work/forced.zarr data.x=u data.y=u@+2 data.task=regression model.head=dense train.exact=layout"
for ranks in 1 3 4; do
    run $ranks forced$ranks $forced data.forcings=latitude,longitude,day_of_year,time_of_day,insolation@+2h,insolation@+1 \
        model.image=4 augment.crop=random run.dir="$work/forced$ranks"
    bad=$(ended; has forced$ranks.log 'data.forcings=latitude,.*,insolation@\+1: the last 9 of 10 channels$' ' 14 training')
    rm -rf forced.zarr/v forced.zarr/g*
    run $ranks predict predict forced$ranks forced.zarr predict.output=forced$ranks.h5
    result "forcings on $ranks ranks" "$bad$(ended; cmp forced1.h5 forced$ranks.h5 2>&1)" predict.log
done
cp -r forced.zarr noleap.zarr
sed -i 's/hours since/days since/; s/}/, "calendar": "noleap"}/' noleap.zarr/time/.zattrs
run 1 mixed predict forced1 forced.zarr noleap.zarr predict.output=mixed.h5
result 'forcings of files with different calendars' "$(ended; has mixed.log "predictions have no times: .*noleap.zarr: the units or the calendar")" mixed.log
errors 3<<END
2|data.forcings=latitude.*data.coordinates=check|$forced data.forcings=latitude data.coordinates=ignore run.dir=$work/none
2|data.forcings=height: not a forcing|$forced data.forcings=latitude,height run.dir=$work/none
3|train.zarr: data.forcings=insolation: there are no longitudes|$forced data.root=$work/train.zarr data.forcings=insolation run.dir=$work/none
END

# Static fields: in all files, in the first one, and in a file of their own.
mkdir all first
numbers 64 2 | array fixed.zarr/lsm '|u1' 1,8,8 "$planes" 0.0.0
numbers 128 3 | array fixed.zarr/soil '|u1' 2,8,8 '"level", "lat", "lon"' 0.0.0
cp -r train.zarr all/a.zarr
numbers 64 2 | array all/a.zarr/lsm '|u1' 8,8 '"lat", "lon"' 0.0
cp -r fixed.zarr/soil all/a.zarr
cp -r train.zarr/lat fixed.zarr
cp -r all/a.zarr all/b.zarr
cp -r all/a.zarr train.zarr first
cp -r all other
numbers 64 3 >other/b.zarr/lsm/0.0
cp -r fixed.zarr shifted.zarr
numbers 9 | tail -c 8 >shifted.zarr/lat/0
cp -r fixed.zarr one.zarr
numbers 64 2 | array one.zarr/u '|u1' 1,8,8 "$planes" 0.0.0
fixed="$model data.x=lsm,soil,u data.y=u@+2 data.task=regression model.head=dense train.exact=layout model.image=4 augment.crop=random"
for ranks in 1 3 4; do
    case $ranks in 1) root=all file= ;; 3) root=first file= ;; 4) root=first::fixed.zarr file=fixed.zarr ;; esac
    run $ranks fixed$ranks $fixed data.root=$root data.static_file=$file output.receipt=1 run.dir="$work/fixed$ranks"
    bad=$(ended; has fixed$ranks.log 'mean 0\.5, 0\.984375, 1, .*; standard deviation 0\.5, ' ' 29 training'
        cut -d, -f1-4 fixed1/receipt.csv >a; cut -d, -f1-4 fixed$ranks/receipt.csv >b; cmp a b 2>&1)
    result "static fields of $root on $ranks ranks" "$bad" fixed$ranks.log
    run $ranks predict predict fixed$ranks test.zarr data.static_file="$work/fixed.zarr" predict.output=fixed$ranks.h5
    result 'they are used for predictions' "$(ended; cmp fixed1.h5 fixed$ranks.h5 2>&1)" predict.log
done
errors $fixed run.dir="$work/none" 3<<END
3|b.zarr: data.x=lsm .*its values differ from those in .*a.zarr|data.root=other
3|other/a.zarr: dimension 'lat' of u differs from 'lat' of lsm in .*shifted.zarr: |data.root=other data.static_file=$work/shifted.zarr
3|train.zarr.*lsm|data.root=$work/train.zarr
3|data.static_file has 20 times of u: keep one|data.root=all data.static_file=all/b.zarr
3|train.zarr: data.x=u has another shape in data.static_file=.*one.zarr|data.root=train.zarr data.static_file=one.zarr
3|data.x=lsm: no data set has samples|data.root=all data.x=lsm
2|data.x=lsm@\+1: this data set has no dimension of samples|data.root=all data.x=u,lsm@+1
2|data.y=lsm: this data set has no dimension of samples|data.root=all data.x=u data.y=lsm
END

for name in u v; do
    cat train.zarr/$name/0.0.0 train.zarr/$name/0.0.0 | array gap.zarr/$name '|u1' 40,8,8 "$planes" 0.0.0
done
{ numbers 20; numbers 60 | tail -c 20; } | array gap.zarr/time '|u1' 40 '"time"' 0 ', "units": "hours since 2020-01-01"'
for ranks in 1 3; do
    run $ranks gap$ranks $model data.y=u@+2 data.task=regression model.head=dense data.root="$work/gap.zarr" data.val=0.25 \
        data.val_from=end output.receipt=1 train.exact=layout run.dir="$work/gap$ranks"
    bad=$(ended; has gap$ranks.log "steps of 1 hour in 'time': 4 of 40 samples are left out, 2 of them at the ends of series" ' 25 training and 9 validation samples'
        cut -d, -f1-3 gap1/receipt.csv >a; cut -d, -f1-3 gap$ranks/receipt.csv >b; cmp a b 2>&1)
    result "pairs over a gap are left out on $ranks ranks" "$bad" gap$ranks.log
done

