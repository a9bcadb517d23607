#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# fast
# Checks of the sources: format, direction of includes, licence identifiers, names of tests, list of released files, versions,
# bounds of kernels; and of the program file: hardening.
. "$TEST_SOURCE/test/support/program.sh"
cd "$TEST_SOURCE" || exit 1

# Modules of src/ by level. A file includes headers of its own module and of lower levels only. The kernels of
# cuda/ implement interfaces of device and comm.
levels='base
hdf5 options
device
cpu
comm
image
data
arrays
mesh
model
checkpoint
record
train
plan
commands'

# level MODULE: its number, from 1.
level() { echo "$levels" | awk -v module="$1" '{ for (i = 1; i <= NF; i++) if ($i == module) print NR }'; }

for folder in $(find src -name '*.c' ! -path 'src/main.c' ! -path '*/tiles/*' | sed 's|[^/]*$||' | sort -u); do
    module=${folder#src/}
    module=${module%/}
    own=$(level "$module")
    [ -n "$own" ] || { echo "$module has no level in test/project/test_source.sh"; continue; }
    files=$(find "$folder" -name '*.[ch]')
    for other in $(cat $files | sed -nE 's|^#include "(.*)/[^/]*"$|\1|p' | sort -u); do
        below=$(level "${other%/tiles}")
        [ "${other%/tiles}" = "$module" ] || [ "${below:-99}" -lt "$own" ] || grep -n "^#include \"$other/" $files
    done
done >"$work/includes" 2>&1
result 'no module includes a header of a higher one' "$(head -n 3 "$work/includes" | tr '\n' ';')" "$work/includes"

# The name of a checkpoint is part of the documented run folder.
grep -hv checkpoint_name.h src/commands/launch*.[ch] | sed -nE 's|^#include "(.*)/[^/]*"$|\1|p' | sort -u |
    grep -vxE 'base|options|commands' >"$work/tools"
grep -h '^#include "commands/' src/commands/launch*.[ch] | grep -vE '/(app|launch).h"' >>"$work/tools"
result 'launch uses no module but base and options' \
    "$(tr '\n' ';' <"$work/tools")" "$work/tools"

{
    find benchmarks cuda jobs m4 packaging src test tools -name '*.[ch]' -o -name '*.cu' -o -name '*.cpp' -o -name '*.proto' \
        -o -name '*.sh' -o -name '*.py' -o -name '*.inc' -o -name '*.awk' -o -name '*.m4' -o -name '*.mk'
    echo configure.ac Makefile.am
    grep -lsI '^#!/' .ci/* benchmarks/* bootstrap packaging/*/* quickstart test/*
} 2>/dev/null | grep -v '\.pb-c\.' | xargs grep -L SPDX-License-Identifier >"$work/licence"
result 'every source has the SPDX identifier of its licence' "$(head -n 3 "$work/licence" | tr '\n' ';')" "$work/licence"

# A file of another name would not be run, a misspelt line not be read (test/list.sh).
{
    find test -name 'test_*.[csp]*' | grep -vE '^test/[a-z]+/test_[a-z0-9_]+\.(c|sh)$'
    for name in test/*/test_*.c; do
        sed -n '2,/^[^\/]/{/^\/\/ /p;}' "$name" | grep -vE '^// (system|joined|ranks:( [0-9]+)+|devices: (cpu )?gpu|sources:( [a-z0-9_/]+\.c)+)$' | sed "s|^|$name: |"
    done
} >"$work/unlisted"
result 'every test is listed' "$(head -n 3 "$work/unlisted" | tr '\n' ';')" "$work/unlisted"

# Tests of `make check` do not depend on time or load (docs/design.md#tests). Those that define a clock of their own may read it.
for name in test/*/test_*.c test/*/test_*.sh; do
    sed 6q "$name" | grep -qxE '(#|//) system' && continue
    clocks='|\b(clock_(now|gettime)|gettimeofday|time)\('
    grep -q '^int clock_gettime(' "$name" && clocks=
    case $name in
    *.c) grep -HnE '\b(u|nano)?sleep\(|\bkill\(|\bwait_(for|until)\b|SIGSTOP'"$clocks" "$name" | grep -v ':int nanosleep(' ;;
    *.sh) grep -HnE '(^|[ ;&|({])(sleep [0-9"$]|(kill|pkill|killall|wait_for|wait_until|take_nodes) )|\bpaused [0-9]|\bdate \+%s' "$name" |
        grep -vE ':[0-9]+: *#' ;;
    esac
done >"$work/timing"
result 'no test of make check sleeps, waits for a job, sends a signal or compares times' "$(head -n 3 "$work/timing" | tr '\n' ';')" "$work/timing"

# Files of the checkout that make dist leaves out; a folder in its list contains the files below it. .gitignore is left
# out on purpose. Nothing is listed outside a checkout.
make -s --no-print-directory -C "$TEST_BUILD" \
    --eval='released: ; @printf "%s\n" $(patsubst $(srcdir)/%,%,$(DISTFILES))' released >"$work/released"
git ls-files 2>/dev/null | awk 'NR == FNR { released[$1]; next }
    { for (path = $1; path != "" && !(path in released); ) if (!sub("/[^/]*$", "", path)) path = "" }
    path == "" && $1 != ".gitignore"' "$work/released" - >"$work/left_out"
result 'make dist has all files of the checkout' "$(head -n 3 "$work/left_out" | tr '\n' ';')" "$work/left_out"

version=$(sed -n 's/^AC_INIT(\[vittrain\], \[\(.*\)\], .*/\1/p' configure.ac)
grep -LF "${version:-none}" NEWS docs/install.md packaging/conda/recipe.yaml packaging/debian/changelog packaging/easybuild/*.eb \
    packaging/spack/spack_repo/vittrain/packages/vittrain/package.py >"$work/version"
result 'the recipes have the version of configure.ac' "$(tr '\n' ';' <"$work/version")" "$work/version"

format=$(command -v clang-format-14 || command -v clang-format)
case $("$format" --version 2>/dev/null) in
*' version 14.'*)
    find src cuda test benchmarks -name '*.[ch]' ! -name '*.pb-c.[ch]' -exec "$format" --dry-run {} + 2>"$work/format"
    result 'clang-format 14 changes nothing' "$(grep -c 'clang-format-violations' "$work/format" | grep -vx 0)" "$work/format"
    ;;
*) result 'clang-format 14 changes nothing # SKIP no clang-format 14' '' ;;
esac

awk '/__launch_bounds__\(/ { bound = $0; sub(/.*__launch_bounds__\(/, "", bound); gsub(/ /, "", bound) }
    /kernel_begin\(/ { given = $0; sub(/.*kernel_begin\(/, "", given); sub(/\);.*/, "", given); gsub(/ /, "", given)
        if (bound != "" && (given == "" || index(bound, given) != 1)) print FILENAME ":" FNR
        bound = "" }' cuda/*.cu >"$work/bounds"
result 'kernel_begin gets the threads of __launch_bounds__' "$(head -n 3 "$work/bounds" | tr '\n' ';')" "$work/bounds"

if command -v readelf >/dev/null && [ "$(uname -s)" = Linux ] && grep -q 'HARDENING_LDFLAGS = .*now' "$TEST_BUILD/Makefile"; then
    result 'the program is linked with full RELRO' "$(readelf -d "$vittrain" | grep -q BIND_NOW || echo 'no BIND_NOW')"
else
    result 'the program is linked with full RELRO # SKIP no readelf, or a linker without it' ''
fi
