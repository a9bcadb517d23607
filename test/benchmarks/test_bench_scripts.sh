#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# The benchmarks' scripts: rows that they write and read, torn and unknown tables, Markdown, pictures, and the result of
# `compare` on made-up times. No test depends on the speed of the machine.
. "$TEST_SOURCE/test/support/program.sh"
needs python3
export VITTRAIN=$vittrain MPIRUN
here=$TEST_SOURCE/benchmarks
. "$here/common.sh"

old_header=$(echo "$bench_header" | cut -d, -f 1-15)

cd "$work" || exit 1

# ---- Writing.
result 'C, shell and Python have the same columns' "$(
    python=$(PYTHONPATH=$here PYTHONDONTWRITEBYTECODE=1 python3 -c '
from bench_common import print_row
print_row(framework="f", version="2", commit="c", work="w", model="m", batch="", precision="bf16", strategy="none", ranks=1,
          threads=3, metric="time", value="0.5", unit="s")')
    echo "$python" | grep -qE '^[^,]*,[^,]*,c,f,2,w,m,,bf16,none,1,3,time,0.5,s,1,[^,]*,[0-9]+,[0-9]+,[^,]*,[0-9.]+$' ||
        echo "Python: $python"
    $MPIRUN -np 2 "$vittrain" bench comm bench.output="$work/comm.csv" bench.max=8 bench.seconds=0 >/dev/null
    [ "$(head -n 1 comm.csv)" = "$bench_header" ] || echo "C: $(head -n 1 comm.csv)")"

cells() { awk -F, -v n="$1" 'NF != n { print "line " NR " has " NF " cells" }' "$2"; } # NUMBER FILE
printf '%s\n2026-01-02T03:04:05,cpu,abc,vittrain,1,start,m,1,fp32,ddp,2,1,old,0.5,s\n2026-01-02T03:04:06,cpu,ab' "$old_header" >bench.csv
BENCH_CSV=$work/bench.csv BENCH_WORKS=cnn_a:8 "$here/bench" quick step >bench.log 2>&1
status=$?
result 'bench adds rows to an old, torn table' "$(
    [ $status = 0 ] || echo "exit status $status"
    [ "$(head -n 1 bench.csv)" = "$bench_header" ] || echo "another header"
    sed -n 2p bench.csv | grep -q '^2026-01-02T03:04:05,.*,old,0.5,s,,,,,,$' || echo "the old row is another: $(sed -n 2p bench.csv)"
    ! grep -q 03:04:06 bench.csv || echo "half a line stayed"
    cells 21 bench.csv
    grep -qE '^[0-9]+ rows in [0-9]+ s; 0 failed$' bench.log || echo "no sum"
    [ "$(grep -c ',training step,cnn_a,8,.*,none,1,[0-9]*,step,[0-9.e-]*,s,1,' bench.csv)" -ge 1 ] || echo "no row of a step")" bench.log
BENCH_CSV=$work/none.csv BENCH_LIMIT=0 "$here/bench" quick step >bench.log 2>&1
result 'bench stops at its limit and names what it did not reach' "$(
    [ "$(grep -c '^not measured: step of .*: 0 s were over$' bench.log)" = 10 ] || echo "not ten")" bench.log
echo 'epoch,loss' >other.csv
BENCH_CSV=$work/other.csv "$here/bench" quick step >bench.log 2>&1
status=$?
result 'another table is refused and left alone' "$(
    [ $status = 2 ] || echo "exit status $status"
    [ "$(cat other.csv)" = epoch,loss ] || echo "it is changed"
    grep -q 'other columns' bench.log || echo "not told")" bench.log

