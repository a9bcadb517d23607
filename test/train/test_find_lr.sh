#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# `vittrain find lr`: the curve is PyTorch's (test/vectors/make_range_test.py) on several meshes, with its end;
# it writes files and plots and prints a suggestion; it ends without an error at NaN.
. "$TEST_SOURCE/test/support/program.sh"

ln -s "$TEST_SOURCE/test/vectors" "$work/vectors" # a path without spaces
vectors=$work/vectors
mkdir "$work/data"
head -c $((200 * 3073)) "$TEST_BUILD/data/cifar-10-sample/data_batch_1.bin" >"$work/data/data_batch_1.bin"
cp "$TEST_BUILD/data/cifar-10-sample/batches.meta.txt" "$work/data"
cd "$work" || exit 1

same="model.name=vit_tiny_patch16_224 model.image=32 model.patch=8 model.dim=24 model.depth=3 \
model.heads=3 model.init=$vectors/trajectory.safetensors data.format=cifar10 data.root=$work/data \
data.shuffle=off augment.flip=0 augment.rotate=0 augment.translate=0 augment.erase=0 \
train.precision=fp32 train.global_batch=28 optim.name=sgd optim.momentum=0.9 optim.weight_decay=0 run.threads=1 \
find.first=1e-5 find.last=10 find.steps=60 find.beta=0.9 find.stop=1.5 output.logbook="

# curve_differs FILE: print the differences from PyTorch's curve and its end.
curve_differs() {
    [ $status -eq 0 ] || echo "exit status $status;"
    sed '1d; s/,/ /g' "$1" >curve
    grep -v end "$vectors/range_test.txt" | paste -d' ' - curve | awk '
        function far(a, b) { gap = a - b; if (gap < 0) gap = -gap; return !(gap <= 1e-5 * a) }
        NF != 8 || $1 != $5 || far($2, $6) || far($3, $7) || far($4, $8) { print "line " NR ": " $0; exit }
        END { if (NR != 53) print NR " points" }'
    grep -q '^stopped at 2.45, where the smoothed loss exceeded 1.5 times its minimum' "$run_log" ||
        echo 'another end'
}

while read -r ranks words <&3; do
    run "$ranks" curve find lr $same find.output=curve$ranks $words
    result "PyTorch's curve on $ranks ranks, $words" "$(curve_differs "curve$ranks.csv" | tr '\n' ' ')" "$run_log"
done 3<<END
1 find.output=curve1
4 mesh.strategy=zero2 train.accumulate=3
3 mesh.strategy=fsdp train.checkpoint_activations=block
END
# The suggestion is between the start of the curve and its minimum.
run 1 falls find lr $small optim.name=adamw find.steps=400 find.output=falls
awk -F, 'NR > 11 && (low == "" || $4 < low) { low = $4; rate = $2 } END { print rate }' falls.csv >lowest
sed -n 's/^suggestion: optim.lr=\([0-9.e-]*\),.* optim.lr=\([0-9.e-]*\)$/\1 \2/p' "$run_log" | paste -d' ' - lowest |
    awk '{ if (!($1 > 1e-4 && $1 < $3)) print "suggestion " $1; if (!($2 > 0.09 * $3 && $2 < 0.11 * $3)) print "tenth " $2; n++ }
        END { if (n != 1) print "no suggestion" }' >problems
[ $status -eq 0 ] || echo "exit status $status" >>problems
result 'a curve that falls gives a suggestion' "$(tr '\n' ';' <problems)" "$run_log"
run 1 level find lr $small find.steps=60 find.last=1e-6 find.output=
result 'noise gives none' "$(has "$run_log" '^no suggestion: .*noise.*find.steps=240')" "$run_log"
result 'find.output empty: no files' "$(ls find_lr* 2>/dev/null)"

run 3 nan find lr $small find.first=1e3 find.last=1e30 find.steps=60 find.stop=0 find.output=nan optim.name=sgd
result 'it ends at NaN without an error, after too few points for a suggestion' "$(ended; has "$run_log" 'where loss or gradient was not finite' '^no suggestion: .* by 0, .*noise \(0\)')" "$run_log"

errors find lr $small 3<<END
5|nowhere/curve|find.output=nowhere/curve
2|find.first=2 .*find.last=1|find.first=2 find.last=1
2|drop_last=on|train.global_batch=100000 data.drop_last=on
4|model.init|model.init=s3://b/w.safetensors
END
