#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# Receipts of steps, and `vittrain verify`, which replays the steps and compares.
. "$TEST_SOURCE/test/support/program.sh"

steps="$small optim.ema=0.9 output.tensorboard=off train.epochs=2 checkpoint.every=0.2 checkpoint.keep=50 output.receipt=4"

# verified NAME RANKS LINE WORD...: verify succeeds, and its last line matches LINE.
verified() {
    title=$1 on=$2 line=$3
    shift 3
    run "$on" verify verify "$@"
    bad=$(ended)
    grep -qxE "$line" "$work/verify.log" || bad="$bad; no line $line"
    result "$title" "$bad" "$work/verify.log"
}

# cells FILE: the column of steps, on one line.
cells() { cut -d, -f1 "$1" | tr '\n' ' '; }

run 2 whole $steps run.dir="$work/whole"
bad=$(ended)
[ "$(cells whole/receipt.csv)" = 'step 4 8 12 16 20 24 28 32 36 40 44 48 50 ' ] || bad="$bad; $(cells whole/receipt.csv)"
head -n 1 whole/receipt.csv | grep -qx 'step,loss,grad_norm,stem,blocks.0,blocks.1,head,stem.state,blocks.0.state,blocks.1.state,head.state,grains' ||
    bad="$bad; columns"
result 'a run has receipts every output.receipt steps and at its end' "$bad" "$work/whole.log"
awk -F, -v OFS=, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
    $at["split"] == "train" { printf "%d %.6f %.6f\n", $at["step"], $at["loss"], $at["grad_norm"] }' whole/metrics.csv >rows
awk -F, 'NR > 1 { print $1, $2, $3 }' whole/receipt.csv | while read -r step loss norm; do
    printf '%d %.6f %.6f\n' "$step" "$loss" "$norm" | grep -qxFf rows || echo "step $step: $loss $norm"
done >unlike
result 'their losses and norms are those of metrics.csv' "$(head -n 1 unlike)" unlike
run 2 plain $steps output.receipt=0 run.dir="$work/plain"
cmp "$work/whole/weights.safetensors" "$work/plain/weights.safetensors" >differ.log 2>&1 && bad= || bad='other weights'
[ ! -e plain/receipt.csv ] || bad="$bad; receipts without output.receipt"
result 'receipts do not change the training' "$bad" differ.log
bad=$(interrupted $steps)
run 2 interrupted $steps run.dir="$work/interrupted"
[ $status -eq 0 ] || bad="$bad exit status $status;"
cmp whole/receipt.csv interrupted/receipt.csv >differ.log 2>&1 || bad="$bad other receipts"
result 'a run that was interrupted and resumed has the same receipts' "$bad" differ.log
run 1 csv $steps output.csv=off run.dir="$work/csv" train.epochs=1
run 1 csv2 $steps output.csv=off run.dir="$work/csv" train.epochs=2 output.receipt=0
[ "$(cells csv/receipt.csv)" = 'step 4 8 12 16 20 24 25 ' ] && bad= || bad=$(cells csv/receipt.csv)
result 'receipts do not depend on output.csv, and stay if a later attempt writes none' "$bad" "$work/csv2.log"

before=$(find whole -type f -exec cksum {} + | sort)
verified 'the last steps are identical' 2 'identical: steps 46 to 50, 2 receipts' "$work/whole"
verified 'also from an earlier checkpoint, across epochs' 2 'identical: steps 21 to 50, 8 receipts' "$work/whole" verify.from=20
verified 'and from the start' 2 'identical: steps 1 to 8, 2 receipts' "$work/whole" verify.from=0 verify.to=11
[ "$(find whole -type f -exec cksum {} + | sort)" = "$before" ] && bad= || bad='files changed'
result 'verify writes nothing into the folder of the run' "$bad"
fails 1 'on another number of ranks it names the first difference and the ranks' 11 \
    'error: step [0-9]*: .* differs?: receipt [^ ]*, replay [^ ]*; [0-9]* of 10 values differ; the run had other conditions: .*ranks 2, here 1' \
    verify "$work/whole" verify.from=20
run 1 plateau $small output.tensorboard=off train.epochs=3 output.receipt=7 run.dir="$work/plateau" train.accumulate=2 \
    schedule.name=plateau schedule.patience=0 optim.lr=0.1 train.precision=fp16
verified 'a schedule that depends on evaluations, micro-batches and a loss scale are replayed' 1 \
    'identical: steps 1 to 75, 11 receipts' "$work/plateau" verify.from=0

cp -r whole edited
awk -F, -v OFS=, '$1 == 48 { $6 = "0123456789abcdef" } { print }' whole/receipt.csv >edited/receipt.csv
fails 2 'an edited hash is named with its unit and step' 11 \
    'error: step 48: weights of blocks.1 differ: receipt 0123456789abcdef, replay [0-9a-f]{16}; 1 of 10 values differ$' verify "$work/edited"
awk -F, -v OFS=, '$1 == 50 { $9 = "0123456789abcdef" } { print }' whole/receipt.csv >edited/receipt.csv
fails 2 'also one of the state' 11 'error: step 50: optimizer state or EMA of blocks.0 differs: receipt 0123456789abcdef' verify "$work/edited"
run 2 seed $steps run.seed=8 run.dir="$work/seed" train.epochs=1
cp seed/receipt.csv edited/receipt.csv
fails 2 'receipts of another seed differ' 11 'error: step 24: weights of stem differ: .*; 10 of 10 values differ' verify "$work/edited" verify.to=25
sed -n 1,6p whole/receipt.csv >edited/receipt.csv
fails 2 'the last rows are missing' 3 \
    'edited/receipt.csv ends at step 20, but the run has 50 steps \(result.json\): rows are missing; .*verify.to=20' verify "$work/edited"