# ---- Reading.
row_at() { # DATE WORK MODEL BATCH STRATEGY RANKS METRIC VALUE UNIT LOAD
    echo "$1,A processor (4 cores),1234567,vittrain,0.1.0,$2,$3,$4,bf16,$5,$6,1,$7,$8,$9,1,host,4,16,,${10}"
}
{
    echo "$bench_header"
    for ranks in 1 2 4; do
        row_at 2026-01-01T00:00:0$ranks "weak scaling" vit_cifar 64 ddp $ranks speed $((ranks * 90)) images/s 0
        row_at 2026-01-01T00:00:0$ranks "weak scaling" vit_cifar 64 ddp $ranks efficiency 0.9 x 0
    done
    row_at 2026-01-01T00:01:00 "training step" cnn_b 64 none 1 step 9 s 0
    row_at 2026-01-01T00:02:00 "training step" cnn_b 64 none 1 step 0.5 s 9
    row_at 2026-01-01T00:02:00 "training step" cnn_b 64 none 1 computing 0.4 s 9
    row_at 2026-01-01T00:02:00 "training step" cnn_b 64 none 1 "data wait" 0.05 s 9
    for size in 8 1024 65536; do
        for way in ring shared; do row_at 2026-01-01T00:03:00 all_reduce "$size bytes" "" $way 2 "bus bandwidth" 0.$size GB/s 0; done
        row_at 2026-01-01T00:03:00 all_reduce "$size bytes" "" ring 2 time 1e-5 s 0
    done
    row_at 2026-01-01T00:04:00 "fc1 8x8x8" vit_cifar "" none 1 speed 100 GFLOP/s 0
    row_at 2026-01-01T00:04:00 "fc1 8x8x8" vit_cifar "" none 1 intensity 50 FLOP/B 0
    row_at 2026-01-01T00:04:00 "memory: adding tensors" "" "" none 1 bandwidth 10 GB/s 0
} >good.csv
{ sed "1s/\$/,colour/; 2,\$s/\$/,red/" good.csv; printf '2026-01-01T00:05:00,A proc'; } >torn.csv
: >empty.csv
table_rows torn.csv >read 2>output
table_rows good.csv >expected
result 'a torn line and unknown columns are told, the rest is read' "$(
    cmp -s read expected || echo "other rows"
    grep -q 'torn.csv: its last line is torn: left out' output || echo "torn is not told"
    grep -q 'torn.csv: unknown columns, not looked at: colour' output || echo "unknown columns are not told")" output
{ table_rows empty.csv other.csv nothing.csv; for name in step scaling comm-transports; do table_rows "$here/results/$name-2026-11-21.csv"; done | wc -l; } >read 2>output
result 'empty and other tables are named; those of results/ are read' "$(
    [ "$(wc -l <output)" = 3 ] || echo "not three complaints"
    [ "$(cat read)" = 548 ] || echo "$(cat read) rows, not 548")" output

# ---- Markdown.
printf 'before\n<!-- figures: begin -->\nold\n<!-- figures: end -->\nafter\n' >page.md
"$here/table" --into page.md good.csv torn.csv 2>output
result 'table writes the newest figures between its marks' "$(
    [ "$(head -n 1 page.md; tail -n 1 page.md)" = "$(printf 'before\nafter')" ] || echo "the rest is changed"
    ! grep -q '^old$' page.md || echo "old figures stayed"
    grep -qF '| cnn_b | 64 | bf16 | none | 1 x 1 | 500 ms * | 128 |  | 10.0 % |  |' page.md || echo "step"
    grep -qF '| weak scaling | vit_cifar | bf16 | ddp | 4 | 360 | 0.9 |' page.md || echo "scaling"
    grep -qF '| all_reduce | 2 | 10 us | 0.655 GB/s |  | 0.655 GB/s |' page.md || echo "communication")" page.md
echo 'no marks' >plain.md
"$here/table" --into plain.md good.csv >output 2>&1
status=$?
result 'table leaves a page without marks alone' "$([ $status = 2 ] && [ "$(cat plain.md)" = 'no marks' ] || echo "status $status")" output

