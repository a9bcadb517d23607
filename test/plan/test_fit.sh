#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# system
# A run that does not fit into memory ends before it starts, with correct advice; trials find the largest batch. Uses real
# limits and real memory, so it does not run with sanitizers.
. "$TEST_SOURCE/test/support/program.sh"

if grep -q '^SANITIZER_CFLAGS = .' "$TEST_BUILD/Makefile"; then
    skip_all 'sanitizers take memory of their own'
fi

# A run that cannot fit ends before it starts, with correct advice that is the same at each start.
tight="$small train.global_batch=0 train.steps=1 plan.memory=64MiB"
fails 2 'too large a batch' 6 'a rank needs [0-9.]+ MiB for 9000 images .* plan.memory has [0-9.]+ MiB .* would fit: train.batch=[0-9]' $tight \
    train.batch=9000 run.dir="$work/tight"
batch=$(sed -n 's/.*would fit: train.batch=\([0-9]*\).*/\1/p' "$work/failing.log")
run 2 fits train $tight train.batch=$batch run.dir="$work/tight"
result "the batch that would fit does, train.batch=$batch" "$(ended)" fits.log
for start in 1 2; do
    fails 2 "and one image more does not, start $start" 6 "train.batch=$batch[^0-9]" $tight \
        train.batch=$((batch + 1)) run.dir="$work/larger"
done
fails 2 'more than a node has' 6 'and [^ ]+ has [0-9.]+ MiB for it besides a reserve of 5 %' train.batch=1000000 \
    model.name=vit_base_patch32_224 run.dir="$work/larger"
fails 2 'the global batch, where a deck has that' 6 'would fit: train.global_batch=[0-9]*[02468],' $tight \
    train.global_batch=18000 run.dir="$work/larger"

heavy="$small train.steps=1 model.dim=320 model.heads=5 model.depth=4"
run 2 heavy plan $heavy
memory=$(awk '/sent shard/ { table = 1; next } table && ($1 == "ddp" || $1 == "zero2") { sum += $8 }
    END { print int(sum / 2) "MiB" }' "$work/heavy.log")
fails 2 'too large a model for ddp' 6 'would fit: .*mesh.strategy=zero' $heavy plan.memory=$memory run.dir="$work/ddp-heavy"
strategy=$(sed -n 's/.*mesh.strategy=\(zero[12]\).*/\1/p' "$work/failing.log")
run 2 train $heavy plan.memory=$memory mesh.strategy=$strategy run.dir="$work/heavy"
result "the strategy that would fit does, $strategy with $memory" "$(ended)" train.log
fails 2 'no batch at all' 6 'would fit: more ranks' $heavy plan.memory=10MiB run.dir="$work/none"
bad=$(ls -d "$work"/larger "$work"/ddp-heavy "$work"/none 2>/dev/null)
result 'no run folder was made before' "$bad"
# Trials: the batch that is found ran, one more did not, as the plan predicted. The workspace, of which small trials
# touch only a part, is a larger share of the memory than for models of real size.
run 2 find find batch $small train.global_batch=0 mesh.strategy=fsdp plan.memory=170MiB
awk '$2 == "yes" || $2 == "no" { runs[$1] = $2 }
    /^largest batch/ { split($5, word, "="); batch = word[2] + 0 }
    /^the plan predicts/ { split($4, word, "="); planned = word[2]; sub("%.*", "", $NF); gap = $(NF - 1) + 0; told = 1 }
    END {
        if (runs[batch] != "yes" || runs[batch + 1] != "no") print "batch " batch " is not the largest"
        if (!(planned > 0.8 * batch && planned < 1.25 * batch)) print "plan " planned
        if (!told || gap > 10 || gap < -25) print "measured " gap " %"
    }' "$work/find.log" >"$work/problems"
[ $status -eq 0 ] || echo "exit status $status" >>"$work/problems"
result 'find batch: the largest that runs, as planned' "$(tr '\n' ';' <"$work/problems")" "$work/find.log"
errors find 3<<END
6|4.0 MiB|batch $small plan.memory=4MiB
2|find batch|
2|model.pad=none: model.patch=5|batch $small model.patch=5 model.pad=none
END

# Arrays of each task, and with a validation split of their own.
mkdir splits
"$TEST_BUILD/test/arrays/test_arrays" --make "$work/train.h5"
ln -s ../train.h5 splits/train.h5
ln -s ../train.h5 splits/val.h5
arrays="data.format=arrays data.val=0.2 model.name=vit_cifar model.dim=32 model.depth=1 model.heads=2 model.patch=1 \
model.image=5 model.image_width=4 train.precision=fp32 run.threads=1 plan.memory=24MiB"
for task in 'classes data.x=/chw data.y=/label data.shuffle=chunks' 'labels data.x=u0 data.y=marks' \
    'pixels data.x=u0 data.y=map model.head=dense model.classes=3 train.ignore_label=255' \
    'planes data.x=u0,u2 data.y=u0@+2,u1 data.task=regression model.head=dense' \
    'windows data.x=u0 data.y=u1 data.task=regression model.head=dense model.image=3 model.image_width=2 augment.crop=random' \
    "numbers data.x=u0 data.y=number data.task=regression data.root=$work/splits data.val=val"; do
    run 1 arrays find batch $arrays data.root="$work/train.h5" ${task#* }
    result "find batch: arrays, ${task%% *}" "$(ended; has arrays.log '^largest batch that runs: train.batch=')" arrays.log
done

# limited NAME WORD...: run one rank with a limit on its address space.
limited() {
    limited_log=$work/$1.log
    shift
    (
        ulimit -v 600000
        OMP_NUM_THREADS=1 timeout $time_limit "$vittrain" "$@" >"$limited_log" 2>&1 </dev/null
    )
    status=$?
}
limited refused $small train.global_batch=0 train.batch=30000 run.dir="$work/none"
result 'memory that the system refuses' "$(ended 6; has refused.log 'error: .* memory')" refused.log
limited trials find batch $small train.global_batch=0
result 'find batch where the system refuses memory' "$(ended; has trials.log ' no +no [0-9.]+ MiB' '^largest batch that runs')" trials.log
result 'find leaves no run folder behind' "$(ls -d "$work"/runs/* 2>/dev/null | grep -v /logbook$)"

# Memory outside of the arena is planned: of measured tiles, and of the generated code of convolutions.
while read -r name words <&3; do
    VITTRAIN_CPU=$(echo "$name" | grep amx) run 1 planned $words run.dir="$work/$name"
    result "no more memory than planned, $name" "$(ended; has "$work/$name/train.log" 'memory of rank 0: planned .* resident at most .*\(-')" planned.log
done 3<<END
amx-emulated $small train.precision=bf16 train.steps=1
convolutions model.name=resnet50 model.classes=10 data.format=synthetic data.image=33 data.samples=19 data.val=0.3 train.global_batch=8 train.precision=bf16 train.epochs=1
END
