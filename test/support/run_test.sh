#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Run one test program and print one TAP stream. The first lines of its source may name numbers of ranks and devices
# (test/list.sh). The program runs alone, or under mpirun with each number of ranks. The output of rank 0 is printed; that of
# another rank only if it failed. On the emulated GPU it runs with the largest number of ranks only. Results are renumbered. A run that
# ends early or with an exit status other than 0 is a failed result.
#   run_test.sh test/FOLDER/test_NAME   (the Makefile calls it, in the folder of the build)
#   run_test.sh --rank PROGRAM          (mpirun calls it, once a rank)
# Environment: MPIRUN, TEST_TIMEOUT (seconds for one run, 600), TEST_FAST (if set, no emulated GPU and no more than
# 4 ranks).

here=$(dirname "$0")

if [ "$1" = --rank ]; then
    eval "rank=$TEST_RANK"
    [ "$rank" = 0 ] && exec "$2"
    output=$(mktemp) || exit 1
    trap 'rm -f "$output"' EXIT
    "$2" >"$output"
    status=$?
    [ $status -eq 0 ] || sed "s/^/# rank $rank: /" "$output"
    exit $status
fi

program=./${1#./}
source=$here/../../$program.c
counts=$(sed -n '1,6s|^// ranks: ||p' "$source")

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
        # One thread per rank, because there may be more ranks than cores.
        OMP_NUM_THREADS=1 timeout "${TEST_TIMEOUT:-600}" \
            $MPIRUN -np "$count" sh "$here/run_test.sh" --rank "$program"
        echo "status $?"
    done
}

# Tests of the device's operations also run on the emulated GPU.
run_all() {
    run_counts
    module=${TEST_BUILD:-$PWD}/test/emulated-cuda.so
    [ -z "$TEST_FAST" ] && grep -qx '// devices: cpu gpu' "$source" && [ -e "$module" ] || return
    echo "device emulated GPU"
    counts=${counts##* } # the largest
    VITTRAIN_TEST_DEVICE=cuda VITTRAIN_CUDA_MODULE=$module
    export VITTRAIN_TEST_DEVICE VITTRAIN_CUDA_MODULE
    run_counts
}

run_all </dev/null | awk '
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
        print (bad ? "not ok " : "ok ") ++total " - " $0 label directive
        fflush()
        reason = ""
        next
    }
    /^status [0-9]+$/ {
        if (!skipped && (seen != planned || seen == 0))
            print "not ok " ++total " - " seen + 0 " of " planned + 0 " results, exit status " $2 label
        else if ($2 != 0 && !failed)
            print "not ok " ++total " - exit status " $2 label
        planned = seen = failed = skipped = 0
        next
    }
    { print; fflush() }
    END { print "1.." total }'
