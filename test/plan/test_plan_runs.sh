#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# The command plan: its table equals that of the run, it needs no data and no ranks, and reports what is not possible.
. "$TEST_SOURCE/test/support/program.sh"

# planned_arena FILE: the arena of a plan, one line per class: name and MiB.
planned_arena() {
    awk '/^MiB per rank/ { for (i = 4; i < NF; i++) name[i - 2] = $i }
        $1 == "arena" { for (i = 2; i < NF; i++) print name[i], $i; print "arena", $NF; exit }
        ' "$1"
}

# A small /dev/shm, as in many containers, has no room for the largest of these models.
transport=auto
[ "$(df -Pk /dev/shm | awk 'NR == 2 { print $4 }')" -ge 300000 ] || transport=ring

# A run on two ranks has the arena of its plan.
for strategy in ddp fsdp; do
    run 2 train -v $small train.steps=1 mesh.strategy=$strategy mesh.transport=$transport run.dir="$work/$strategy"
    run 1 plan plan $small mesh.strategy=$strategy mesh.transport=$transport plan.ranks=2
    sed -n 's/^memory: [^(]*(//p' "$work/train.log" | tail -n 1 | tr , '\n' | awk '$1 ~ /^(weights|gradients|optimizer|gathered|activations|buffers)$/ {
        print $1, $2 }' >"$work/taken"
    planned_arena "$work/plan.log" >"$work/planned"
    bad=$(awk '$1 != "arena" && $2 > 0' "$work/planned" | diff - "$work/taken")
    [ "$(wc -l <"$work/planned")" = 7 ] || bad="not 7 lines"
    result "$strategy: a run prints the memory of its plan" "$bad" "$work/plan.log"
    bad=$(awk -v own=$strategy '/sent shard/ { table = 1 } $1 == "rank" { rank = $2 }
        table && $1 == own { total = $8; exit }
        END { if (rank == "" || rank != total) print "rank " rank ", total " total }' "$work/plan.log")
    result "$strategy: and has the same total in both of its tables" "$bad" "$work/plan.log"
done
run 1 kept plan $small data.format=synthetic data.samples=2000 data.distinct=1000
result 'the images of data.distinct have a row' "$(has kept.log '^images  *4\.39  of data.distinct$')" kept.log
run 3 started plan $small
result 'without plan.ranks the started ranks are planned for' "$(has started.log '^ddp, 3 ranks on 1 node: replica 3 x shard 1')" started.log

run 1 large plan "$TEST_SOURCE/input/vit_base32_hsdp.ini" data.root="$work/none" train.precision=bf16 \
    mesh.strategy=hsdp plan.ranks=512 plan.node_ranks=8 plan.memory=15360MiB
bad=$(ended; has large.log '^hsdp, 512 ranks on 64 nodes: replica 64 x shard 8')
[ "$(grep -c '^blocks' "$work/large.log")" = 24 ] || bad="$bad; units"
result 'a plan for 64 nodes, without the data' "$bad" "$work/large.log"
# Columns: name, six classes, total, three of bytes sent, largest; "ddp, block" has one word more.
awk '/sent shard/ { table = 1; next } /^$/ { table = 0 } table { sub(", ", "-"); print }' "$work/large.log" >"$work/table"
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

# Image folders must exist even for a plan, so synthetic images replace the data. With sanitizers, plans of ResNets take
# more than a minute.
bad=
count=0
grep -q '^SANITIZER_CFLAGS = .' "$TEST_BUILD/Makefile" && decks=vit_ || decks=
for deck in "$TEST_SOURCE/input/$decks"*.ini; do
    case $deck in */linear.ini) images= ;; *) images="data.image=256 data.classes=10" ;; esac
    ! grep -q '^head = dense' "$deck" || images="$images model.head=class model.pool=mean data.task=classes"
    run 1 deck plan "$deck" data.format=synthetic $images plan.ranks=8
    bad="$bad$(ended; has deck.log '^arena' | sed "s|^|$deck: |")"
    count=$((count + 1))
done
[ $count -ge 8 ] || bad="$bad; $count decks"
result 'each deck can be planned without its data' "$bad" "$work/deck.log"

run 1 nohsdp plan $small plan.ranks=6 plan.node_ranks=4 plan.memory=1MiB
bad=$(ended; has nohsdp.log '^hsdp .*the nodes have different numbers of ranks')
[ "$(grep -c ' none$' "$work/nohsdp.log")" = 8 ] || bad="$bad; largest batch"
result 'a strategy that is not possible has a message in its row' "$bad" "$work/nohsdp.log"

