#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Test vittrain on several systems, each made from Debian's packages alone in a folder of its own.
#   test/matrix.sh [-C FOLDER] SYSTEM...   one after the other, in the background; FOLDER/matrix.log tells how far it is
#   test/matrix.sh [-C FOLDER] all         every system
#   test/matrix.sh [-C FOLDER] --table     print the results as docs/systems.md shows them
# FOLDER (matrix) keeps the systems, the output of each as SYSTEM.log and its result as SYSTEM.result. A second call with
# the same commit goes on where the first was interrupted: finished systems, installed packages and builds are not repeated.
# The tested source is the last commit. Needs root and Debian's package debootstrap; about half an hour for a system on
# two cores, more for arm64. Not part of make check. Environment: MIRROR (of Debian; that of this machine).
set -u
source=$(cd "$(dirname "$0")/.." && pwd)

# Name, suite, CPU and MPI; further packages; commands. The packages of `nodes` are for tests with several nodes and Slurm.
nodes="openssh-server iproute2 procps slurm-wlm munge python3"
systems="debian12|bookworm|x86-64, Open MPI||./quickstart check
debian13|trixie|x86-64, Open MPI|$nodes|./quickstart check
testing|testing|x86-64, Open MPI|$nodes|./quickstart check
mpich|trixie|x86-64, MPICH|$nodes|MPI=mpich ./quickstart check
clang|trixie|x86-64, Open MPI|clang libomp-dev|CONFIGURE_FLAGS='CC=clang CXX=clang++' ./quickstart check
arm64|bookworm|Arm (qemu), Open MPI|gcc-aarch64-linux-gnu g++-aarch64-linux-gnu qemu-user-static|./quickstart build && test/arm64.sh"

fail() { printf 'matrix.sh: %s\n' "$*" >&2; exit 1; }

# field SYSTEM NUMBER: a field of the table above.
field() { awk -F'|' -v name="$1" -v field="$2" '$1 == name { print $field }' <<<"$systems"; }

