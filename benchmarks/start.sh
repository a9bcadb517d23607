#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Measure the start of a run, as rows of the benchmarks' CSV (README.md), and predict it for more ranks (docs/start.md).
#
#   benchmarks/start.sh [TURNS] >> benchmarks/results/start-DATE.csv
#       Seconds from `mpirun` to the end of a run of one step of vit_cifar on 2 ranks, its checkpoint and the end of
#       the processes included: an upper bound of the time to the end of the first step. pytorch_start.py is PyTorch's.
#   benchmarks/start.sh ranks RANKS... >> benchmarks/results/start-DATE.csv
#       Messages, time and processor time from the start of cnn_a to the update of the first step, for each number of
#       ranks, and the time of a program that only calls MPI_Init_thread and MPI_Finalize. 8 consecutive ranks count as a
#       node. Needs `make test/commands/start_count`.
#   benchmarks/start.sh model CSV CLUSTER.ini
#       Prediction for 64 to 8192 ranks from the rows of one commit and a machine description (input/clusters).
#
# Environment: VITTRAIN, MPIRUN; START_COUNT_PROGRAM (test/commands/start_count of the build).
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")

# model CSV CLUSTER: print a table of predicted seconds.
model() {
    awk -F '[=,]' -v clusters="$2" '
        FILENAME == clusters && /^\[/ { section = $0 }
        FILENAME == clusters && /^latency *=/ { latency[section] = $2 }
        FILENAME == clusters && /^bandwidth *=/ { bandwidth[section] = $2 }
        FILENAME != clusters && $6 == "start" { value[$11, $13] = $14 } # ranks and metric
        function log2(x) { return log(x) / log(2) }
        END {
            hop = (value[2, "MPI_Init to update"] - value[1, "MPI_Init to update"]) / value[2, "steps of a rank"]
            doubling = (value[64, "steps of a rank"] - value[8, "steps of a rank"]) / 3
            bytes = (value[64, "bytes of a rank"] - value[8, "bytes of a rank"]) / 56
            fixed = value[8, "processor time before MPI_Init"] + value[8, "processor time of MPI_Init"]
            work = value[8, "processor time after MPI_Init"]
            wire = latency["[between]"] ? latency["[between]"] : 30e-6
            rate = bandwidth["[between]"] / 8
            printf "measured: %.2f ms per message with its wake-ups, %.0f messages per doubling, %.0f bytes per further rank, " \
                "%.3f s of processor time to the end of MPI_Init, %.3f s after it\n", 1e3 * hop, doubling, bytes, fixed, work
            print "| ranks | messages of a rank | processor time to the end of MPI_Init | after it | messages | bytes | files | sum |"
            print "|---|---|---|---|---|---|---|---|"
            for (i = 1; i <= split("64 256 1024 4096 8192", numbers, " "); i++) {
                ranks = numbers[i]
                steps = value[8, "steps of a rank"] + doubling * log2(ranks / 8)
                messages = steps * (hop + wire)
                moved = bytes * ranks / rate
                files = ranks / 8 * 1e-3 # assumed: the file server creates the table of sensors of each node in 1 ms, one after another
                printf "| %d | %.0f | %.2f s | %.2f s | %.2f s | %.4f s | %.2f s | %.2f s |\n", ranks, steps, fixed, work,
                    messages, moved, files, fixed + work + messages + moved + files
            }
        }' "$2" "$1"
}

if [ "${1:-}" = model ]; then
    model "$2" "$3"
    exit
fi
. "$here/common.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

start_row() { row start cnn_a 128 fp32 ddp "$ranks" 1 "$@"; }

# ranks_measure RANKS: print the rows of this number of ranks.
ranks_measure() {
    ranks=$1
    export nodes=$(((ranks + 7) / 8))
    rm -rf "run$ranks"
    begin=$(date +%s.%N)
    start_counted "$ranks" train.steps=1 checkpoint.every=0 "run.dir=$scratch/run$ranks"
    start_row "mpirun to update" "$(awk "BEGIN { printf \"%.3f\", $(counted_cell 'update at' 4) - $begin }")" s
    start_row "MPI_Init" "$(counted_cell 'MPI_Init seconds' 4)" s
    start_row "MPI_Init to update" "$(counted_cell 'MPI_Init to update seconds' 4)" s
    start_row "processor time before MPI_Init" "$(counted_cell 'before MPI_Init processor seconds' 3)" s
    start_row "processor time of MPI_Init" "$(counted_cell 'MPI_Init processor seconds' 3)" s
    start_row "processor time after MPI_Init" "$(counted_cell 'MPI_Init to update processor seconds' 3)" s
    start_row "steps of a rank" "$(counted_sum '$4')" messages
    start_row "calls of MPI that make groups" "$(counted_sum '($2 ~ /^MPI_Comm/) * $3')" calls
    start_row "messages" "$(counted_sum '$5')" messages
    start_row "bytes of a rank" "$(counted_sum "\$6 / $ranks")" bytes
    start_row "resident memory" "$(counted_cell 'resident bytes' 4)" bytes
    begin=$(date +%s.%N)
    $mpirun -np "$ranks" ./empty >log 2>&1 || { tail -n 3 log >&2; exit 1; }
    end=$(date +%s.%N)
    framework="empty MPI program" start_row "mpirun" "$(awk "BEGIN { printf \"%.3f\", $end - $begin }")" s
}

if [ "${1:-}" = ranks ]; then
    shift
    printf '#include <mpi.h>\nint main(int c, char **v) { int t; MPI_Init_thread(&c, &v, MPI_THREAD_MULTIPLE, &t); return MPI_Finalize(); }\n' >empty.c
    mpicc -O2 -o empty empty.c
    export OMPI_MCA_pml=ob1 # as vittrain chooses on one node
    ranks_measure 2 >warm # loads the programs into the page cache
    for ranks; do ranks_measure "$ranks"; done
    exit
fi

turns=${1:-5}
for ((turn = 0; turn <= turns; turn++)); do
    begin=$(date +%s.%N)
    $mpirun -np 2 "$vittrain" train train.steps=1 run.threads=1 train.global_batch=64 data.format=synthetic \
        data.val=none output.weights=off train.precision=fp32 "run.dir=$scratch/run$turn" >"$scratch/log" 2>&1 ||
        { tail -n 3 "$scratch/log" >&2; exit 1; }
    end=$(date +%s.%N)
    # The first turn loads the program into the page cache.
    ((turn == 0)) || awk "BEGIN { print $end - $begin }" >>"$scratch/seconds"
done
row "start and one step" vit_cifar 64 fp32 ddp 2 1 "whole run" "$(median <"$scratch/seconds")" s
