#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# system
# A run on 2, 4 and 8 ranks, with 2 ranks per simulated node: its start, one log interval, an evaluation with a confusion
# matrix of 80 KB, and its end. Each time the ranks double, the number of messages that a rank sends and receives outside of
# steps may grow by a constant, as the logarithm does. Collectives that grow faster are listed. Limits are those of 1000
# times as many ranks.
. "$TEST_SOURCE/test/support/program.sh"

vittrain=$TEST_BUILD/test/commands/start_count
export START_NODE_RANKS=2
for ranks in 2 4 8; do
    export START_COUNT="$work/start$ranks"
    mkdir "$START_COUNT"
    run $ranks "start$ranks" model.name=cnn_a model.classes=100 data.format=synthetic data.val=test run.threads=1 train.steps=1 \
        train.global_batch=16 train.precision=fp32 output.weights=off output.logbook= debug.batches=1 debug.rank_factor=1000 \
        run.dir="$work/run$ranks"
    awk -f "$TEST_SOURCE/test/commands/start_counts.awk" "$START_COUNT"/rank.* >"counts$ranks" && grep -q '^collective' "counts$ranks"
    counted=$?
    result "$ranks ranks reach the first update, and their calls are counted" "$([ $status -eq 0 ] && [ $counted -eq 0 ] &&
        [ -s "$START_COUNT/rank.$((ranks - 1))" ] || echo "status $status, of the counts: $counted")" "$run_log"
done

# grown COLUMN: print the collectives that grow more from 4 to 8 ranks than from 2 to 4, with the addresses of their callers.
grown() {
    awk -F '\t' -v column="$1" '
        FNR == 1 { file++ }
        $1 != "total" { key = $2 "\t" $7; value[key, file] = $column; seen[key] = 1 }
        END {
            for (key in seen)
                if (value[key, 3] > value[key, 2] && value[key, 3] - value[key, 2] > value[key, 2] - value[key, 1])
                    print value[key, 1] + 0 ", " value[key, 2] + 0 ", " value[key, 3] "\t" key
        }' counts2 counts4 counts8
}

# named UNIT: replace the addresses by the functions.
named() {
    while IFS="$(printf '\t')" read -r counts name callers; do
        echo "$name: $counts $1 on 2, 4, 8 ranks, called by $(addr2line -f -e "$vittrain" $callers 2>/dev/null |
            awk 'NR % 2 { name = $1; next } !/start_count|src\/comm/ { printf "%s (%s), ", name, $1; if (++n == 3) exit }')"
    done
}
result 'the messages of a rank in each collective grow at most with the logarithm of the ranks' "$(grown 4 | named messages)"
result 'the calls of a rank grow at most with the logarithm of the ranks' "$(grown 3 | named calls)"
per_rank=$(awk -F '\t' '$1 == "collective" { bytes[FILENAME] += $6 }
    END { printf "%d", bytes["counts8"] / 8 - bytes["counts4"] / 4 }' counts4 counts8)
result 'a rank sends at most 640 bytes for each further rank' "$([ "$per_rank" -le 2560 ] || echo "$((per_rank / 4)) bytes")"
# Writers of a checkpoint have at least 1 MiB each: their number depends on the model, not on the ranks.
for ranks in 2 4 8; do
    awk -F '\t' '$2 == "renames" || $2 == "syncs" { sum[$2] += $3 } END { print sum["renames"], sum["syncs"] }' start$ranks/rank.*
    echo $(($(find run$ranks -type f | wc -l) - ranks / 2))
done | paste - - >files
result 'the ranks rename and sync as many files on 2, 4 and 8 ranks, and each node creates one' \
    "$([ "$(uniq files | wc -l)" = 1 ] || cat files)"

# MPI_Init of Open MPI makes a session folder, which processes that start at the same time remove from each other.
TMPDIR=/dev/null run 1 alone plan
result 'a process without a launcher does not start MPI' "$(ended)" "$run_log"
bad=$(for start in $(seq 32); do
    (timeout $time_limit "$vittrain" plan >"start$start.log" 2>&1 || echo "start $start: exit status $?;") &
done; wait)
result '32 starts at once' "$bad"
