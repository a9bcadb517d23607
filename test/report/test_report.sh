#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# `vittrain report` for a DDP/FSDP pair and for interrupted runs. Then the page in a browser (headless chromium): at the
# width of a desktop and of a phone, light and dark, and printed. The screenshots are compared with metrics.csv and
# result.json.
. "$TEST_SOURCE/test/support/program.sh"

# report NAME WORD...: runs `vittrain report`; writes its output to $work/NAME.out and its log to $work/NAME.log.
report() {
    run_log=$work/$1.log out=$work/$1.out
    shift
    timeout $time_limit "$vittrain" report "$@" >"$out" 2>"$run_log"
    status=$?
}

cd "$work" || exit 1
for strategy in ddp fsdp; do
    run 2 $strategy $small train.epochs=2 run.dir=$strategy mesh.strategy=$strategy train.test=on output.monitor=0.2 \
        data.val=reference
    result "a run, $strategy" "$([ $status = 0 ] || echo "exit status $status")" "$run_log"
done

# ---- the command

report pair ddp fsdp report.csv=pair.csv
bad=$([ $status = 0 ] || echo "exit status $status")
[ -s report.html ] || bad="$bad; no report.html"
grep -qx 'report: report.html' "$out" && ! grep -q '^|' "$out" || bad="$bad; no path, or a table"
result 'a page of two runs; the command prints its path' "$bad" "$run_log"

# field ROW NAME: prints a number of pair.csv. Texts with commas are in quotes.
field() {
    sed 's/"[^"]*"//g' pair.csv |
        awk -F, -v row="$1" -v name="$2" 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i } NR == row + 1 { print $at[name] }'
}
# json RUN KEY: prints a number at the top level of result.json.
json() { sed -n "s/^ \"$2\": \([0-9.e+-]*\),*\$/\1/p" "$1/result.json"; }
# same A B: succeeds if the numbers agree to their written precision.
same() { awk -v a="$1" -v b="$2" 'BEGIN { gap = a - b; if (gap < 0) gap = -gap; exit !(a != "" && gap <= 1e-8 * a) }'; }
bad=
for key in total_seconds images_per_second steps; do
    same "$(field 1 $key)" "$(json ddp $key)" && same "$(field 2 $key)" "$(json fsdp $key)" || bad="$bad $key"
done
same "$(field 2 speed_up)" "$(awk -v a="$(json ddp images_per_second)" -v b="$(json fsdp images_per_second)" 'BEGIN { printf "%.9g", b / a }')" ||
    bad="$bad speed_up"
result 'report.csv has the figures of result.json' "$bad" pair.csv

report single ddp output.logbook=book
result 'the page of one run is in its folder, and one in the log book' \
    "$([ $status = 0 ] && [ -s ddp/report.html ] && [ -s book/ddp.md ] || echo "exit status $status, or none")" "$run_log"

mkdir cut && cp -r ddp/metrics.csv ddp/train.log ddp/monitor.csv cut
head -c -20 ddp/metrics.csv >cut/metrics.csv
report cut cut ddp report.output=cut.html
bad=$([ $status = 0 ] || echo "exit status $status")
grep -q 'metrics.csv: the incomplete last line is skipped' cut.html && grep -q 'interrupted or still running' cut.html || bad="$bad; lines are missing"
result 'the report of an interrupted run shows the available data' "$bad" "$run_log"

bad=
while read -r code pattern words; do
    report wrong $words
    [ $status = "$code" ] && grep -q "^vittrain: error: .*$pattern" "$run_log" || bad="$bad '$words': status $status;"
done <<END
2 no.run.given
2 did.you.mean report.outptu=x ddp
5 nowhere nowhere
5 no/such ddp report.output=no/such/page.html
END
result 'wrong arguments are errors' "$bad" "$run_log"

mkdir many
for i in $(seq 28); do
    cp -r ddp many/$i