errors plan $small 3<<END
2|mesh.shard=3|mesh.strategy=fsdp mesh.shard=3 plan.ranks=4
2|data.format=imagenet|data.format=imagenet
2|something|something
2|h5ls|last.h5
END

# Times: with the measurements of bench device and bench comm, and with the file of a cluster.
printf '[machine]\nwatts = 300\n[between]\nshape = tree\nreduce_scatter = 64 1e-05\n[bf16]\ncopy = 64x2x1 1.25e+09\n' >machine.ini
run 2 machine bench comm bench.max=4KiB bench.seconds=0 bench.machine=machine.ini
bad=$(ended)
run 2 device bench device product:64 run.threads=1 run.backend=cpu train.precision=fp32 bench.output="$work/device.csv" \
    bench.machine=machine.ini
bad="$bad$(ended; has device.csv 'product 64x64x64,.*,speed,')"
for wanted in 'watts = 300' 'shape = tree' 'reduce_scatter = 64 1e-05' 'copy = 64x2x1 1.25e+09' \
    'fp32.*linear_forward = 64x64x64 ' 'node_ranks = 2' 'all_gather = 4 ' 'device = .' 'fp32_flops = [1-9]'; do
    tr '\n' ' ' <"$work/machine.ini" | grep -q "$wanted" || bad="$bad; no $wanted"
done
result 'bench comm and bench device add to one machine file' "$bad" "$work/device.log"
run 1 attention bench device attention:1:8 run.threads=1 run.backend=cpu bench.output="$work/attention.csv"
bad=$(ended)
[ "$(grep -c ',attention_[a-z]* 1x12x8x64,.*,speed,' "$work/attention.csv")" = 2 ] || bad="$bad; not 2 passes"
result 'bench device measures the attention of a size' "$bad" "$work/attention.log"
run 1 timed plan $small plan.ranks=2 mesh.strategy=fsdp checkpoint.memory=5
bad=$(awk '/^Predicted with machine.ini/ { step = $0 } /step ms +exposed/ { table = 1 } table && $1 == "fsdp" { own = $(NF - 1) }
    /^An epoch of/ { epoch = 1 }
    END {
        if (!match(step, /takes [0-9.e+]+ ms/)) { print "no step"; exit }
        split(substr(step, RSTART, RLENGTH), word, " ")
        if (!(own > 0) || word[2] / own > 1.001 || word[2] / own < 0.999) print "step " word[2] ", in the table " own
        if (!epoch) print "no epoch"
    }' "$work/timed.log")
bad="$bad$(ended; has timed.log '^A checkpoint in memory takes [0-9.e-]+ ms; checkpoint.memory=[1-9]')"
result 'plan predicts times with it, equal in both tables, and the interval of checkpoints in memory' "$bad" timed.log
run 1 untimed plan $small plan.machine=none
result 'without one it prints how to get it, and counts operations' "$(has untimed.log '^No times: .*bench device' '^blocks.1 .* 0\.00')" untimed.log
run 1 apart plan $small plan.ranks=2 plan.node_ranks=1
result 'a file in the working folder that lacks a speed gives a warning' "$(ended; has apart.log 'warning: .*machine.ini')" apart.log
sed 's/^device = .*/device = another processor/; s/^images = .*/images = 1/; s/^deviation = .*/deviation = 0.1/' "$work/machine.ini" >"$work/other.ini"
run 1 other plan $small plan.ranks=2 plan.machine=other.ini
bad=$(has other.log 'warning: .*other.ini.*another processor' 'a step takes 1\.2e\+04 ms.* waiting for images [1-9]'
    sed -n 's/.* ms: operations \([^,]*\), slowed down by communication \([^,]*\),.* slowest rank \(.*\)\. [0-9.]* images.*/\1 \2 \3/p' other.log |
        awk '{ expected = 0.1 * sqrt(2 * log(2)) * ($1 + $2) } $3 / expected < 0.99 || $3 / expected > 1.01 { print "waits " $3 " ms, not " expected }')
result "another machine's file gives a warning; a step waits for slow loaders and for the slowest rank" "$bad" other.log
printf '[machine]\nnode_ranks = 2\n[compute]\nmemory_bandwidth = 1e10\nfp32_flops = 1e11\n' >cluster.ini
printf '[inside]\nbandwidth = 1e9\nlatency = 1e-5\n[between]\nbandwidth = 1e8\nlatency = 1e-4\n' >>cluster.ini
run 1 cluster plan $small train.global_batch=0 train.batch=8 mesh.strategy=ddp plan.cluster=cluster.ini
bad=$(awk '/^ +ranks/ { table = 1; next } table { rows++; last = $1; if ($4 != 8) print "batch " $4 " of " $1 " ranks" }
    END { if (rows != 14 || last != 8192) print rows " rows to " last }' "$work/cluster.log")
result 'a cluster: 1 to 8192 ranks' "$bad$(grep '^Files' "$work/cluster.log")" "$work/cluster.log"
# The page of thousands of ranks has the predicted tables of files.
bad=
for strategy in ddp fsdp hsdp; do
    run 1 files plan "$TEST_SOURCE/input/vit_base16_lamb.ini" data.format=synthetic data.image=256 data.classes=1000 \
        mesh.strategy=$strategy plan.cluster="$TEST_SOURCE/input/clusters/h100_ib400.ini"
    sed -n '/^Files of 8192 ranks/,/^After/s/  */ /gp' files.log >rows
    grep -q '^After a signal' rows || bad="$bad; no table of $strategy"
    while read -r phase rest; do
        case $phase in start | checkpoint | weights | resume) ;; *) continue ;; esac
        grep -qE "^\| $phase(, $strategy)? \| $(echo "$rest" | sed 's/ / \\| /g') \|" "$TEST_SOURCE/docs/ranks.md" || bad="$bad; $strategy: $phase $rest"
    done <rows
