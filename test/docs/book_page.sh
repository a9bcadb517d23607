#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Run the commands of one page of the manual in order, in a folder that other pages may have used. Called by test_book.sh,
# which sets work and PATH and the environment of the stand-ins for `vittrain` and `mpirun`. Prints one line per block:
# `ok`, `not ok` or `skip`, the position, and the reason.
#   book_page.sh PAGE.md COPY
#
# Comments before a block control how it runs. Without a comment it runs unchanged and must succeed.
#   <!-- not run: REASON -->    not run by the tests
#   <!-- needs: WORD... -->     only if these programs exist; python:NAME is a Python module
#   <!-- literal -->            run by the program itself, at full length: not by the stand-in that shortens training
#   <!-- with: NAME -->         arguments of book_setup.sh added to each `vittrain`, to make it small
#   <!-- before: NAME -->       a function of book_setup.sh that is called first, to create what the reader already has
#   <!-- exits: N -->           must end with this status
#   <!-- tree -->               in a copy of the source tree that the page changes
#   <!-- long -->               only with TEST_LONG=1
#   <!-- output -->             not a command: part of the output of the block before. Numbers may differ; `...` matches any text
#   <!-- text -->               not a command, although it looks like one
# Python blocks run if the modules that they import are installed.

page=$1 copy=$2 long=${TEST_LONG:-0} python=${PYTHON:-python3}
folder=$work/$(echo "$page" | tr / _)
mkdir -p "$folder" || exit 1
TMPDIR=$(mktemp -d "$work/tXXX") # concurrent jobs conflict in a common one
export TMPDIR
awk -v folder="$folder" -f "$TEST_SOURCE/test/docs/book_blocks.awk" "$TEST_SOURCE/$page"
if mkdir "$copy" 2>/dev/null; then
    for name in docs input jobs test tools; do ln -s "$TEST_SOURCE/$name" "$copy/$name"; done
    ln -s "$work/bin/vittrain" "$copy/vittrain"
    # A cluster of one machine, and the data and weights that the reader has downloaded.
    echo "localhost slots=16" >"$copy/hosts"
    mkdir "$copy/data"
    for name in sample batches-bin; do ln -s "$TEST_BUILD/data/cifar-10-sample" "$copy/data/cifar-10-$name"; done
fi

# tell VERDICT [REASON [FILE]]: print the result of a block.
tell() { printf '%s %s%s%s\n' "$1" "$title" "${2:+ # $2}" "${3:+ #$3}"; }

# mark NAME: print the text of the block's comment `NAME: ...`.
mark() { sed -n "s/^$1: *//p" "$block.marks"; }
has() { grep -qx "$1" "$block.marks"; }

# first_word: the first word that is not an assignment.
first_word() {
    for word in $(head -n 1 "$block.text"); do
        case $word in *=*) ;; *) echo "$word" && return ;; esac
    done
}

kind_of_block() {
    has output && echo output && return
    has text && echo text && return
    case $(head -n 1 "$block.text") in "import "* | "from "*) echo python && return ;; esac
    word=$(first_word)
    case $word in
    vittrain | ./vittrain | mpirun | srun | sbatch | ./* | make | module | spack | docker | apptainer | ssh* | for | h5* | \
        tensorboard | wandb | aws | python* | export) echo command ;;
    *[!a-z0-9_-]* | '') echo text ;;
    *) command -v "$word" >/dev/null && echo command || echo text ;;
    esac
}

# missing_modules NAME...: print the Python modules that are not installed.
missing_modules() {
    "$python" -c 'import sys
from importlib.util import find_spec
for name in sys.argv[1:]:
    if find_spec(name.split(".")[0]) is None:
        print("Python'"'"'s", name)' "$@"
}

# missing: print the programs and modules that the block needs and that are not installed.
missing() {
    if has tree && [ "$TEST_SOURCE" != "$TEST_BUILD" ]; then echo "a build in the source's folder"; fi
    for word in $(mark needs); do
        case $word in
        python:*) missing_modules "${word#python:}" ;;
        *) command -v "$word" >/dev/null || echo "$word" ;;
        esac
    done
    if [ "$kind" = python ]; then
        modules=$(sed -n 's/^import \(.*\)/\1/p; s/^from \([a-z0-9_]*\).*/\1/p' "$block.text" | tr ',' ' ')
        missing_modules $modules
    fi
}