# ---- Pictures.
if command -v gnuplot >/dev/null; then
    # The same step on two processors, here and in PyTorch.
    for processor in 'B CPU(R) Processor' 'A processor'; do
        row_at 2026-01-01T02:00:00 "training step" cnn_b 64 none 1 step 0.5 s 0 | sed "s/A processor/$processor/"
        row_at 2026-01-01T02:00:00 "training step" cnn_b 64 none 1 step 0.9 s 0 | sed "s/A processor/$processor/; s/,vittrain,/,pytorch-eager,/"
    done >torn-history
    # History needs one.
    if git init -q repository 2>/dev/null && cp -r "$here" repository 2>/dev/null; then
        rm -rf repository/benchmarks/results
        for seconds in 0.5 0.4; do
            (cd repository && git add -A && git -c user.name=t -c user.email=t@localhost commit -q --allow-empty -m "$seconds")
            commit=$(git -C repository rev-parse --short=7 HEAD)
            row_at 2026-01-01T01:00:00 "training step" cnn_b 64 none 1 step $seconds s 0 | sed "s/1234567/$commit/" >>torn-history
        done
        plot=repository/benchmarks/plot
        drawn="scaling roofline breakdown history communication pytorch"
    else
        plot=$here/plot drawn="scaling roofline breakdown communication pytorch"
    fi
    { cat good.csv torn-history; printf '2026-01'; } >history.csv
    bash $plot -o pictures history.csv empty.csv >output 2>&1
    status=$?
    result 'plot draws what there is as PNG and SVG' "$(
        [ $status = 0 ] || echo "exit status $status"
        for name in $drawn; do
            [ "$(head -c 4 pictures/$name.png | tail -c 3)" = PNG ] || echo "$name.png"
            grep -q '</svg>' pictures/$name.svg || echo "$name.svg"
        done
        grep -q '>vit_cifar, ddp, bf16, weak<' pictures/scaling.svg || echo "no name of a series"
        grep -q '>ideal<' pictures/scaling.svg || echo "no ideal line"
        grep -q '>shared<' pictures/communication.svg || echo "no transport"
        grep -q '>16 B<' pictures/communication.svg && ! grep -q '>broadcast<' pictures/communication.svg || echo "sizes"
        [ "$(grep -o '>[AB] [^<]*: cnn_b, batch 64, bf16, 1 thread<' pictures/pytorch.svg | tr -d '\n')" = \
            '>A processor: cnn_b, batch 64, bf16, 1 thread<>B CPU: cnn_b, batch 64, bf16, 1 thread<' ] || echo "rows of processors"
        grep -q 'scaling is not drawn' output && echo "it is printed that it is not drawn"
        bash $plot -o pictures empty.csv >/dev/null 2>&1 && echo "success where there is nothing"
        grep -q 'torn: left out' output && grep -q 'empty.csv: empty' output || echo "not told")" output
    mkdir run
    printf 'epoch,step,split,step_seconds,data_seconds,compute_seconds,exposed_comm_seconds\n0,1,train,9,0,9,0\n0,2,train,9,0,9,0\n0,3,train,0.2,0.1,0.08,0.01\n0,4,tr' >run/metrics.csv
    bash "$here/plot" -o of_run run >output 2>&1
    result "plot draws a run's steps, torn as its table is" "$(
        grep -q '>run (200 ms)<' of_run/breakdown.svg || echo "no bar of the run"
        [ "$(find of_run -name '*.png' | wc -l)" = 1 ] || echo "more than that"
        grep -q 'scaling is not drawn: no rows of scaling' output || echo "what is missing is not told")" output
else
    result 'pictures # SKIP no gnuplot'
fi
# ---- Paired times. Limits of signed ranks: 6 pairs have the smallest and largest, 10 the 9th of 55 means from each end.
localedef -i de_DE -f UTF-8 "$work/de_DE.UTF-8" >output 2>&1 # a decimal comma must not matter; not installed everywhere
judged() { # STATUS PATTERN FILE: what is not so
    LOCPATH=$work LC_ALL=de_DE.UTF-8 "$here/compare" --pairs "$3" >output 2>&1
    status=$?
    [ $status = "$1" ] || echo "exit status $status, not $1;"
    grep -qE "$2" output || echo "$(cat output), not $2"
}
printf '1 %s\n' 1.10 1.12 1.14 1.11 1.13 1.15 >pairs
result 'six pairs: their smallest and largest ratio' \
    "$(judged 1 'regression: B takes 1\.1249 of the time of A \(1\.1000 to 1\.1500 with 96\.9 %, 6 pairs\)' pairs)"
printf '%s\n' '1 1.01' '1 0.99' '1 1.02' '1 0.98' '1 1.005' '1 0.995' '1 1.015' '1 0.985' '1 1.0025' '1 0.9975' >pairs
result 'ten pairs about one: no difference' "$(judged 0 'no difference: .* \(0\.99[0-9]* to 1\.0[01][0-9]* with 95\.1 %, 10 pairs\)' pairs)"
{ cat pairs pairs; echo '1 40'; } >disturbed
result 'one run that was disturbed changes little' "$(judged 0 'no difference' disturbed)"
result 'too few, or too different pairs: it cannot be told' "$(
    printf '1 2\n1 2\n' >few
    judged 77 'inconclusive: 2 pairs' few
    printf '%s\n' '1 2' '2 1' '1 3' '3 1' '1 1.5' '1.5 1' >wild
    judged 77 inconclusive wild
    awk '{ print $2, $1 * 0.5 }' disturbed >faster
    judged 0 faster faster)"
mkdir -p built && ln -s "$vittrain" built/vittrain
PAIRS=1 STEPS=2 BENCH_CSV=$work/paired.csv "$here/compare" built built cnn_a:8:1 >output 2>&1
status=$?
"$here/compare" no_such_commit built >unknown 2>&1
result 'compare runs programs in pairs, and knows what is no commit' "$(
    [ $status = 77 ] && grep -q '^cnn_a:8:1: inconclusive: 1 pairs' output || echo "exit status $status"
    grep -q 'no_such_commit is no commit' unknown || echo "$(cat unknown)")" output