done
report many many/* report.output=many.html
bad=$([ $status = 0 ] || echo "exit status $status")
grep -q 'id="confusion-AB"' many.html && grep -q '<b>AA</b>' many.html || bad="$bad; no run AB"
result 'a report of 28 runs' "$bad" "$run_log"

run 2 ranks report ddp
result 'with several ranks one writes it' "$([ $status = 0 ] && [ "$(grep -c '^report: ddp/report.html$' "$run_log")" = 1 ] || echo "status $status, or twice")" "$run_log"

# ---- in a browser

for browser in chromium chromium-browser google-chrome ''; do
    command -v "${browser:-true}" >/dev/null && break
done
if [ -z "$browser" ]; then
    for name in curves 'curves, dark' values phone 'phone, dark' 'no scrolling sideways' colours matrices printing; do
        number=$((number + 1))
        echo "ok $number - in a browser: $name # SKIP no chromium"
    done
    exit 0
fi

# browse NAME WORD...: runs the browser; its output is $work/NAME.dom.
browse() {
    name=$1
    shift
    timeout $time_limit "$browser" --headless --no-sandbox --disable-gpu --no-first-run --hide-scrollbars --force-device-scale-factor=1 \
        --user-data-dir="$work/browser-$name" "$@" >"$work/$name.dom" 2>"$work/$name.browser"
}

# One screenshot shows both widths side by side, with one section open. The surrounding page has a script that lists the
# positions of the charts, the cells of the matrices and the width with all sections open; the reports have no scripts.
{
    echo '<!DOCTYPE html><html><head><meta name="color-scheme" content="light dark"><style>body{margin:0;display:flex}iframe{border:0;height:4700px;flex:none}</style></head><body>'
    for width in 1280 390; do
        echo "<iframe style=\"width:${width}px\" srcdoc=\"$(sed 's/<details id="details"/<details open id="details"/; s/&/\&amp;/g; s/"/\&quot;/g' report.html)\"></iframe>"
    done
    cat <<'END'
<script>addEventListener("load", () => {
    let text = "";
    for (const frame of document.querySelectorAll("iframe")) {
        const page = frame.contentDocument, width = frame.contentWindow.innerWidth;
        for (const chart of page.querySelectorAll("svg[data-frame]")) {
            const box = chart.getBoundingClientRect(), unit = box.width / chart.viewBox.baseVal.width;
            const [, , right, bottom] = chart.dataset.frame.split(" ").map(Number);
            const under = page.elementFromPoint(box.left + unit * (right - 2), box.top + unit * (bottom - 9));
            text += `under ${width} ${chart.id} ${under?.closest(".at")?.textContent.replaceAll("\n", ";")};\n`;
            text += `chart ${width} ${chart.id} ${box.left} ${box.top} ${unit} ${chart.dataset.frame} ${chart.dataset.range}\n`;
        }
        for (const cell of page.querySelectorAll("tbody[id^=confusion] td"))
            text += `cell ${width} ${cell.closest("tbody").id} ${cell.textContent}\n`;
        const closed = page.querySelectorAll("details:not([open])");
        for (const section of closed) section.open = true;
        text += `page ${width} ${page.documentElement.scrollWidth}\n`;
        for (const section of closed) section.open = false;
    }
    document.body.append(Object.assign(document.createElement("pre"), { hidden: true, textContent: text }));
})</script></body></html>
END
} >wall.html
wall="--window-size=1670,4700 file://$work/wall.html"
browse dark --screenshot="$work/dark.png" --blink-settings=preferredColorScheme=0 $wall &
browse light --screenshot="$work/light.png" --dump-dom $wall
browse print --no-pdf-header-footer --print-to-pdf="$work/page.pdf" "file://$work/report.html"
wait $!
sed -n '/<pre hidden="">under/,$ { s/.*<pre hidden="">//; s/<.pre>.*//; p; }' light.dom >places

# areas WIDTH CHART COLUMN RUN COLOUR PAPER: prints areas for look_at_picture, alternately around a training point of the
# curve and around its mirror image.
areas() {
    grep "^chart $1 $2 " places >place
    column "$4/metrics.csv" train "$3" >points
    { case $2 in *-time) column "$4/metrics.csv" train elapsed_seconds ;; *) sed 's/ .*//; s/.*/& &/' points ;; esac } |
        paste -d' ' - points | awk -v colours="$5 $6" '
        FNR == NR {
            left = $4 + ($2 == 390 ? 1280 : 0); top = $5; unit = $6
            fl = $7; ft = $8; fr = $9; fb = $10; x0 = $11; x1 = $12; y0 = $13; y1 = $14
            next
        }
        {
            x = left + unit * (fl + ($2 - x0) / (x1 - x0) * (fr - fl))
            share = ($4 - y0) / (y1 - y0)
            for (i = 0; i < 2; i++) {
                y = top + unit * (fb - (i == 0 ? share : 1 - share) * (fb - ft))
                printf "%d %d %d %d %s\n", x - 2, y - 2, x + 3, y + 3, colours
            }
        }' place -
}

