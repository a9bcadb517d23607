#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# The hardware monitor of a run on one rank, and on three ranks of two simulated nodes: its files, that a resumed run
# appends, that unwritable files are warnings, and that results do not depend on it.
. "$TEST_SOURCE/test/support/program.sh"
vittrain=$TEST_BUILD/test/commands/start_count
export START_NODE_RANKS=2

# rows FILE: prints the number of rows, or the first problem: each row must have all columns, a time, a step that does
# not decrease on a rank, rank and host.
rows() {
    awk -F, 'NR == 1 { columns = NF; if ($1 != "time" || $2 != "step") print "header"; next }
        NF != columns || $1 !~ /^20..-..-..T..:..:..[.]...Z$/ || $2 !~ /^[0-9]+$/ || $4 == "" { print "row " NR }
        $2 + 0 < step[$3] { print "step in row " NR }
        { step[$3] = $2 + 0 }
        END { print NR - 1 }' "$1" 2>&1
}

for ranks in 1 3; do
    folder=$work/run$ranks
    run $ranks run$ranks $small train.epochs=4 output.monitor=0.1 run.dir="$folder"
    bad=$(ended)
    tables=$([ $ranks = 1 ] && echo 'monitor.csv:0:node0' || echo 'monitor-2.csv:2:node1 monitor.csv:0:node0 monitor.csv:1:node0')
    for table in $(cd "$folder" && ls monitor*); do
        count=$(rows "$folder/$table")
        [ "$count" -ge 2 ] 2>/dev/null || bad="$bad; $table: $count"
    done
    rows=$(cd "$folder" && awk -F, 'FNR > 1 { print FILENAME ":" $3 ":" $4 }' monitor* | sort -u | paste -sd' ')
    [ "$rows" = "$tables" ] || bad="$bad; tables, ranks and hosts: $rows"
    result "$ranks ranks: a table of each node" "$bad" "$work/run$ranks.log"

    result "$ranks ranks: points and result" "$(
        grep -L 'sensors/resident_bytes' "$folder"/events*
        has "$folder/result.json" "^ \"steps\": $(tail -n 1 "$folder/monitor.csv" | cut -d, -f2)," '^  "gpu_power": null'
        tr -d ' \n' <"$folder/result.json" | grep -qE '"resident_bytes":\{"max":[0-9]{7}' || echo 'no memory')" "$folder/result.json"
done

# Only the first rank of a node has the values of the node.
bad=$(awk -F, 'FNR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
    ($at["node_available_bytes"] == "") != ($at["rank"] == 1) { print FILENAME ": row " FNR }
    $at["resident_bytes"] == "" || $at["resident_bytes"] == 0 { print FILENAME ": memory in row " FNR }' "$work"/run3/monitor*.csv)
result 'the first rank of a node has the values of the node' "$bad"

# A table of version 0.2 has other columns: it is renamed, and a new one begins. Other tables are not copied.
before=$(rows "$work/run3/monitor.csv")
sed '1s/process_cores/core_clock/' "$work/run3/monitor-2.csv" >older
cp older "$work/run3/monitor-2.csv"
ln "$work/run3/monitor.csv" link.csv
run 3 further $small train.epochs=5 output.monitor=0.1 run.dir="$work/run3"
after=$(rows link.csv)
bad=$(ended)
[ "$after" -gt "$before" ] 2>/dev/null || bad="$bad; $before rows before, after it: $after"
[ "$(grep -c '^time,' link.csv)" = 1 ] || bad="$bad; not one header"
result 'going on appends' "$bad" "$work/further.log"
bad=$(cmp older "$work/run3/monitor-2.csv.old" 2>&1)
after=$(rows "$work/run3/monitor-2.csv")
[ "$after" -ge 2 ] 2>/dev/null && grep -q ',process_cores,' "$work/run3/monitor-2.csv" || bad="$bad; $after rows"
result 'a table with other columns is set aside' "$bad" "$work/further.log"

run 3 none $small train.epochs=4 output.monitor=0 run.dir="$work/none"
result 'none' "$(ended; ls none/monitor* 2>/dev/null; has none/result.json '^ "sensors": null')" none.log
column "$work/run3/metrics.csv" train loss | head -100 >"$work/a"
column "$work/none/metrics.csv" train loss >"$work/b"
result 'the losses are the same without' "$(differ "$work/a" "$work/b" 0)"

mkdir -p "$work/taken/monitor-2.csv" "$work/taken/monitor.csv.part" # a new table needs no temporary file
echo other >"$work/taken/monitor.csv"
run 3 taken $small train.steps=3 run.dir="$work/taken"
bad=$(ended; has taken.log '^warning: rank 2 on .*monitor-2.csv.*the run continues'; grep -c '^warning: ' taken.log | grep -vx 1)
rows taken/monitor.csv | grep -q '^[0-9]*$' || bad="$bad; the table of the first node: $(head -n 2 taken/monitor.csv)"
result 'a table that cannot be written' "$bad" taken.log