done
result 'files of 8192 ranks, as docs/ranks.md has them' "$bad" files.log
sed -n '/^\[files\]/,$p' "$TEST_SOURCE/input/clusters/h100_ib400.ini" | cat cluster.ini - >files.ini
run 1 strong plan $small mesh.strategy=hsdp mesh.shard=2 plan.cluster=files.ini
bad=$(has strong.log '^ *1 mesh.shard=2' '^ *32 the batch of 24 images is less than one per rank' '^Files of 16 ranks')
[ "$(grep -cE '^ +(2|4|8|16) +[0-9]+ ' "$work/strong.log")" = 4 ] || bad="$bad; rows"
result 'strong scaling: a number of ranks that cannot run, and the end where a rank would have no image' "$bad" "$work/strong.log"
sed 's/^node_ranks = .*/&\nshared_memory = 1/' cluster.ini >shared.ini
for file in cluster shared; do
    run 1 $file plan data.format=synthetic model.name=vit_base_patch32_224 train.batch=4 mesh.strategy=fsdp plan.cluster=$file.ini \
        plan.ranks=12
    awk '$1 == 2 && $3 == "1x2" { print $5 }' "$work/$file.log" >$file.memory
done
rows=$(awk '/^ +ranks/ { table = 1; next } /^$/ { table = 0 } table { printf "%s ", $1 }' "$work/shared.log")
result 'up to plan.ranks' "$([ "$rows" = '1 2 4 8 12 ' ] || echo "rows: $rows")" "$work/shared.log"
# Two ranks: half of the weights take more memory than two slots.
result 'shared_memory: each rank has half of the shared weights, no slots' \
    "$([ "$(cat cluster.memory)" -lt "$(cat shared.memory)" ] || paste cluster.memory shared.memory)" "$work/shared.log"
result 'and has the reason of an efficiency above 100 %' "$(has "$work/$file.log" 'can exceed 100 %: one rank updates all weights')" "$work/$file.log"
errors 3<<END
2|machine.ini|plan $small plan.ranks=2 plan.node_ranks=1 plan.machine=machine.ini
2|no.ini|plan $small plan.cluster=no.ini
2|convolutions:cnn_b|bench device convolutions:cnn_b run.threads=1 run.backend=cpu
2|bench.quick|bench device bench.quick=on
2|no such topic|bench
2|no such topic|bench speed
2|needs MPI|bench comm bench.machine=machine.ini
5|none/machine.ini|bench device product:64 run.threads=1 run.backend=cpu bench.machine=$work/none/machine.ini
END
fails 2 'the limit of the collectives of MPI' 2 'bench.max: must be below 8GiB' bench comm bench.max=9GiB
