#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# system
# output.upload with a real rclone: the remote is a folder. A run is copied, also after a failure, and a job that is
# restarted without its folder continues from the copy.
. "$TEST_SOURCE/test/support/program.sh"
needs rclone bash
RCLONE_CONFIG=/dev/null RCLONE_CONFIG_DISK_TYPE=local
export RCLONE_CONFIG RCLONE_CONFIG_DISK_TYPE
runs="$small train.epochs=1 debug.batches=12 checkpoint.every=0.25 output.logbook="

# differs FOLDER COPY: list the files of a run's folder that the copy lacks. The last lines of the log are newer.
differs() {
    for file in "$1"/*.* "$1/checkpoints/$(readlink "$1/checkpoints/last.h5")" "$1/checkpoints/$(readlink "$1/checkpoints/best.h5")"; do
        copy=$2${file#"$1"}
        case $file in
        */train.log) head -c "$(wc -c <"$copy")" "$file" | cmp -s - "$copy" || echo "$file;" ;;
        *) cmp -s "$file" "$copy" || echo "$file;" ;;
        esac
    done
}

run 1 whole $runs run.dir="$work/whole" output.upload="disk:$work/remote/"
bad="$(ended)$(has "$run_log" 'all of the run is in disk:')$(differs "$work/whole" "$work/remote/whole")"
result 'a run is copied to the folder of its name' "$bad" "$run_log"
steps=$(ls "$work/remote/whole/checkpoints" | grep -c step-)
result 'without older checkpoints' "$([ "$steps" -le 2 ] || echo "$steps checkpoints")"

run 1 wrong $runs run.dir="$work/wrong" output.upload="disk:$work/remote/failed" optim.lr=1e38 optim.name=sgd
bad="$(ended 7)$(has "$run_log" 'all of the run is in disk:')"
cmp -s "$work/wrong/result.json" "$work/remote/failed/result.json" || bad="$bad other result.json"
result 'so is a run that fails' "$bad" "$run_log"

for word in output.upload=bucket/x checkpoint.resume=disk:x; do
    fails 2 "an error: $word" 2 "${word%%=*}" $runs run.dir="$work/never" $word
done
fails 2 'an error: model.init=disk:x' 4 'model.init: disk:x is a remote path.*rclone copy' $runs run.dir="$work/never" model.init=disk:x

# A job of jobs/common.sh that is restarted on another disk. No launcher: one rank.
mkdir "$work/jobs"
printf '[output]\nupload = disk:%s/remote/nothing\n' "$work" >"$work/deck.ini"
job() {
    SLURM_RESTART_COUNT=$1 SLURM_NTASKS_PER_NODE=1 SLURM_JOB_NUM_NODES=1 SLURM_CPUS_ON_NODE=1 SLURM_JOB_ID=7 \
        SLURM_JOB_NAME=whole LAUNCHER=none VITTRAIN=$vittrain TEST_SOURCE=$TEST_SOURCE timeout $time_limit bash -c '
        home=$TEST_SOURCE
        . "$home/jobs/common.sh"
        launch_by_none() { exec "$@"; }
        train "$@"' job "$work/deck.ini" $runs run.dir="$work/jobs/whole" train.epochs=2 $2 >"$work/job.log" 2>&1 </dev/null
    status=$?
}
job 1 "output.upload=disk:$work/remote/"
result 'a restarted job continues from the copy' "$(ended)$(has "$work/job.log" 'resuming from .*step-00000012')" "$work/job.log"
rm -r "$work/jobs/whole"
job 1
result 'the remote of a deck; without a copy there it starts from step 0' \
    "$(ended)$(has "$work/job.log" 'copying it from disk:.*/nothing' 'all of the run is in')" "$work/job.log"
rm -r "$work/jobs/whole"
job 1 output.upload=
result 'an empty option on the command line switches the copy off' "$(ended; ! grep "copying it from" "$work/job.log")" "$work/job.log"
rm -r "$work/jobs/whole"
job 1 output.upload=nobody:x
result 'if rclone fails it does not start' "$(ended 1)$(has "$work/job.log" 'rclone failed with status 1')" "$work/job.log"