# make_tree: copy source and build to $folder/tree, with times for which make rebuilds nothing.
make_tree() {
    [ -d "$folder/tree" ] && return
    mkdir "$folder/tree"
    (cd "$TEST_SOURCE" && tar -cf - --exclude ./.git --exclude ./autom4te.cache --exclude './test/*.log' .) | tar -xf - -C "$folder/tree"
    # configure has written the path of the folder it ran in.
    (cd "$folder/tree" && for file in config.status Makefile; do sed -i "s|$TEST_BUILD|$folder/tree|g" $file || exit 1; done)
}

# arguments: print those of the block's `with`.
arguments() {
    . "$TEST_SOURCE/test/docs/book_setup.sh"
    for name in $(mark with); do eval "echo \"\${with_$name:-no=with_$name}\""; done
}

run_block() {
    expected=$(mark exits) where=$copy
    ! has tree || { make_tree && where=$folder/tree; }
    { echo ". '$TEST_SOURCE/test/docs/book_setup.sh'" && mark before | sed 's/^/before_/'; } >"$block.script"
    if [ "$kind" = python ]; then
        echo "'$python' '$block.text'" >>"$block.script"
    else
        cat "$block.text" >>"$block.script"
    fi
    literal=
    ! has literal || literal=yes
    (cd "$where" && unset MAKEFLAGS MAKELEVEL && HOME=$PWD BOOK_LITERAL=$literal BOOK_WITH=$(arguments) timeout 2400 sh -e "$block.script") \
        >"$block.log" 2>&1 </dev/null
    status=$?
    newest=$block.log
    [ $status -eq "${expected:-0}" ] && tell ok || tell "not ok" "exit status $status" "$block.log"
}

# Numbers, their units and spaces are not compared.
without_numbers() { sed 's/[-+]\{0,1\}[0-9][0-9.,e+-]*/N/g; s/N [mu]s/N s/g; s/N [KMG]iB/N MiB/g; s/  */ /g; s/ *$//; s/^ *//' "$1"; }

check_output() {
    without_numbers "$newest" >"$block.log"
    without_numbers "$block.text" | grep -v '^\.\.\.$' | grep -v '^$' >"$block.lines"
    lost=$(awk '
        NR == FNR { log_line[++lines] = $0; next }
        # The texts between `...` must follow each other in one line of the log.
        function found(text, line, pieces, count, i, at) {
            count = split(text, pieces, /\.\.\./)
            for (i = 1; i <= count; i++) {
                if (!(at = index(line, pieces[i])) && pieces[i] != "") return 0
                line = substr(line, at + length(pieces[i]))
            }
            return 1
        }
        { for (i = 1; i <= lines && !found($0, log_line[i]); i++); if (i > lines) { print; exit } }' "$block.log" "$block.lines")
    [ -z "$lost" ] && tell ok || tell "not ok" "not printed: $lost" "$newest"
}

for file in "$folder"/*.text; do
    [ -e "$file" ] || break
    block=${file%.text}
    title="$page:$(cat "$block.line"): $(head -n 1 "$file" | cut -c 1-90 | tr '#' ' ')"
    kind=$(kind_of_block)
    reason=$(mark 'not run')
    [ $kind = text ] && continue
    if [ -n "$reason" ]; then
        tell skip "$reason"
    elif has long && [ "$long" != 1 ]; then
        tell skip "takes long: make check-long"
    elif [ -n "$(missing)" ]; then
        tell skip "needs $(missing | sort -u | paste -s -d , | sed 's/,/, /g')"
    elif [ $kind = output ]; then
        check_output
    else
        run_block
    fi
done
