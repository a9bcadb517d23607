#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Test vittrain on several Debian systems. Each is installed in its own folder.
#   test/project/matrix.sh [-C FOLDER] SYSTEM...   test these systems in the background; FOLDER/matrix.log shows the progress
#   test/project/matrix.sh [-C FOLDER] all         test all systems
#   test/project/matrix.sh [-C FOLDER] --table     print the results in Markdown
# Systems: debian12, debian13, testing, mpich, clang, arm64. They are tested one after the other.
# FOLDER (default: matrix) keeps the systems, the output SYSTEM.log and the result SYSTEM.result. A second call with
# the same commit continues an interrupted one: finished systems, installed packages and builds are not repeated.
# The script tests the last commit of the checkout. It needs root, the network, and Debian's package debootstrap. A system
# takes about half an hour on two cores, arm64 longer. make check does not run it. MIRROR: the mirror of Debian.
set -u
source=$(cd "$(dirname "$0")/../.." && pwd)
. "$source/test/project/systems.sh"

# Without these packages tests are skipped.
tools="openssh-server iproute2 procps slurm-wlm munge python3 patch gnuplot-nox environment-modules hdf5-tools"
# Fields: name, suite of Debian, processor and MPI, further packages, command.
systems="debian12|bookworm|x86-64, Open MPI|$tools|./quickstart check && make check-system
debian13|trixie|x86-64, Open MPI|$tools|./quickstart check && make check-system
testing|testing|x86-64, Open MPI|$tools|./quickstart check && make check-system
mpich|trixie|x86-64, MPICH|$tools|CONFIGURE_FLAGS=--with-mpi=mpich ./quickstart check && make check-system
clang|trixie|x86-64, Open MPI|$tools clang libomp-dev|CONFIGURE_FLAGS=CC=clang ./quickstart check && make check-system
arm64|bookworm|Arm (qemu), Open MPI|gcc-aarch64-linux-gnu g++-aarch64-linux-gnu qemu-user-static|./quickstart build && TEST_TIMEOUT=3000 test/project/arm64.sh"

fail() { printf 'matrix.sh: %s\n' "$*" >&2; exit 1; }

# field SYSTEM NUMBER: print a field of the table above.
field() { awk -F'|' -v name="$1" -v field="$2" '$1 == name { print $field }' <<<"$systems"; }

# inside SYSTEM LINE: run a line of shell in the system, in the folder of the source.
inside() { system_run "$folder/$1" sh -c "cd /vittrain && $2"; }

# make_system SYSTEM: make the root folder with the packages and the source.
make_system() {
    local root=$folder/$1
    [ -e "$root/vittrain" ] || { system_make "$(field "$1" 2)" "$root" && mkdir "$root/vittrain"; } || return
    if [ "$(cat "$root/commit" 2>/dev/null)" != "$commit" ]; then
        rm -rf "$root/vittrain" && mkdir "$root/vittrain" && git -C "$source" archive HEAD | tar -x -C "$root/vittrain" &&
            echo "$commit" >"$root/commit" || return
    fi
    system_install "$root" ca-certificates $(field "$1" 4)
}

# checked NAME: print the result of configure's check whose name begins with NAME.
checked() { sed -n "/: checking for $1/,/: result: /s/.*: result: //p" "$folder/$system/vittrain/config.log" | head -n 1; }

# write_result: write $system.result: commit and date, counts, versions, and failures.
write_result() {
    local log=$folder/$system.log
    {
        echo "commit $commit $(date +%F)"
        awk '/^(PASS:|ok )/ && !/# SKIP/ { good++ } /^(SKIP:|ok .*# SKIP)/ { skipped++ }
            /^(FAIL:|ERROR:|XPASS:|not ok )/ { bad++ } END { print "count", good + 0, bad + 0, skipped + 0 }' "$log"
        compiler=$(sed -n "s/^CC='\(.*\)'/\1/p" "$folder/$system/vittrain/config.log")
        echo "versions $(inside "$system" "$compiler --version" | head -n 1); $(checked MPI); HDF5 $(checked 'parallel HDF5');" \
            "oneDNN $(checked oneDNN)"
        grep -E '^(FAIL:|ERROR:|XPASS:|not ok )' "$log"
    } >"$folder/$system.result"
}

run_systems() {
    for system; do
        grep -qs "^commit $commit " "$folder/$system.result" && grep -q '^count [1-9]' "$folder/$system.result" && continue
        echo "$(date +%T) $system: packages"
        make_system "$system" >"$folder/$system.log" 2>&1 || { echo "$system: failed, see $folder/$system.log"; continue; }
        echo "$(date +%T) $system: build and tests"
        inside "$system" "$(field "$system" 5)" >"$folder/$system.log" 2>&1
        echo "status $?" >>"$folder/$system.log"
        write_result
        echo "$(date +%T) $system: $(sed -n 's/^count //p' "$folder/$system.result") (passed, failed, skipped)"
    done
}

# print_table: print versions and counts of each system.
print_table() {
    printf '| system | processor, MPI | versions | passed | failed | skipped | commit, date |\n|---|---|---|---|---|---|---|\n'
    while IFS='|' read -r name _ kind _; do
        awk -v head="| $name | $kind" '$1 == "commit" { commit = $2 ", " $3 } $1 == "count" { counts = $2 " | " $3 " | " $4 }
            $1 == "versions" { sub("versions ", ""); versions = $0 }
            END { print head " | " versions " | " counts " | " commit " |" }' "$folder/$name.result" 2>/dev/null
    done <<<"$systems"
}

usage() { sed -n '3,11s/^# \{0,1\}//p' "$0"; }

folder=matrix
if [ "${1:-}" = -C ] && [ $# -ge 3 ]; then folder=$2 && shift 2; fi
case ${1:-} in
-h | --help) usage && exit ;;
'' | -C) usage >&2 && exit 2 ;;
--table)
    ls "$folder"/*.result >/dev/null 2>&1 || fail "no results in $folder"
    print_table
    exit
    ;;
esac
[ "$1" != all ] || set -- $(cut -d'|' -f1 <<<"$systems")
for system; do [ -n "$(field "$system" 1)" ] || fail "no system $system; there are: $(cut -d'|' -f1 <<<"$systems" | paste -s -d ' ')"; done
[ "$(id -u)" = 0 ] || fail "needs root, for namespaces"
command -v debootstrap >/dev/null || fail "no debootstrap: apt-get install debootstrap"
commit=$(git -C "$source" rev-parse --short HEAD) || exit 1
mkdir -p "$folder" && folder=$(cd "$folder" && pwd) && exec 9>"$folder/lock" || exit 1
flock -n 9 || fail "another matrix.sh uses $folder; use another folder with -C, or wait for its end"
set -m # The background job gets a process group of its own.
(run_systems "$@") </dev/null >>"$folder/matrix.log" 2>&1 &
echo "runs in the background, see $folder/matrix.log; to stop it: kill -- -$!"
