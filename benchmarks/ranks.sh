#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Set-up time, messages, file operations and memory of a new and of a resumed run of cnn_a, for numbers of ranks that may
# exceed the cores, as rows of the benchmarks' CSV (README.md, docs/start.md). Each run makes two steps, one row of
# metrics.csv and one checkpoint. 8 consecutive ranks count as a node. Needs `make test/commands/start_count`; without
# strace, the rows of file operations are missing.
#
#   benchmarks/ranks.sh [RANKS...] >> benchmarks/results/ranks-DATE.csv     # default: 1 8 32 64 128
#
# Environment: VITTRAIN, MPIRUN; START_COUNT_PROGRAM (test/commands/start_count of the build).
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
. "$here/common.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
export OMPI_MCA_pml=ob1 # as vittrain chooses on one node
# Each rank writes a trace of its calls on files. The path of an open file is part of a call.
mkdir traces
echo "exec strace -f -qq -y --seccomp-bpf -e trace=%file,fsync,fdatasync -o $scratch/traces/\$\$ \"\$@\"" >trace

# file_rows: print the rows of all traces. Files in /proc, /sys, /dev, /run and outside of the run folder in /tmp are local.
file_rows() {
    awk -v run="$scratch/run" '
        # Skip calls on open files, and the second line of a call that another thread has interrupted.
        $2 !~ /^[a-z0-9_]+\(/ || /AT_EMPTY_PATH/ { next }
        { sub(/AT_FDCWD<[^>]*>/, "") } # the current folder
        !index($0, run) { loads += $2 !~ /^(fsync|fdatasync)/ && !/["<]\/(proc|sys|dev|run|tmp)\//; next }
        $2 ~ /^(fsync|fdatasync)/ { syncs++; next }
        $2 ~ /^rename/ { renames++; next }
        /O_CREAT/ { creates++; next }
        $2 ~ /^open/ { opens++; next }
        { others++ }
        END {
            printf "syncs,%d\nrenames,%d\nopens that may create,%d\nother opens,%d\nother calls,%d\ncalls outside of the run folder,%d\n",
                syncs, renames, creates, opens, others, loads
        }' traces/* | while IFS=, read -r metric calls; do run_row "$metric" "$calls" calls; done
}

run_row() { row "$work" cnn_a 128 fp32 ddp "$ranks" 1 "$@"; }

# run_measure STEPS: train to this step and print the rows.
run_measure() {
    [ "$1" = 2 ] && work="new run" || work="resumed run"
    begin=$(date +%s.%N)
    start_counted "$ranks" train.steps="$1" output.log_every=2 checkpoint.background=no "run.dir=$scratch/run"
    [ -z "$tracer" ] || { file_rows; return; }
    run_row "mpirun to update" "$(awk "BEGIN { printf \"%.3f\", $(counted_cell 'update at' 4) - $begin }")" s
    run_row "MPI_Init to update" "$(counted_cell 'MPI_Init to update seconds' 4)" s
    run_row "steps of a rank" "$(counted_sum '$4')" messages
    run_row "messages" "$(counted_sum '$5')" messages
    run_row "bytes of a rank" "$(counted_sum "\$6 / $ranks")" bytes
    run_row "resident memory" "$(counted_cell 'resident bytes' 4)" bytes
}

# Tracing makes a run slower, so calls on files are counted in runs of their own.
for ranks in ${@:-1 8 32 64 128}; do
    export nodes=$(((ranks + 7) / 8))
    for tracer in "" "sh $scratch/trace"; do
        [ -z "$tracer" ] || command -v strace >/dev/null || continue
        rm -rf run
        for steps in 2 4; do
            rm -f traces/*
            run_measure $steps
        done
    done
done
