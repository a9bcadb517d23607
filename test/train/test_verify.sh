#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# Receipts of steps, and `vittrain verify`, which replays the steps and compares. With train.exact=layout one rank replays the run
# of three.
. "$TEST_SOURCE/test/support/program.sh"

# 50 steps with 3 grains, checkpoints after steps 5, 10, ...
steps="$small train.exact=layout train.grain=8 optim.ema=0.9 output.tensorboard=off train.epochs=2 checkpoint.every=0.2 \
checkpoint.keep=50 output.receipt=4"

# verified NAME LINE WORD...: verify succeeds on one rank, and its last line matches LINE.
verified() {
    title=$1 line=$2
    shift 2
    run 1 verify verify "$@"
    result "$title" "$(ended; has verify.log "^identical: $line\$")" verify.log
}

# cells FILE: the column of steps, on one line.
cells() { cut -d, -f1 "$1" | tr '\n' ' '; }

run 3 whole $steps run.dir="$work/whole"
bad=$(ended; has whole/receipt.csv '^step,loss,grad_norm,stem,blocks.0,blocks.1,head,stem.state,blocks.0.state,blocks.1.state,head.state,grains$')
[ "$(cells whole/receipt.csv)" = 'step 4 8 12 16 20 24 28 32 36 40 44 48 50 ' ] || bad="$bad $(cells whole/receipt.csv)"
[ "$(grep -cE '(,[0-9a-f]{16}){8},[0-9a-f]{16}( [0-9a-f]{16}){2}$' whole/receipt.csv)" = 13 ] || bad="$bad no hashes of 3 grains"
result 'a run has receipts every output.receipt steps and at its end' "$bad" whole.log
awk -F, -v OFS=, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
    $at["split"] == "train" { printf "%d %.6f %.6f\n", $at["step"], $at["loss"], $at["grad_norm"] }' whole/metrics.csv >rows
awk -F, 'NR > 1 { printf "%d %.6f %.6f\n", $1, $2, $3 }' whole/receipt.csv | grep -vxFf rows >unlike
result 'their losses and norms are those of metrics.csv' "$(head -n 1 unlike)" unlike
run 1 plain $steps output.receipt=0 run.dir="$work/plain"
result 'receipts do not change the training' "$(cmp whole/weights.safetensors plain/weights.safetensors 2>&1; ls plain/receipt.csv 2>/dev/null)" plain.log
interrupted whole part 25
run 1 part $steps run.dir="$work/part"
result 'a run that was interrupted and resumed has the same receipts' "$(ended; cmp whole/receipt.csv part/receipt.csv 2>&1)" part.log
run 1 csv $steps run.dir="$work/csv" train.epochs=1
run 1 csv2 $steps run.dir="$work/csv" train.epochs=2 output.receipt=0
result 'receipts stay if a later attempt writes none' \
    "$(ended; cells csv/receipt.csv | grep -vx 'step 4 8 12 16 20 24 25 ')" csv2.log

before=$(find whole -type f -exec cksum {} + | sort)
verified 'the last steps are identical' 'steps 46 to 50, 2 receipts' whole
verified 'also from an earlier checkpoint, across epochs' 'steps 21 to 50, 8 receipts' whole verify.from=20
verified 'and from the start, in micro-batches' 'steps 1 to 8, 2 receipts' whole verify.from=0 verify.to=11 train.accumulate=2
result 'verify writes nothing into the folder of the run' "$([ "$(find whole -type f -exec cksum {} + | sort)" = "$before" ] || echo 'files changed')"
run 1 plateau $small output.tensorboard=off train.epochs=3 output.receipt=7 run.dir="$work/plateau" train.accumulate=2 \
    schedule.name=plateau schedule.patience=0 optim.lr=0.1 train.precision=fp16
verified 'a schedule that depends on evaluations, micro-batches and a loss scale are replayed' 'steps 1 to 75, 11 receipts' \
    plateau verify.from=0
