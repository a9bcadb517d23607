#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Output that cannot be written, and limits that are too low: a run ends with one line that names the file or the
# limit, or completes; never by a signal.
. "$TEST_SOURCE/test/support/program.sh"

train="$small debug.fraction=0.02 model.depth=1 data.format=synthetic model.classes=10 train.steps=2"

# try LIMIT OUTPUT: run under a limit, with other output; set $status. The limit does not apply to the log.
try() {
    rm -rf "$work/run"
    run_log=$work/try.log
    {
        (eval "$1; exec timeout $time_limit '$vittrain' $train run.dir=$work/run $2")
        echo $? >"$work/status"
    } 2>&1 </dev/null | cat >"$run_log"
    status=$(cat "$work/status")
}

# ended_well CODE PATTERN: print what is wrong unless the run completed, or ended with CODE and one line of PATTERN.
ended_well() {
    [ $status -eq 0 ] && finished "$work/run" || failed_otherwise "$1" "$2" | tr '\n' ' '
}

problem='' named=0
for limit in 6 8 10 12 14 18; do
    try "ulimit -n $limit"
    grep -q 'Too many open files' "$run_log" && named=$((named + 1))
    [ $status -eq 0 ] || problem="$problem$(failed_otherwise $status 'Too many open files' | tr '\n' ' ')"
    [ $status -lt 128 ] || problem="$problem limit $limit: status $status"
    ! grep -q 'cannot update' "$run_log" || problem="$problem limit $limit: a line before the reason"
done
[ $named -gt 0 ] || problem="$problem; no run named the limit"
result 'the limit on open files is named' "$problem" "$run_log"

problem='' failed=0
for kilobytes in 0 1 3 8 40; do
    try "ulimit -f $((kilobytes * 2))" # a unit of 512 bytes in POSIX, of 1024 in bash
    [ $status -eq 0 ] || failed=$((failed + 1))
    problem="$problem$(ended_well 5 '\(ulimit -f\)|File too large')"
done
[ $failed -gt 0 ] || problem="$problem; no write failed"
result 'a run under ulimit -f completes, or ends with one error line' "$problem" "$run_log"

# With larger libraries the system cannot start the program under the lowest limits (127).
problem=
if ! grep -q '^SANITIZER_CFLAGS = .' "$TEST_BUILD/Makefile"; then
    for limit in 150000 165000 180000 190000 200000 220000; do
        try "ulimit -v $limit" data.workers=1
        [ $status -eq 127 ] || problem="$problem$(ended_well 6 'memory|thread|process|limit')"
    done
    try 'ulimit -v 2000000; OMP_STACKSIZE=4G; export OMP_STACKSIZE' run.threads=2
    problem="$problem$(failed_otherwise 6 'no thread for computing' | tr '\n' ' ')"
fi
try 'ulimit -s 256'
problem="$problem$(failed_otherwise 6 'the stack is limited to 256 KiB.*ulimit -s' | tr '\n' ' ')"
result 'a run under ulimit -v or -s completes, or ends with one error line' "$problem" "$run_log"

problem=
for output in '>/dev/full' '2>/dev/full' '>&- 2>&-'; do
    try : "$output"
    problem="$problem$(ended_well 5 'standard output')"
done
result 'standard output that cannot be written' "$problem" "$run_log"

rm -rf "$work/run"
{ timeout $time_limit "$vittrain" $train run.dir="$work/run" 2>"$work/err"; echo $? >"$work/status"; } | true
result 'a run continues if the reader of its output ends' \
    "$([ "$(cat "$work/status")" = 0 ] && finished "$work/run" || echo "status $(cat "$work/status")")" "$work/err"
