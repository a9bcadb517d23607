# SPDX-License-Identifier: BSD-3-Clause
# Sum the tables of test/commands/start_count: awk -f start_counts.awk FOLDER/rank.*
# Prints rows with tabs between the cells:
#   KIND NAME CALLS STEPS MESSAGES BYTES ADDRESS...
#       The calls from one place of the program before the first step (KIND collective) or after it (later).
#       CALLS: largest number of calls of a rank. STEPS: largest number of messages that a rank sends and
#       receives. MESSAGES, BYTES: sums over all ranks.
#   total NAME MEAN MOST
#       Mean and maximum over the ranks.
BEGIN { FS = OFS = "\t" }
FNR == 1 { ranks++ }
$1 == "collective" || $1 == "later" {
    key = $1 "\t" $2 "\t" $6
    calls[key, FILENAME]++
    steps[key, FILENAME] += $3 + $4
    if (!(key in order)) { order[key] = ++keys; named[keys] = key }
    if (calls[key, FILENAME] > most_calls[key]) most_calls[key] = calls[key, FILENAME]
    if (steps[key, FILENAME] > most_steps[key]) most_steps[key] = steps[key, FILENAME]
    messages[key] += $3
    bytes[key] += $5
}
$1 == "total" {
    name = $1 "\t" $2
    if (!(name in sum)) totals[++names] = name
    sum[name] += $3
    if (!(name in most) || $3 > most[name]) most[name] = $3
}
END {
    for (k = 1; k <= keys; k++) {
        split(named[k], part, "\t")
        print part[1], part[2], most_calls[named[k]], most_steps[named[k]], messages[named[k]], bytes[named[k]], part[3]
    }
    for (k = 1; k <= names; k++) print totals[k], sum[totals[k]] / ranks, most[totals[k]]
}
