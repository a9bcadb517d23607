#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# All commands: the files that they write. Each invalid call prints one error line with reason and place, returns the exit status
# of its kind and creates no run folder.
. "$TEST_SOURCE/test/support/program.sh"

# json KEY FILE: the number after "KEY":
json() {
    sed -n "s/.*\"$1\": *\\(-\\{0,1\\}[0-9.e-]*\\).*/\\1/p" "$2" | head -1
}

run 3 train $small train.epochs=1 run.dir="$work/run"
result 'train on three ranks' "$(ended)" "$work/train.log"
bad=
for file in deck.ini metrics.csv result.json weights.safetensors checkpoints/last.h5 checkpoints/best.h5; do
    [ -s "$work/run/$file" ] || bad="$bad $file"
done
ls "$work"/run/events.out.tfevents* >/dev/null 2>&1 || bad="$bad events"
result 'a run leaves its files' "${bad:+missing:$bad}" "$work/train.log"
run 1 again -v $small train.epochs=1 run.dir="$work/second" "$work/run/deck.ini" run.dir="$work/second" -v
result 'the resolved deck is a deck' "$(ended)" "$work/again.log"
result 'with -v the console has all lines' "$(has "$work/again.log" '^memory of rank 0')" "$work/again.log"

# same_loss NAME: the evaluation ended with the loss of the training.
loss=$(column "$work/run/metrics.csv" val loss | sed -n '$s/.* //p')
same_loss() {
    bad=$(ended; json loss "$work/$1.log" | awk -v a="$loss" '{ d = a - $1; if (d < 0) d = -d; if (!(d < 2e-5 * a)) print a, $1; n++ }
        END { if (n != 1) print "no loss" }')
    result "$2 gives the loss of training" "$bad" "$work/$1.log"
}
for ranks in 1 4; do
    run $ranks eval eval "$work/run/checkpoints/last.h5" predict.split=val
    same_loss eval "eval on $ranks ranks"
done
run 1 weights eval "$work/run/weights.safetensors" $small predict.split=val
same_loss weights 'eval of the weights'
cp "$work/run/weights.safetensors" "$work/spoilt.safetensors"
printf '\000\000\300\177' | dd of="$work/spoilt.safetensors" bs=1 conv=notrunc \
    seek=$(($(stat -c %s "$work/spoilt.safetensors") - 4)) 2>/dev/null
for command in eval predict; do
    fails 1 "NaN in the weights of $command" 7 'NaN or infinity' $command "$work/spoilt.safetensors" $small predict.split=val
    bad=$(has "$run_log" 'warning: .*spoilt.safetensors.*NaN or infinity'; grep '^[0-9]*,\|"loss"' "$run_log")
    result 'with a warning and without a result' "$bad" "$run_log"
done

for ranks in 1 3; do
    run $ranks predict predict "$work/run/checkpoints/last.h5" predict.output="$work/p$ranks.csv"
done
result 'predict: a line for each sample' \
    "$([ "$(wc -l <"$work/p1.csv")" = 151 ] || wc -l "$work/p1.csv")" "$work/predict.log"
awk -F, 'NR > 1 { print NR, $1; print NR, $3 }' "$work/p1.csv" >"$work/a"
awk -F, 'NR > 1 { print NR, $1; print NR, $3 }' "$work/p3.csv" >"$work/b"
result 'predict: the same on 3 ranks' "$(differ "$work/a" "$work/b" 0)"
run 1 predict predict "$work/run/checkpoints/last.h5" predict.output="$work/p.json"
bad=$(sed -n 's/^{"record":[0-9]*,"label":[0-9],"predicted":\([0-9]\),"class":"[a-z]*","probabilities":\[\([0-9.e,-]*\)\]}$/\1,\2/p' \
    "$work/p.json" | awk -F, '{ sum = 0; for (i = 2; i <= NF; i++) { sum += $i; if ($i > $($1 + 2)) print "line " NR ": not the largest" }
        if (NF != 11 || !(sum > 0.9999 && sum < 1.0001)) print "line " NR ": " NF - 1 " probabilities, sum " sum }
        END { if (NR != 150) print NR " lines" }')
result 'predict: JSON lines' "$bad" "$work/p.json"

# Processes of a launcher that MPI does not know would each train a model of their own. All launchers: test/base/test_basics.c.
PMI_RANK=1 PMI_SIZE=2 fails 1 'several processes without their MPI' 2 PMI_RANK $small run.dir="$work/launched"
result 'start no run' "$(ls -d launched 2>/dev/null)"
run_log=$work/cleared.log
timeout $time_limit $MPIRUN -np 2 env -i "$vittrain" $small run.dir="$work/cleared" >"$run_log" 2>&1
status=$?
result 'several processes without their environment' "$(ended 2; has "$run_log" 'child of [a-z_]*')" "$run_log"
SLURM_JOB_ID=3 SLURM_PROCID=0 SLURM_NTASKS=8 run 1 launched plan
result 'a batch script of 8 tasks is a single process' "$(ended)" "$work/launched.log"

mkdir "$work/cut" "$work/piped"
for folder in cut piped; do cp "$TEST_BUILD"/data/cifar-10-sample/*.bin "$work/$folder"; done
truncate -s -100 "$work/cut/data_batch_1.bin"
head -c 1000 "$work/run/weights.safetensors" >"$work/cut.safetensors"
cp "$work/run/checkpoints/last.h5" "$work/flipped.h5"
# Between vectors lie gaps of some kilobytes, whose bytes nobody misses.
for place in 104000 112000 120000; do
    printf '\377' | dd of="$work/flipped.h5" bs=1 seek=$place conv=notrunc 2>/dev/null
done
printf '[train] epochs = 3\n' >"$work/line.ini"
# A pipe instead of a file is an error; the program does not wait for its content.
rm "$work/piped/test_batch.bin"
mkfifo "$work/pipe.ini" "$work/pipe.h5" "$work/pipe.safetensors" "$work/piped/test_batch.bin"
errors 3<<END
2|evla.*eval|evla
2|eval|eval
2|train.epoch.*train.epochs|train.epoch=3
2|train.batch|train.batch=many
2|output.monitor=0.05|output.monitor=0.05
2|vit_base_patch32_224|model.name=vit_base_patch32_24
2|model.name=vit_tiny; .*vit_tiny_patch16_224, vit_tiny_patch16_384$|model.name=vit_tiny
2|bn1|model.name=cnn_b data.format=synthetic optim.freeze=bn1.bias
2|run.backend=cpu|$small run.backend=cuda
2|none.ini|none.ini
2|line.ini:1|$work/line.ini
2|pipe.ini|$work/pipe.ini
3|$work/none|data.root=$work/none
3|data_batch_1.bin|data.root=$work/cut
3|test_batch.bin|data.root=$work/piped
4|flipped.h5|eval $work/flipped.h5 predict.split=val
4|no.h5|eval $work/no.h5
4|pipe.h5|eval $work/pipe.h5
4|pipe.safetensors|eval $work/pipe.safetensors
5|no/p.csv|predict $work/second/checkpoints/last.h5 predict.output=$work/no/p.csv
5|/proc/none|$small run.dir=/proc/none
END
errors $small run.dir="$work/unwritten" 3<<END
2|model.channels|model.channels=1
2|model.classes=5|model.classes=5
2|model.patch=2|augment.resize=224 model.patch=2
2|blocks.0.norm1,|optim.freeze=blocks.0.norm1.weight
4|none.safetensors|model.init=$work/none.safetensors
4|cut.safetensors|model.init=$work/cut.safetensors
4|blocks.2.norm1.weight .*model.name=vit_cifar|model.depth=3 model.init=$work/run/weights.safetensors
4|head.weight|model.classes=12 model.init=$work/run/checkpoints/last.h5
6|no memory|model.classes=500000 debug.batches=1 run.dir=$work/classes
END
fails 3 'a missing folder is one error of several ranks' 3 "$work/none" data.root="$work/none"
fails 3 'an infinite learning rate stops at NaN' 7 'NaN or infinity' $small optim.lr=1e30 optim.name=sgd run.dir="$work/nan"
fails 1 'a CNN stops at NaN, too' 7 'NaN or infinity' model.name=cnn_a data.format=cifar10 debug.fraction=0.3 train.precision=fp32 \
    run.threads=1 optim.lr=1e30 optim.name=sgd output.tensorboard=off run.dir="$work/cnn_nan"
# pair NAME PATTERN COMMAND COMMAND: one line of error if the two ranks run these commands.
pair() {
    run_pair failing "$3" "$4"
    result "$1" "$(failed_otherwise 2 "$2" | tr '\n' ' ')" "$run_log"
}
mixed="'$vittrain' $small run.dir='$work/mixed'"
pair 'ranks with different options' 'rank 1 on .*train.epochs=7' "$mixed" "$mixed train.epochs=7"
pair 'ranks with different commands' 'rank 1 on .*"train".* rank 0 "plan"' "'$vittrain' plan" "'$vittrain'"
if grep -q 'device: .* baseline' "$work/train.log"; then other=amx-emulated; else other=baseline; fi
pair 'ranks with different instructions' VITTRAIN_CPU "$mixed" "env VITTRAIN_CPU=$other $mixed"
objcopy --dump-section .note.gnu.build-id=note "$vittrain" /dev/null && printf xxxxxxxx | dd of=note bs=1 seek=16 conv=notrunc 2>/dev/null
objcopy --update-section .note.gnu.build-id=note "$vittrain" "$work/other-build"
pair 'ranks with different builds' 'rank 1 on .*builds.* build ID 78' "$mixed" "'$work/other-build' train.epoch=3"
objcopy --remove-section .note.gnu.build-id "$vittrain" "$work/other-build"
pair 'a build without an ID' 'rank 1 on .*builds.* build ID 00000000' "$mixed" "'$work/other-build' train.epoch=3"

# A command either writes its output completely, or reports an error and leaves the file unchanged.
best=$work/second/checkpoints/best.h5
cp "$work/p1.csv" "$work/kept.csv"
fails 3 'predictions on a full device' 5 'rank 0 on .*predict.output=/dev/full' predict "$best" predict.output=/dev/full
(ulimit -f 4 && run 1 limit predict "$best" predict.output="$work/kept.csv" && exit $status)
status=$? run_log=$work/limit.log
result 'predictions beyond the limit on files' "$(failed_otherwise 5 kept.csv)" "$run_log"
bad=$(cmp "$work/p1.csv" "$work/kept.csv" 2>&1)$(ls "$work"/kept.csv.part 2>/dev/null)
result 'predictions that could not be written leave the older ones' "$bad"
for command in "eval $best" "predict $best" --help; do
    run_log=$work/full.log
    "$vittrain" $command >/dev/full 2>"$run_log" </dev/null
    status=$?
    result "standard output is full: ${command%% *}" "$(failed_otherwise 5 .)" "$run_log"
done
"$vittrain" $small train.steps=2 run.dir="$work/closed" <&- >&- 2>&-
bad="$([ $? -eq 0 ] || echo "status $?")$(grep -L '^\[run\]' "$work/closed/deck.ini")"
bad="$bad$(cmp -n 6 "$work/run/metrics.csv" "$work/closed/metrics.csv" 2>&1)"
result 'a run without standard streams' "$bad"

run 1 profile $small train.steps=2 train.precision=bf16 debug.profile=on run.dir="$work/profile"
bad=
for operation in copy zero convert sum_squares update linear_backward; do
    grep -qE "^ +$operation +[0-9.]+ s " "$work/profile.log" || bad="$bad no $operation;"
done
grep -q 'warning: debug.profile: .*train at least 3 steps' "$work/profile.log" || bad="$bad no warning"
result 'a profile has a line for each operation that ran, and a warning for two steps' "$bad" "$work/profile.log"

ONEDNN_MAX_CPU_ISA=AVX2 run 1 limited $small train.steps=2 train.precision=bf16 run.dir="$work/limited"
result 'bf16 where oneDNN may not use its bf16 instructions' "$(ended)" "$run_log"

# A run that cannot be resumed is unchanged.
cp "$work/second/deck.ini" "$work/second.ini"
fails 1 'resuming with another model' 2 'model.depth' $small train.epochs=2 model.depth=3 run.dir="$work/second"
result 'its deck is as it was' "$(cmp "$work/second.ini" "$work/second/deck.ini" 2>&1)"
run 1 further $small train.epochs=3 run.dir="$work/second"
first=$(ls "$work"/second/checkpoints/step-*.h5 | head -1)
fails 1 'going back in the folder of a run' 2 'step 75.*run.dir' $small train.epochs=3 \
    run.dir="$work/second" checkpoint.resume="$first"
run 1 aside $small train.epochs=2 run.dir="$work/aside" checkpoint.resume="$first"
bad=$(ended)
[ "$(grep -c ',epoch,' "$work/second/metrics.csv")" = 3 ] || bad="$bad; metrics.csv was cut"
result 'but aside of it' "$bad" "$work/aside.log"
bad=$(ls -d "$work"/runs/* "$work"/unwritten/checkpoints/step* 2>/dev/null | grep -v '/runs/logbook$')
result 'nothing was begun before a mistake was found' "$bad"
