#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# system
# Every command of README.md and docs/*.md runs, or a comment gives the reason why it does not (book_page.sh). The pages of
# one list of docs/README.md run in this order in one copy that is not cleaned, with TEST_LONG=1 all pages in one copy, as
# a reader would. Links have targets; options and files named in the pages exist.
#   test_book.sh [docs/PAGE.md ...]    only the commands of these pages. PYTHON: the interpreter for Python blocks
. "$TEST_SOURCE/test/support/program.sh"

cd "$TEST_SOURCE" || exit 1
every_page=$(ls README.md docs/*.md)
mkdir "$work/bin"

# Stand-ins that make printed commands small. Training uses 2 % of the sample and, without a deck, a model of one
# block; mpirun starts at most two ranks.
cat >"$work/bin/vittrain" <<END
#!/bin/sh
[ -z "\$BOOK_LITERAL" ] || exec "$vittrain" "\$@"
command=train own=no
for word; do
    case \$word in
    -*) command=none ;;
    model.* | *.ini) own=yes ;;
    *=*) ;;
    *) command=\$word && break ;;
    esac
done
case \$command in
train)
    small="debug.fraction=0.02 run.threads=1 output.log_every=1"
    [ \$own = yes ] || small="\$small model.dim=32 model.depth=1 model.heads=2"
    exec "$vittrain" "\$@" \$small \$BOOK_WITH ;;
eval | predict) exec "$vittrain" "\$@" debug.fraction=0.04 run.threads=1 \$BOOK_WITH ;;
*) exec "$vittrain" "\$@" \$BOOK_WITH ;;
esac
END
set -- "$@"
launcher=${MPIRUN:-mpirun}
cat >"$work/bin/mpirun" <<END
#!/bin/sh
ranks=
while :; do
    case \$1 in
    -np)
        ranks=\$2
        [ "\${TEST_LONG:-0}" = 1 ] || [ \$ranks -le 2 ] || ranks=2
        ;;
    -hostfile) [ "$TEST_MPI" = mpich ] || break ;; # MPICH cannot read a host file of Open MPI
    *) break ;;
    esac
    shift 2
done
exec $(command -v ${launcher%% *}) $(case $launcher in *' '*) echo "${launcher#* }" ;; esac) \${ranks:+-np \$ranks} "\$@"
END
chmod +x "$work/bin/vittrain" "$work/bin/mpirun"
PATH=$work/bin:$PATH
export PATH work

# say FILE: convert the results of book_page.sh to TAP.
say() {
    while IFS= read -r line; do
        number=$((number + 1))
        reason=${line#* # }
        case $line in
        ok*) printf 'ok %d - %s\n' $number "${line#ok }" ;;
        skip*) line=${line#skip } && printf 'ok %d - %s # SKIP %s\n' $number "${line%% # *}" "$reason" ;;
        *)
            line_=${line#not ok } && printf 'not ok %d - %s\n# %s\n' $number "${line_%% # *}" "${reason%% #*}"
            tail -n 40 "${line##* #}" | sed 's/^/# /'
            ;;
        esac
    done <"$1"
}

# order: print the number of a copy and a page per line: README.md, then the pages in the order of docs/README.md.
order() {
    echo "1 README.md"
    awk -v long="${TEST_LONG:-0}" '
        BEGIN { copy = 1 }
        /^(Running|Developing|Reference)/ && long != 1 { copy = /^Running/ ? 2 : 3 }
        { while (match($0, /\]\([a-z-]*\.md\)/)) {
            page = substr($0, RSTART + 2, RLENGTH - 3)
            if (!seen[page]++) print copy, "docs/" page
            $0 = substr($0, RSTART + RLENGTH)
        } }' docs/README.md
    echo "1 docs/README.md"
}

for page; do [ -e "$page" ] || { echo "Bail out! no page $page" && exit 1; }; done
if [ $# -gt 0 ]; then printf '1 %s\n' "$@" >"$work/order"; else order >"$work/order"; fi
pages=$(cut -d' ' -f2 "$work/order")
cut -d' ' -f1 "$work/order" | sort -u | xargs -P 2 -I COPY sh -c 'sed -n "s/^COPY //p" "$work/order" | while read -r page; do
    sh "$TEST_SOURCE/test/docs/book_page.sh" "$page" "$work/copy-COPY" >"$work/output-$(echo "$page" | tr / _)" </dev/null
done'
for page in $pages; do say "$work/output-$(echo "$page" | tr / _)"; done

# ---- Links, options and files named in the pages.
"$vittrain" --help | sed -n 's/^  \([a-z_]*\.[a-z0-9_]*\) = .*/\1/p' >"$work/keys"
sections=$(cut -d. -f1 "$work/keys" | sort -u | tr '\n' '|' | sed 's/|$//')

# anchors PAGE: the anchors of its headings, as GitHub makes them.
anchors() { sed -n 's/^#\{1,6\} //p' "$1" | tr '[:upper:]' '[:lower:]' | sed 's/[^a-z0-9 _-]//g; s/ /-/g'; }

links_of() {
    grep -oE '\]\([^)]+\)' "$1" | sed 's/^](//; s/)$//' | grep -vE '^[a-z]+:' | while read -r link; do
        file=$(dirname "$1")/${link%%#*}
        case $link in '#'*) file=$1 ;; esac
        [ -e "$file" ] || { echo "$1: $link: no such page" && continue; }
        case $link in *'#'*) anchors "$file" | grep -qx -- "${link#*#}" || echo "$1: $link: no such heading" ;; esac
    done
}