mv edited/result.json .
verified 'if the receipts end before the newest checkpoint, an older one is taken' 2 'identical: steps 16 to 20, 2 receipts' "$work/edited"
fails 2 'a start after the last receipt' 2 'no receipt after step 25, the last one is of step 20; set a lower verify.from' \
    verify "$work/edited" verify.from=25
truncate -s 5000 edited/checkpoints/step-00000015.h5
verified 'a damaged checkpoint is ignored' 2 'identical: steps 11 to 20, 3 receipts' "$work/edited"
result 'with a warning' "$(has "$work/verify.log" 'ignored: .*step-00000015.h5 cannot be used')" "$work/verify.log"
sed -n 1,2p whole/receipt.csv >edited/receipt.csv
fails 2 'no checkpoint before the receipts' 4 \
    'edited/checkpoints has no valid checkpoint before the receipt of step 4; set verify.from=0' verify "$work/edited"
sed -n 1p whole/receipt.csv >edited/receipt.csv
fails 2 'no receipts' 2 'edited/receipt.csv has no receipts: train with output.receipt=N' verify "$work/edited"
fails 2 'no file of receipts' 2 'cannot read .*plain/receipt.csv: No such file.*: train with output.receipt=N' verify "$work/plain"
sed '$s/$/,0/' whole/receipt.csv >edited/receipt.csv
fails 2 'a damaged line of receipts' 3 'edited/receipt.csv:14: this is not a line of receipts' verify "$work/edited"
sed 's/blocks/block/g' whole/receipt.csv >edited/receipt.csv
fails 2 'receipts of another model' 3 'edited/receipt.csv: its columns are not the units of the model' verify "$work/edited"
sed 's/$/\r/' whole/receipt.csv >edited/receipt.csv
verified 'lines may end with CRLF' 2 'identical: steps 46 to 50, 2 receipts' "$work/edited"
head -c -9 whole/receipt.csv >edited/receipt.csv
verified 'an incomplete last line is ignored' 2 'identical: steps 46 to 48, 1 receipt' "$work/edited"
exact="$small train.exact=layout train.global_batch=32 train.grain=8 train.steps=6 output.tensorboard=off data.val=none"
run 1 exact $exact output.receipt=1 run.dir="$work/exact"
bad=$(ended)
[ "$(tail -n 6 exact/receipt.csv | grep -cE '(,[0-9a-f]{16}){8},[0-9a-f]{16}( [0-9a-f]{16}){3}$')" = 6 ] || bad="$bad; no hashes of 4 grains"
result 'with train.exact=layout receipts have hashes of grains' "$bad" exact/receipt.csv
verified 'they are the same on other ranks' 3 'identical: steps 1 to 6, 6 receipts' "$work/exact" verify.from=0 train.accumulate=2
cp -r exact inexact
sed '6s/ [0-9a-f]* \([0-9a-f]*\)$/ 0123456789abcdef \1/' exact/receipt.csv >inexact/receipt.csv
fails 2 'an edited hash of a grain' 11 \
    'error: step 5: the hash of grain 2 differs: receipt 0123456789abcdef, replay [0-9a-f]{16}; all other values are equal' \
    verify "$work/inexact" verify.from=0
sed '6s/ [0-9a-f]*$//' exact/receipt.csv >inexact/receipt.csv
fails 2 'a missing hash of a grain' 3 'receipt.csv: step 5 has another number of grains than the replay; the file is damaged' \
    verify "$work/inexact" verify.from=0
sed '$s/^6,/7,/' exact/receipt.csv >inexact/receipt.csv
fails 2 'a receipt after the end of the run' 3 'step 7 is after the end of the run, which has 6 steps; set verify.to=6' \
    verify "$work/inexact" verify.from=0
fault="train.check_every=5 train.check_action=continue debug.flip_rank=1"
fails 2 'a fault in a forward pass is named with its step, unit and grain' 11 \
    'error: step 5: weights of stem differ: receipt [0-9a-f]{16}, replay [0-9a-f]{16}; first different grain [23]; 10 of 10' \
    verify "$work/exact" verify.from=0 $fault debug.flip=activation
fails 2 'a fault in a gradient without a grain' 11 \
    'error: step 5: weights of [^ ]+ differ: receipt [0-9a-f]{16}, replay [0-9a-f]{16}; [0-9]+ of 10' \
    verify "$work/exact" verify.from=0 $fault debug.flip=gradient
sed 's/,[^,]*$//' exact/receipt.csv >inexact/receipt.csv
verified 'receipts of an older version, without hashes of grains' 2 'identical: steps 1 to 6, 6 receipts' "$work/inexact" verify.from=0
run 1 older $exact train.steps=7 output.receipt=1 run.dir="$work/inexact"
bad=$(tail -n 1 inexact/receipt.csv | grep -qE ',[0-9a-f]{16}( [0-9a-f]{16}){3}$' || echo 'no hashes')
result 'a later attempt adds the column' "$bad" "$work/older.log"
verified 'rows without hashes of grains are valid' 1 'identical: steps 1 to 7, 7 receipts' "$work/inexact" verify.from=0
sed '$s/.$/g/' exact/receipt.csv >inexact/receipt.csv
fails 1 'a damaged hash of a grain' 3 'inexact/receipt.csv:7: this is not a line of receipts' verify "$work/inexact"

fails 1 'combinations with options of the run are checked' 2 'optim.nesterov=on does not apply with optim.name=' verify "$work/whole" \
    optim.nesterov=on
fails 1 'verify without a run' 2 'verify needs one run' verify