mirror() { apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Component: main' | head -n 1; }

# inside SYSTEM COMMAND: run it in the system, with file systems and processes that end with it.
inside() {
    unshare --mount --pid --fork --kill-child sh -c '
        cd "$0" && mount -t proc proc proc && mount --rbind /sys sys && mount --rbind /dev dev &&
            mount -t tmpfs tmpfs dev/shm && mount -t tmpfs tmpfs tmp &&
            exec chroot . env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
                DEBIAN_FRONTEND=noninteractive sh -c "cd /vittrain && $1"' "$folder/$1" "$2"
}

# make_system SYSTEM: a root folder with the packages, and the source.
make_system() {
    local suite=$(field "$1" 2) script root=$folder/$1
    if [ ! -e "$root/vittrain" ]; then
        rm -rf "$root" && mkdir -p "$root" || return
        # Suites that this debootstrap does not know are made like unstable.
        script=/usr/share/debootstrap/scripts/$suite
        [ -e "$script" ] || script=${script%/*}/sid
        debootstrap --variant=minbase "$suite" "$root" "${MIRROR:-$(mirror)}" "$script" || return
        cp /etc/resolv.conf "$root/etc/" && printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d" || return
        chmod +x "$root/usr/sbin/policy-rc.d" && mkdir "$root/vittrain" || return # packages must not start daemons
    fi
    if [ "$(cat "$root/commit" 2>/dev/null)" != "$commit" ]; then
        rm -rf "$root/vittrain" && mkdir "$root/vittrain" || return
        git -C "$source" archive HEAD | tar -x -C "$root/vittrain" && echo "$commit" >"$root/commit" || return
    fi
    inside "$1" "apt-get update -q && apt-get install -q -y --no-install-recommends ca-certificates $(field "$1" 4)"
}

# checked NAME: what configure found in its check whose name begins with NAME.
checked() { sed -n "/: checking for $1/,/: result: /s/.*: result: //p" "$folder/$system/vittrain/config.log" | head -n 1; }

# write_result: the commit and date, the counts, the versions, then the reason of each skipped test and each failure.
write_result() {
    local log=$folder/$system.log
    {
        echo "commit $commit $(date +%F)"
        awk '/^(PASS:|ok )/ && !/# SKIP/ { good++ } /^(SKIP:|ok .*# SKIP)/ { skipped++ }
            /^(FAIL:|ERROR:|XPASS:|not ok )/ { bad++ } END { print "count", good + 0, bad + 0, skipped + 0 }' "$log"
        compiler=$(sed -n "s/^CC='\(.*\)'/\1/p" "$folder/$system/vittrain/config.log")
        echo "versions $(inside "$system" "$compiler --version" | head -n 1); $(checked MPI); HDF5 $(checked 'parallel HDF5');" \
            "oneDNN $(checked oneDNN)"
        sed -n 's/.*# SKIP *//; t skip; d; : skip; s/^/skip /p' "$log" | sort | uniq -c | sort -rn | sed 's/^ *\([0-9]*\) skip/skip \1/'
        grep -E '^(FAIL:|ERROR:|XPASS:|not ok )' "$log"
    } >"$folder/$system.result"
}

run_systems() {
    for system; do
        grep -qs "^commit $commit " "$folder/$system.result" && continue
        echo "$(date +%T) $system: packages"
        make_system "$system" >"$folder/$system.log" 2>&1 || { echo "$system: failed, see $folder/$system.log"; continue; }
        echo "$(date +%T) $system: build and tests"
        inside "$system" "$(field "$system" 5)" >"$folder/$system.log" 2>&1
        echo "status $?" >>"$folder/$system.log"
        write_result
        echo "$(date +%T) $system: $(sed -n 's/^count //p' "$folder/$system.result") (passed, failed, skipped)"
    done
}

print_table() {
    echo '| system | processor, MPI | versions | passed | failed | skipped | commit, date |'
    echo '|---|---|---|---|---|---|---|'
    for system in $(cut -d'|' -f1 <<<"$systems"); do
        [ ! -e "$folder/$system.result" ] || awk -v name="$system" -v kind="$(field "$system" 3)" '
            $1 == "commit" { commit = $2 ", " $3 } $1 == "count" { counts = $2 " | " $3 " | " $4 }
            $1 == "versions" { versions = substr($0, 10) }
            END { print "| " name " | " kind " | " versions " | " counts " | " commit " |" }' "$folder/$system.result"
    done
    printf '\nSkipped:\n\n'
    for system in $(cut -d'|' -f1 <<<"$systems"); do
        [ ! -e "$folder/$system.result" ] || sed -n "s/^skip \([0-9]*\) \(.*\)/* $system: \1 x \2/p" "$folder/$system.result"
    done
}

folder=matrix
if [ "${1:-}" = -C ]; then folder=$2 && shift 2; fi
[ $# -ge 1 ] || { sed -n '3,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }
mkdir -p "$folder" && folder=$(cd "$folder" && pwd) || exit 1
if [ "$1" = --table ]; then print_table && exit; fi
[ "$1" != all ] || set -- $(cut -d'|' -f1 <<<"$systems")
for system; do [ -n "$(field "$system" 1)" ] || fail "no system $system; there are: $(cut -d'|' -f1 <<<"$systems" | paste -s -d ' ')"; done
[ "$(id -u)" = 0 ] || fail "needs root, for chroot"
command -v debootstrap >/dev/null || fail "no debootstrap: apt-get install debootstrap"
commit=$(git -C "$source" rev-parse --short HEAD) || exit 1
set -m # a process group of its own
(run_systems "$@") </dev/null >>"$folder/matrix.log" 2>&1 &
echo "runs in the background, see $folder/matrix.log; to stop it: kill -- -$!"