fails 3 'without train.exact another number of ranks differs, and is named' 11 \
    'step [0-9]*: .*receipt [^ ]*, replay [^ ]*; .* of 10 values differ.*ranks 1, here 3' verify plateau verify.from=0 verify.to=21

# Edited receipts: EXIT CODE|PATTERN|OPTIONS OF VERIFY|COMMAND THAT EDITS, or PATTERN of the success.
mkdir edited
cp -r whole/* edited
other=0123456789abcdef
# edit COLUMN STEP: print the receipts with another hash.
edit() { awk -F, -v OFS=, -v at="$1" -v step="$2" -v other=$other '$1 == step { $at = other } { print }' whole/receipt.csv; }
while IFS='|' read -r code pattern options command <&3; do
    eval "$command" >edited/receipt.csv
    if [ "$code" = 0 ]; then
        verified "$command" "$pattern" edited $options
    else
        fails 1 "$command" "$code" "$pattern" verify edited $options
    fi
done 3<<'END'
11|step 48: blocks.1: receipt 0123456789abcdef, replay .*; 1 of 10||edit 6 48
11|step 50: blocks.0.state: receipt 0123456789abcdef||edit 9 50
11|step 48: grain 1: receipt 0123456789abcdef||sed "/^48,/s/ [0-9a-f]* / $other /" whole/receipt.csv
11|step 48: grain 2: receipt|verify.to=48|sed '/^48,/s/ [0-9a-f]*$//' whole/receipt.csv
11|step 48: grain 3: receipt|verify.to=48|sed '/^48,/s/$/ /' whole/receipt.csv
3|receipt.csv ends at step 20.*verify.to=20||sed -n 1,6p whole/receipt.csv
3|step 51 .*verify.to=50||sed '$s/^50,/51,/' whole/receipt.csv
3|receipt.csv:14||sed '$s/.$/g/' whole/receipt.csv
3|receipt.csv:14||sed '$s/$/,0/' whole/receipt.csv
3|receipt.csv: .*units||sed 's/blocks/block/g' whole/receipt.csv
2|receipt.csv .*output.receipt=N||sed -n 1p whole/receipt.csv
0|steps 46 to 48, 1 receipt|verify.to=48|head -c -9 whole/receipt.csv
END
sed -n 1,6p whole/receipt.csv >edited/receipt.csv
mv edited/result.json .
verified 'if the receipts end before the newest checkpoint, an older one is taken' 'steps 16 to 20, 2 receipts' edited
fails 1 'a start after the last receipt' 2 'step 25.*verify.from' verify edited verify.from=25
truncate -s 5000 edited/checkpoints/step-00000015.h5
verified 'a damaged checkpoint is ignored' 'steps 11 to 20, 3 receipts' edited
result 'with a warning' "$(has verify.log 'ignored: .*step-00000015.h5')" verify.log
sed -n 1,2p whole/receipt.csv >edited/receipt.csv
fails 1 'no checkpoint before the receipts' 4 'edited/checkpoints .*verify.from=0' verify edited

run 1 seed $steps run.seed=8 run.dir="$work/seed" train.epochs=1
cp seed/receipt.csv edited/receipt.csv
fails 1 'receipts of another seed differ' 11 'step 4: loss: .*; 10 of 10' verify edited verify.from=0 verify.to=25
fault="verify whole verify.from=0 verify.to=8 train.check_every=4 train.check_action=continue debug.flip_rank=1"
fails 3 'a fault in a forward pass is named with its step and grain' 11 'step 4: loss: .*; 10 of 10 values differ; first different grain [0-9]' \
    $fault debug.flip=activation
fails 3 'a fault in a gradient without a grain' 11 'step 4: grad_norm: .*; [0-9]+ of 10 values differ$' $fault debug.flip=gradient

errors verify 3<<END
2|plain/receipt.csv|plain
2|optim.nesterov=on|whole optim.nesterov=on
2|verify|
END