# Options such as train.batch, except file names (train.log), calls (run.log(...)) and words that the page marks as no option.
keys_of() {
    grep -oE "(^|[^A-Za-z0-9_./-])($sections)\.[a-z0-9_]+([^a-z0-9_]|\$)" "$1" | grep -vE '[(]$' |
        grep -oE "($sections)\.[a-z0-9_]+" | sort -u |
        grep -vE '\.(log|json|csv|md|c|h|cu|py|ini|h5|svg|html|txt|safetensors)$' | while read -r key; do
        grep -qx "$key" "$work/keys" || grep -q "^<!-- no option: .*$key" "$1" || echo "$1: $key is no option"
    done
}

files_of() {
    grep -oE '(^|[^A-Za-z0-9_./-])(src|test|docs|input|jobs|tools|benchmarks|cuda|m4)/[A-Za-z0-9_./-]*[A-Za-z0-9_]' "$1" |
        grep -oE '(src|test|docs|input|jobs|tools|benchmarks|cuda|m4)/.*' | grep -vxE 'test/(loss|acc)[a-z0-9_]*' | sort -u | while read -r file; do
        ls -d "$file"* >/dev/null 2>&1 || grep -q "^+++ b/$file" docs/examples/*.patch 2>/dev/null || echo "$1: $file is not there"
    done
}

# Each example has its own run folder: two pages with the same one could not be followed one after the other.
shared_folders() {
    grep -ohE 'run\.dir=[a-zA-Z0-9_/-]+' $every_page | sort -u | while read -r folder; do
        using=$(grep -lE "$folder( |\$)" $every_page | paste -s -d ' ')
        case $using in *' '*) echo "$folder: $using" ;; esac
    done
}

# Sections of the report: "under *TITLE*", and the table of report.md.
titles_of_report() {
    grep -ohE 'under \*[^*]+\*' $every_page | sed 's/^under \*//; s/\*$//'
    sed -n '/^| section/,/^$/s/^| \([A-Z][^|]*[^| ]\) *|.*/\1/p' docs/report.md
}

if [ $# -eq 0 ]; then
    result "docs/README.md lists every page" "$(for page in $every_page; do echo "$pages" | grep -qx "$page" || echo "$page"; done)"
    shared_folders >"$work/wrong"
    result "no two pages write to the same run folder" "$(head -n 1 "$work/wrong")" "$work/wrong"
    for page in $every_page; do links_of "$page"; done >"$work/links"
    result "links of the book lead somewhere" "$(head -n 1 "$work/links")" "$work/links"
    for page in $every_page; do keys_of "$page"; done >"$work/wrong"
    result "options that the book names exist" "$(head -n 1 "$work/wrong")" "$work/wrong"
    for page in $every_page; do files_of "$page"; done >"$work/wrong"
    result "files that the book names exist" "$(head -n 1 "$work/wrong")" "$work/wrong"
    result "sections of the report that the book names exist" "$(titles_of_report | while read -r title; do
        cat tools/report*.py | grep -qF "$title" || echo "$title"
    done)"
    if command -v patch >/dev/null; then
        bad=$(for patch in docs/examples/*.patch; do
            patch -p1 -F0 --dry-run -f <"$patch" >"$work/patch" 2>&1 || { echo "$patch" && cat "$work/patch" >>"$work/patches"; }
        done)
        result "the examples fit the sources" "$bad" "$work/patches"
    else
        result 'the examples fit the sources # SKIP needs patch'
    fi
    if command -v mandoc >/dev/null; then
        result "mandoc finds nothing wrong with the manual page" "$(mandoc -T lint packaging/vittrain.1 2>/dev/null | head -n 1)"
    fi
    bad=$("$vittrain" --help | sed -n '/^Commands/,/^$/s/^  \([a-z]*\) .*/\1/p' | while read -r command; do
        grep -q "^\.It Cm.*$command" packaging/vittrain.1 || echo "$command"
    done)
    result "the manual page has all commands" "$bad"
fi
