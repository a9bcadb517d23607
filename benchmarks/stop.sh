#!/bin/sh
# How long after SIGUSR1 a run on two ranks has ended: the CIFAR ViT is stopped in training and in its evaluation.
# Prints a CSV row each.
#   benchmarks/stop.sh DIR CIFAR10 [TIMES] >>stop.csv     CIFAR10: folder of the binary version
set -eu
top=$(cd "$(dirname "$0")/.." && pwd) dir=$1 data=$2 times=${3:-5}
now() { date +%s%N; }
echo stopped_in,seconds,exit_status
for place in training evaluation; do
    steps=100000
    [ $place = training ] || steps=4
    for number in $(seq "$times"); do
        run=$dir/stop-$place-$number
        ${MPIRUN:-mpirun} -np 2 "$top/vittrain" "$top/input/vit_cifar.ini" output.logbook= data.root="$data" train.steps=$steps \
            run.threads=1 run.dir="$run" >"$run.log" 2>&1 </dev/null &
        job=$!
        until grep -q 'set-up took' "$run.log"; do sleep 0.05; done
        sleep "$((2 + number % 3)).$number"
        begin=$(now)
        kill -USR1 $job
        status=0
        wait $job || status=$?
        awk -v place=$place -v begin="$begin" -v end="$(now)" -v status=$status \
            'BEGIN { printf "%s,%.3f,%d\n", place, (end - begin) / 1e9, status }'
        place_seen=training
        ! grep -q 'is left to the next attempt' "$run.log" || place_seen=evaluation
        [ $place_seen = $place ] || echo "$run.log: stopped in $place_seen" >&2
        rm -r "$run"
    done
done
