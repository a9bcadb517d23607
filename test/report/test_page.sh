#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# tools/report.py: pages of written run folders (check_page.py) and of real runs, its arguments, and the curve of `find lr`.
. "$TEST_SOURCE/test/support/program.sh"
needs python3
PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE

# report NAME WORD...: run report.py; set $status, write its output to $work/NAME.out and $work/NAME.log.
report() {
    run_log=$work/$1.log out=$work/$1.out
    shift
    timeout $time_limit python3 "$TEST_SOURCE/tools/report.py" "$@" >"$out" 2>"$run_log"
    status=$?
}

mkdir folders
timeout $time_limit python3 "$TEST_SOURCE/test/report/check_page.py" "$TEST_SOURCE/tools" "$work/folders" >checks 2>checks.log
status=$?
while IFS='|' read -r name problem; do result "report.py: $name" "$problem"; done <checks
result 'all checks ran' "$(ended)" checks.log

for strategy in ddp fsdp; do
    run 2 $strategy $small train.epochs=2 run.dir=$strategy mesh.strategy=$strategy train.test=on output.monitor=0.2 \
        data.val=reference output.logbook=
    result "a run, $strategy" "$(ended)" "$run_log"
done

report pair ddp fsdp report.csv=pair.csv output.logbook=
result 'a page of two runs; the command prints its path' \
    "$(ended; has "$out" '^report: report.html$'; [ "$(wc -l <"$out")" = 1 ] || echo 'more lines')" "$run_log"

# The figures of the CSV file and the matrices of the page are those of result.json.
cat >compare.py <<'END_OF_SCRIPT'
import csv, json, re
page = open("report.html", encoding="utf-8").read()
for letter, row in zip("AB", csv.DictReader(open("pair.csv"))):
    result = json.load(open(row["run"] + "/result.json"))
    test = result["test"]
    wanted = dict(result, test_top1=test["top1"], test_loss=test["loss"], macro_f1=test["macro"]["f1"])
    for key in "total_seconds steps parameters test_top1 test_loss macro_f1".split():
        if abs(float(row[key]) - wanted[key]) > 1e-8 * abs(wanted[key]):
            print("%s of %s: %s, not %s;" % (key, row["run"], row[key], wanted[key]))
    body = re.search('<div id="confusion-%s">(.*?)</table>' % letter, page, re.S).group(1)
    if re.findall(">([0-9]+)</b>", body) != [str(cell) for line in test["confusion_matrix"] for cell in line]:
        print("the matrix of %s;" % row["run"])
    if page.count(", step %d" % test["step"]) < 2:
        print("no weights of %s;" % row["run"])
END_OF_SCRIPT
result 'figures and matrices are those of result.json' "$(python3 compare.py 2>&1 | tr '\n' ' ')" pair.csv

report single ddp output.logbook=book
result 'the page of one run is in its folder, and one in the log book' "$(ended; [ -s ddp/report.html ] && [ -s book/ddp.md ] ||
    echo none)" "$run_log"

cat >find_lr.csv <<'END_OF_TABLE'
step,rate,loss,smoothed
1,1e-05,2.3,2.3
2,1e-03,2.0,2.1
3,1e-01,9.0,4.0
END_OF_TABLE
report find find_lr.csv
result 'the curve of find lr' "$(ended; has find_lr.html 'smoothed 2.1' '>learning rate<' '</svg>')" "$run_log"

printf 'step\n1\n' >other.csv
mkdir broken newer
sed 's/"total_steps": [0-9]*/"total_steps": 1e999/' ddp/result.json >broken/result.json
sed 's/"format": 2/"format": 3/' ddp/result.json >newer/result.json
bad=
while read -r code name words; do
    report wrong $words
    bad=$bad$(ended "$code"; has "$run_log" "^report: error: .*$name"; [ "$(wc -l <"$run_log")" = 1 ] || echo "$words: more lines;")
done <<'END_OF_LIST'
2 RUN 
2 report.outptu report.outptu=x ddp
2 report.format ddp report.format=none
5 nowhere nowhere
5 book book
5 no/such/page.html ddp report.output=no/such/page.html
5 no/such.csv ddp report.csv=no/such.csv
5 other.csv other.csv
5 damaged broken report.csv=broken.csv
5 newer.*format.3 newer
END_OF_LIST
result 'wrong arguments are errors of one line' "$bad"

echo text >book.file
report no_book fsdp output.logbook=book.file
result 'a log book that cannot be written is a warning' "$(ended; has "$run_log" '^report: warning: .*book.file')" "$run_log"

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || {
    result 'in a browser # SKIP no chromium'
    exit 0
}
# Around the page, a script reads its width with all sections open; the page has no scripts.
{
    echo '<!DOCTYPE html><html><body>'
    for width in 1280 390; do
        echo "<iframe style=\"width:${width}px;height:900px;border:0\" srcdoc=\"$(sed 's/&/\&amp;/g; s/"/\&quot;/g' report.html)\"></iframe>"
    done
    cat <<'END_OF_SCRIPT'
<script>addEventListener("load", () => {
    let text = "";
    for (const frame of document.querySelectorAll("iframe")) {
        const page = frame.contentDocument;
        for (const section of page.querySelectorAll("details")) section.open = true;
        text += `page ${frame.contentWindow.innerWidth} ${page.documentElement.scrollWidth};`;
    }
    document.body.append(Object.assign(document.createElement("pre"), { textContent: text }));
})</script></body></html>
END_OF_SCRIPT
} >wall.html
browse() { timeout $time_limit "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$work/browser" "$@" 2>browser.log; }
browse --window-size=1700,1000 --dump-dom "file://$work/wall.html" >dom
browse --no-pdf-header-footer --print-to-pdf="$work/page.pdf" "file://$work/report.html" >/dev/null
wide=$(grep -o 'page [0-9]* [0-9]*;' dom | sort -u | tr '\n' ' ')
result 'neither a wide nor a narrow page scrolls sideways' \
    "$([ "$wide" = 'page 1280 1280; page 390 390; ' ] || echo "$wide")" browser.log
pages=$(grep -ac '/Type */Page$' page.pdf) # closed sections would fill less than two pages
result 'it is printed with the closed sections' "$([ "${pages:-0}" -ge 4 ] && [ "$pages" -le 12 ] || echo "$pages pages")" browser.log