# curves_differ WIDTH SCHEME PAPER A B: prints the curves that are not where metrics.csv has them. A and B are the colours
# of the runs. The second curve may cover parts of the first, and where the speed jumps, as on a busy machine, a curve is only
# one pixel wide. The loss must not match its mirror image.
curves_differ() {
    while read -r chart figure run colour least; do
        areas "$1" "$chart" "$figure" "$run" "$colour" "$3" >wanted
        "$TEST_BUILD/test/report/look_at_picture" "$2.png" <wanted | awk -v of="$chart of $run" -v least="$least" '
            NR % 2 == 1 { points++; there += $1 >= 3 }
            NR % 2 == 0 { mirrored += $1 >= 3 }
            END {
                if (points != 48 || there < least * points) print of ": " there + 0 " of " points + 0 " points;"
                if (of == "loss-steps of fsdp" && mirrored > points / 2) print of ": anywhere;"
            }'
    done <<END
loss-steps loss fsdp $5 0.8
loss-time loss ddp $4 0.5
loss-time loss fsdp $5 0.8
speed-steps images_per_second ddp $4 0.5
speed-steps images_per_second fsdp $5 0.8
END
}
for width in 1280 390; do
    result "curves match metrics.csv, $width wide" "$(curves_differ $width light ffffff 0067ac ce5400 | tr "\n" " ")"
    result "dark curves match metrics.csv, $width wide" "$(curves_differ $width dark 161a1f 53baff fd832f | tr "\n" " ")"
done

# The values at the right end of the large chart are the means of the last two rows of metrics.csv, as the last batch is short.
last() {
    for name in loss images_per_second step_seconds; do
        column "$1/metrics.csv" train $name | tail -n 2 >"last-$1.$name"
    done
    paste -d' ' "last-$1".* | awk '{ images = $2 * $6; sum += images * $4; all += images } END { printf "%.3f", sum / all }'
}
bad=
for width in 1280 390; do
    grep "^under $width loss-steps step 48;" places | grep ";A training $(last ddp);" | grep -q ";B training $(last fsdp);" || bad="$bad $width"
done
result 'the pointer finds the values' "$bad" places

wide=$(grep '^page' places | sort | tr '\n' ' ')
result 'neither width scrolls sideways' "$([ "$wide" = 'page 1280 1280 page 390 390 ' ] || echo "$wide")"

bad=
for corner in '2 2 12 12' '1282 2 1292 12'; do
    [ "$(echo "$corner ffffff ffffff" | "$TEST_BUILD/test/report/look_at_picture" light.png)" = 100 ] || bad="$bad $corner, light;"
    [ "$(echo "$corner 161a1f 161a1f" | "$TEST_BUILD/test/report/look_at_picture" dark.png)" = 100 ] || bad="$bad $corner, dark;"
done
result 'the background follows the colour scheme' "$bad"

# The second matrix of result.json belongs to the test split.
bad=
for run in 'A ddp' 'B fsdp'; do
    sed -n "s/^cell 1280 confusion-${run% *} //p" places >shown
    awk '/"confusion_matrix"/ { n++ } n == 2 && /^ *\[[0-9, ]*\],?$/ { print } n == 2 && /^  "/ && !/confusion/ { exit }' \
        "${run#* }/result.json" | grep -o '[0-9]*' >measured
    [ "$(wc -l <measured)" = 100 ] && cmp -s shown measured || bad="$bad ${run#* };"
done
result 'the matrices are those of result.json' "$bad" shown

# Closed sections would fill less than two pages.
pages=$(grep -ac '/Type */Page$' page.pdf)
result 'it is printed with the closed sections' "$([ "${pages:-0}" -ge 4 ] && [ "$pages" -le 12 ] || echo "$pages pages")" print.browser
