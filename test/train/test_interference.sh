#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# system
# What others do to a running job: a rank is killed, a signal arrives, files are damaged, removed or moved while they are in use.
# A killed run resumes bit for bit, with the receipts of an undisturbed run. And the warning about waiting for data.
. "$TEST_SOURCE/test/support/program.sh"

# same NAME RUN REFERENCE: the newest run, RUN, succeeded with the weights and receipts of REFERENCE, and was resumed.
same() {
    bad=$(ended; has "$work/$2.log" 'resuming from'; cmp "$work/$3/weights.safetensors" "$work/$2/weights.safetensors" 2>&1
        cmp "$work/$3/receipt.csv" "$work/$2/receipt.csv" 2>&1)
    result "$1" "$bad" "$work/$2.log"
}

# paused_run NAME PHASE:STEP OPTION...: start a run on one rank and wait until it is paused there.
paused_run() {
    run_log=$work/$1.log
    run_ranks=1 # for failed_otherwise
    go=$work/$1.go place=$2
    shift 2
    timeout $time_limit "$vittrain" "$@" debug.pause="$place:$go" >"$run_log" 2>&1 </dev/null &
    wait_job=$!
    paused 0 "$go" >/dev/null
}

# paused_end: let the paused run continue, and wait for its end.
paused_end() {
    touch "$go"
    wait $wait_job
    status=$?
}

# ---- a rank is killed after the first checkpoint
for background in yes no; do
    words="$small optim.ema=0.9 schedule.name=onecycle schedule.per=step output.tensorboard=off output.receipt=4 train.epochs=6 \
checkpoint.background=$background checkpoint.every=0.1 checkpoint.keep=50"
    run 2 whole $words run.dir="$work/whole"
    timeout $time_limit $MPIRUN -np 2 "$vittrain" run.dir="$work/killed" $words >"$work/killed.log" 2>&1 </dev/null &
    wait_job=$!
    wait_until test -e "$work/killed/checkpoints/last.h5"
    kill -9 "$(processes "^$vittrain .*run.dir=$work/killed " | tail -n 1)"
    killed_job $wait_job "^$vittrain .*run.dir=$work/killed "
    status=$?
    bad=$(reports_kill $status || echo 'exit status 0;')
    [ $status -ne 124 ] || bad="$bad a timeout;"
    ! finished "$work/killed" || bad="$bad it had ended before"
    result "a killed rank ends the job, checkpoint.background=$background" "$bad" "$work/killed.log"
    run 2 killed $words run.dir="$work/killed"
    same 'the run resumes bit for bit' killed whole
    rm -r "$work/whole" "$work/killed"
done

# ---- a signal ends a range test
"$vittrain" find lr $small find.steps=100000 find.stop=0 find.output=stopped >stopped.log 2>&1 &
wait_job=$!
wait_until test -s stopped.csv # its header; the rows are buffered
sleep 1
kill -USR1 $wait_job
wait $wait_job
status=$?
bad="$(ended)$(has stopped.log 'by a signal')"
[ "$(wc -l <stopped.csv)" -gt 1 ] || bad="$bad no curve"
result 'a signal ends `find lr`, with what there is' "$bad" stopped.log

# ---- files change
best="$small debug.overfit=4 optim.lr=1e-2 checkpoint.monitor=loss train.early_stop=1 output.tensorboard=off train.epochs=9 run.dir=$work/gone"
paused_run gone weights_write:24 $best
rm "$work/gone/checkpoints/step-00000020.h5"
paused_end
bad=$(failed_otherwise 4 'the best weights, of step 20, are missing: .*/step-00000020.h5 does not exist')
run 1 gone $best
bad="$bad$(ended)$(has "$run_log" 'warning: the checkpoint of the best evaluation is missing: .*step-00000020.h5')"
result 'best weights that are missing are an error, and a warning if the run resumes' \
    "$bad$(cmp "$work/gone/weights.safetensors" "$work/gone/best.safetensors" 2>&1)" "$run_log"

# last.h5 of a running job changes between two accesses to it.
mkdir "$work/moves"
run 1 still $small train.epochs=1 run.dir="$work/still"
cp "$work/still/checkpoints/best.h5" "$work/moves/one.h5"
ln -s one.h5 "$work/moves/last.h5"
run 1 still eval "$work/moves/one.h5"
paused_run moves model_open:0 eval "$work/moves/last.h5"
rm "$work/moves/last.h5"
paused_end
bad=$(ended; grep -o 'loss [0-9.]*' "$work/still.log" >"$work/expected"; grep -o 'loss [0-9.]*' "$work/moves.log" | diff "$work/expected" -)
result 'eval follows the link to a checkpoint once' "$bad" "$work/moves.log"

for split in train val; do
    for class in bird cat dog; do mkdir -p "$work/tree/$split/$class"; done
done
"$TEST_BUILD/test/data/test_image_folder" --make "$work/tree" 90 || exit 1
folder="model.name=vit_cifar model.dim=32 model.depth=2 model.heads=2 model.patch=8 model.image=24 data.format=imagefolder \
data.root=$work/tree train.precision=fp32 train.global_batch=20 train.epochs=2 output.log_every=1 output.tensorboard=off run.seed=7 run.threads=1"
paused_run later folder:0 $folder run.dir="$work/later" data.skip_broken=on
image=$work/tree/train/cat/001.jpg
cp "$image" "$work/whole.jpg" && head -c 700 "$work/whole.jpg" >"$image"
paused_end
result 'a file that is damaged later ends the run' "$(ended 3; has "$work/later.log" \
    '/001.jpg: is truncated')" "$work/later.log"

# ---- the loader is slower than the training
run 1 waits $folder run.dir="$work/waits" data.format=synthetic data.root= data.image=1500 data.samples=160 data.val=none \
    augment.random_resized_crop=on
[ "$(grep -c 'of this epoch was waiting for data: raise data.workers=1' "$work/waits.log")" = 1 ] && bad= || bad='not once'
result 'a wait for data is reported once' "$bad" "$work/waits.log"
