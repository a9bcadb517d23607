#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Run one test program and print one TAP stream. The first lines of its source may name numbers of ranks and devices
# (test/list.sh). The program runs alone, or under mpirun with each number of ranks. The output of rank 0 is printed; that of
# another rank only if it failed. On the emulated GPU it runs with the largest number of ranks only. Results are renumbered. A run that
# ends early or with an exit status other than 0 is a failed result.
#   run_test.sh test/FOLDER/test_NAME   (the Makefile calls it, in the folder of the build)
#   run_test.sh test/ranks              (the joined tests: those of each number of ranks in one run)
#   run_test.sh --rank PROGRAM [TEST...]   (mpirun calls it, once a rank)
# Environment: MPIRUN, TEST_TIMEOUT (seconds for one run, 600), TEST_FAST (if set, no emulated GPU and no more than
# 4 ranks).

here=$(dirname "$0")

if [ "$1" = --rank ]; then
    eval "rank=$TEST_RANK"
    shift
    [ "$rank" = 0 ] && exec "$@"
    output=$(mktemp) || exit 1
    trap 'rm -f "$output"' EXIT
    "$@" >"$output"
    status=$?
    [ $status -eq 0 ] || awk -v rank="$rank" -v status="$status" '
        /^# begin / { running = substr($0, 9); next }
        /^ok / { running = ""; next }
        { print "# rank " rank ": " $0 }
        END { if (running != "") print "# rank " rank ": ended with status " status " in " running }' "$output"
    exit $status
fi

program=./${1#./}
cd_sources() { cd "$here/../.." || exit 1; }
sources=$program.c
[ "$program" != ./test/ranks ] || sources=$(cd_sources && grep -lx '// joined' test/*/test_*.c)
counts=$(cd_sources && sed -n 's|^// ranks: ||p' $sources | tr ' ' '\n' | sort -nu)

# The names of the joined tests with this number of ranks.
joined() {
    [ "$program" != ./test/ranks ] || (cd_sources && grep -lE "^// ranks: (.* )?$1( |\$)" $sources | sed 's|.*/||; s|\.c$||')
}

# Once, or once with each number of ranks.
run_counts() {
    if [ -z "$counts" ]; then
        timeout "${TEST_TIMEOUT:-600}" "$program"
        echo "status $?"
        return
    fi
    for count in $counts; do
        [ -z "$TEST_FAST" ] || [ "$count" -le 4 ] || continue
        echo "ranks $count"
        names=$(joined "$count")
        # One thread per rank, because there may be more ranks than cores.
        OMP_NUM_THREADS=1 timeout "${TEST_TIMEOUT:-600}" \
            $MPIRUN -np "$count" sh "$here/run_test.sh" --rank "$program" $names
        echo "status $?"
    done
}

# Tests of the device's operations also run on the emulated GPU.
run_all() {
    run_counts
    module=${TEST_BUILD:-$PWD}/test/emulated-cuda.so
    [ -z "$TEST_FAST" ] && (cd_sources && grep -qx '// devices: cpu gpu' $sources) && [ -e "$module" ] || return
    echo "device emulated GPU"
    counts=$(echo "$counts" | tail -n 1) # the largest
    VITTRAIN_TEST_DEVICE=cuda VITTRAIN_CUDA_MODULE=$module
    export VITTRAIN_TEST_DEVICE VITTRAIN_CUDA_MODULE
    run_counts
}

run_all </dev/null | awk '
    /^# file / { file = substr($0, 8) ": "; next }
    /^# begin / { running = " in " file substr($0, 9); next }
    /^ranks [0-9]+$/ { label = " [" $2 " ranks" device "]"; next }
    /^device / { device = ", " substr($0, 8); label = " [" substr($0, 8) "]"; next }
    /^1\.\.0/ { skipped = 1; print "ok " ++total " - all of it" label " # SKIP" substr($0, index($0, "SKIP") + 4); next }
    /^1\.\.[0-9]+/ { planned += substr($1, 4); next }
    /^# skipped: / { reason = " " substr($0, 12); next } # SKIP_BECAUSE in test/support/test.h
    /^(not )?ok / {
        bad = sub(/^not ok [0-9]* *(- )?/, "")
        if (!bad) sub(/^ok [0-9]* *(- )?/, "")
        # cmocka prints "# SKIP NAME"; cmocka 1 also "not ok".
        if (sub(/^# SKIP /, "")) { bad = 0; $0 = $0 " # SKIP" }
        if (/ # SKIP$/) $0 = $0 reason
        failed += bad
        seen++
        directive = ""
        if (match($0, / # .*/)) { directive = substr($0, RSTART); $0 = substr($0, 1, RSTART - 1) }
        print (bad ? "not ok " : "ok ") ++total " - " file $0 label directive
        fflush()
        reason = running = ""
        next
    }
    /^status [0-9]+$/ {
        if (!skipped && (seen != planned || seen == 0))
            print "not ok " ++total " - " seen + 0 " of " planned + 0 " results, exit status " $2 running label
        else if ($2 != 0 && !failed)
            print "not ok " ++total " - exit status " $2 label
        planned = seen = failed = skipped = 0
        file = running = ""
        next
    }
    { print; fflush() }
    END { print "1.." total }'
