#!/bin/sh
# The command plan as a user meets it: its table is what a run then prints, it needs no data and no
# ranks, and says what cannot be.
. "$TEST_SOURCE/test/program.sh"

# arena FILE: the line of a plan's whole arena as a run prints it: name and MiB.
planned_arena() {
    awk '/^MiB of a rank/ { for (i = 5; i < NF; i++) name[i - 3] = $i }
        $1 == "arena" { for (i = 2; i < NF; i++) print name[i], $i; print "arena", $NF; exit }
        ' "$1"
}

echo 1..11
for strategy in ddp fsdp; do
    run 2 train $small train.steps=1 mesh.strategy=$strategy run.dir="$work/$strategy"
    run 1 plan plan $small mesh.strategy=$strategy plan.ranks=2
    awk '/ MiB( |$)/ && /weights|gradients|optimizer|gathered|activations|buffers|arena/ && !/of rank/ {
        for (i = 2; i <= NF; i++) if ($i == "MiB") print $(i - 2), $(i - 1) }' "$work/train.log" >"$work/taken"
    planned_arena "$work/plan.log" >"$work/planned"
    bad=$(diff "$work/planned" "$work/taken")
    [ "$(wc -l <"$work/planned")" = 7 ] || bad="not 7 lines"
    result "$strategy: a run prints the table of its plan" "$bad" "$work/plan.log"
    bad=$(awk -v own=$strategy '/sent shard/ { table = 1 } $1 == "rank" { rank = $2 }
        table && $1 == own { total = $8; exit }
        END { if (rank == "" || rank != total) print "rank " rank ", total " total }' "$work/plan.log")
    result "$strategy: and has the same total in both of its tables" "$bad" "$work/plan.log"
done
run 3 started plan $small
result 'without plan.ranks the started ranks are planned for' \
    "$(grep -q '^ddp, 3 ranks on 1 node: replica 3 x shard 1' "$work/started.log" || echo no)" \
    "$work/started.log"

run 1 large plan "$TEST_SOURCE/input/vit_base32_hsdp.ini" data.root="$work/none" train.precision=bf16 \
    mesh.strategy=hsdp plan.ranks=512 plan.node_ranks=8 plan.memory=15360MiB
bad=
[ $status -eq 0 ] || bad="exit status $status"
grep -q '^hsdp, 512 ranks on 64 nodes: replica 64 x shard 8' "$work/large.log" || bad="$bad; mesh"
[ "$(grep -c '^blocks' "$work/large.log")" = 12 ] || bad="$bad; units"
result 'a plan for 64 nodes, without the data' "$bad" "$work/large.log"
# Columns: name, six classes, total, three sent, largest; "ddp, block" has a word more.
awk '/sent shard/ { table = 1; next } table { sub(", ", "-"); print }' "$work/large.log" >"$work/table"
bad=$(awk 'NF != 12 || $12 < 1 { print "bad row " NR ": " $0 }
    { total[$1] = $8; largest[$1] = $12 }
    END {
        if (NR != 10) print NR " rows"
        if (!(total["fsdp"] < total["hsdp"] && total["fsdp"] < total["zero2"] &&
            total["zero2"] < total["zero1"] && total["zero1"] < total["ddp"])) print "order of totals"
        if (!(largest["fsdp"] > largest["ddp"] && largest["fsdp-block"] > largest["fsdp"]))
            print "order of batches"
    }' "$work/table")
result 'it compares all strategies, each without and with recomputation' "$bad" "$work/large.log"

run 1 nohsdp plan $small plan.ranks=6 plan.node_ranks=4 plan.memory=1MiB
bad=
[ $status -eq 0 ] || bad="exit status $status"
grep -q '^hsdp .*the nodes have 2 to 4 ranks' "$work/nohsdp.log" || bad="$bad; hsdp"
[ "$(grep -c ' none$' "$work/nohsdp.log")" = 8 ] || bad="$bad; largest batch"
result 'what cannot be is said in its row' "$bad" "$work/nohsdp.log"

fails 2 'a mesh that cannot be' 2 'mesh.shard=3 does not divide' plan $small mesh.strategy=fsdp \
    mesh.shard=3 plan.ranks=4
fails 2 'an unknown format' 2 'data.format=imagenet' plan $small data.format=imagenet
fails 2 "an operand" 2 "plan takes decks.*or one checkpoint" plan $small something
