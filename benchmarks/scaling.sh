#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Weak scaling on one machine: 2 ranks x 1 thread, in turn with two independent one-rank runs with the same batch
# per rank. Prints rows of the benchmarks' CSV (README.md): for each turn the CPU time and the waiting time of the threads
# in a step, and their differences to the independent runs; the last row is the median of the relative speeds.
#
#   benchmarks/scaling.sh MODEL BATCH_A_RANK STRATEGY [TURNS] >> benchmarks/results/scaling-HOST.csv
#
# Environment: VITTRAIN, MPIRUN, STEPS, EXTRA (more settings for both), WARM (first steps that are left out; default 2).
set -euo pipefail

model=${1:?MODEL} batch=${2:?BATCH_A_RANK} strategy=${3:?STRATEGY} turns=${4:-3}
here=$(dirname "$(readlink -f "$0")")
. "$here/common.sh"
steps=${STEPS:-6} warm=${WARM:-2}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# A wrapper that starts the program and a sampling process. Five times a second, the latter prints the CPU time of each
# thread and its time in the run queue (ns), and the stolen time of the machine (clock ticks) as thread 0.
program_look
export PROGRAM=$vittrain SAMPLES
vittrain=$scratch/sampled
cat >"$vittrain" <<'EOF'
#!/bin/bash
{
    exec {pipe}<> <(:)
    while read -r _ _ _ _ _ _ _ _ stolen _ </proc/stat && [ -e /proc/$$/exe ]; do
        now=$EPOCHREALTIME
        echo "$now 0 stolen $stolen 0"
        for thread in /proc/$$/task/*; do
            read -r name <"$thread/comm" && read -r cpu queue _ <"$thread/schedstat" &&
                echo "$now ${thread##*/} ${name// /_} $cpu $queue"
        done
        read -r -t 0.2 -u "$pipe"
    done
} >"$SAMPLES.$$" 2>/dev/null </dev/null &
exec "$PROGRAM" "$@"
EOF
chmod +x "$vittrain"

report() { # WORK STRATEGY RANKS METRIC VALUE UNIT
    row "$1" "$model" $((batch * $3)) "$(precision_used "$scratch/together.log")" "$2" "$3" 1 "$4" "$5" "$6"
}

# run_parts NAME: prints lines "PART SECONDS" for a step of the run, as means over ranks and over the steps after the
# first WARM ones:
#   step                      its duration
#   main, queue               the main thread: CPU time, and time in the run queue
#   communication, other      CPU time of the communication thread, and of all others
#   stolen                    time of a core that other virtual machines used
#   statistics, gradients     waiting for other ranks: for batch norm statistics, and at the end of the step
# Times of threads are from the samples between the first and the last of these steps.
run_parts() {
    folder=$scratch/$1
    started=$(date -d "$(sed -n 's/.*"started": "\([^"]*\)".*/\1/p' "$folder/result.json" | tail -n 1)" +%s.%N)
    column_of "$folder/metrics.csv" elapsed_seconds $((warm - 1)) >"$scratch/elapsed"
    begin=$(awk -v at="$started" 'NR == 1 { printf "%.3f", at + $1 }' "$scratch/elapsed")
    end=$(awk -v at="$started" 'END { printf "%.3f", at + $1 }' "$scratch/elapsed")
    step=$(column_of "$folder/metrics.csv" step_seconds "$warm" | awk '{ sum += $1 } END { print sum / NR }')
    exposed=$(column_of "$folder/metrics.csv" exposed_comm_seconds "$warm" | awk '{ sum += $1 } END { print sum / NR }')
    for samples in "$scratch/$1.samples".*; do
        awk -v begin="$begin" -v end="$end" -v main="${samples##*.}" -v step="$step" -v ticks="$(getconf CLK_TCK)" -v cores="$(getconf _NPROCESSORS_ONLN)" '
            $1 < begin || $1 > end { next }
            { last = $1 }
            !start { start = $1 }
            !($2 in first) { first[$2] = $4; queued[$2] = $5; name[$2] = $3 }
            { cpu[$2] = $4; queue[$2] = $5 }
            END {
                scale = step / (last - start)
                for (t in cpu) {
                    used = (cpu[t] - first[t]) * scale
                    if (t == 0) stolen = used / ticks / cores
                    else if (t == main) { print "main", used / 1e9; print "queue", (queue[t] - queued[t]) * scale / 1e9 }
                    else if (name[t] == "communication") communication = used / 1e9
                    else other += used / 1e9
                }
                print "step", step
                print "communication", communication + 0
                print "other", other + 0
                print "stolen", stolen + 0
            }' "$samples"
    done | awk '{ sum[$1] += $2; count[$1]++ } END { for (part in sum) print part, sum[part] / count[part] }'
    awk -v exposed="$exposed" '
        /"waiting_seconds"/ { all += $2; last = $2 } # of the units; the last one is "(the step)"
        END {
            print "statistics", (all > 0 ? exposed * (all - last) / all : 0)
            print "gradients", (all > 0 ? exposed * last / all : 0)
        }' "$folder/result.json"
}

part() { awk -v part="$2" '$1 == part { sum += $2; count++ } END { print sum / count }' "$scratch/$1.parts"; } # RUNS PART
loss() { awk "BEGIN { print 100 * ($1) / $(part together step) }"; }                                             # SECONDS

for ((turn = 0; turn < turns; turn++)); do
    rm -f "$scratch"/*.samples.*
    # shellcheck disable=SC2086
    SAMPLES=$scratch/together.samples train_steps together 2 1 "$model" $((2 * batch)) "$steps" "mesh.strategy=$strategy" ${EXTRA:-}
    # shellcheck disable=SC2086
    {
        SAMPLES=$scratch/left.samples train_steps left 1 1 "$model" "$batch" "$steps" ${EXTRA:-} &
        SAMPLES=$scratch/right.samples train_steps right 1 1 "$model" "$batch" "$steps" ${EXTRA:-}
    }
    wait $!
    run_parts together >"$scratch/together.parts"
    { run_parts left; run_parts right; } >"$scratch/alone.parts"
    for runs in together alone; do
        [ $runs = together ] && shape=("weak scaling: together" "$strategy" 2) || shape=("weak scaling: two alone" none 1)
        report "${shape[@]}" "mean step" "$(part $runs step)" s
        report "${shape[@]}" "CPU time of the main thread" "$(part $runs main)" s
        report "${shape[@]}" "main thread in the run queue" "$(part $runs queue)" s
        report "${shape[@]}" "CPU time of the communication thread" "$(part $runs communication)" s
        report "${shape[@]}" "CPU time of other threads" "$(part $runs other)" s
        report "${shape[@]}" "waiting for statistics" "$(part $runs statistics)" s
        report "${shape[@]}" "waiting for gradients" "$(part $runs gradients)" s
        report "${shape[@]}" "stolen" "$(part $runs stolen)" s
    done
    for metric in main:"main thread computes longer" queue:"main thread in the run queue" statistics:"waiting for statistics" \
        gradients:"waiting for gradients"; do
        report "weak scaling" "$strategy" 2 "loss: ${metric#*:}" \
            "$(loss "$(part together "${metric%%:*}") - $(part alone "${metric%%:*}")")" %
    done
    report "weak scaling" "$strategy" 2 "loss" "$(loss "$(part together step) - $(part alone step)")" %
    awk "BEGIN { print $(part alone step) / $(part together step) }" >>"$scratch/ratios"
done
report "weak scaling" "$strategy" 2 efficiency "$(median <"$scratch/ratios")" x
