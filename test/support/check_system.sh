#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Run tests that may fail at random (make check-system). A test that fails is repeated twice. If both repetitions pass it counts as
# passed, and "FLAKY name" is printed. The run fails if a repetition fails, if more than two tests are flaky, or if a first failure has
# symptoms of wrong weights, a crash or a hang. Logs of failures are kept in test/failures/, with the seeds that they name.
#   CHECK='make -O' check_system.sh TEST...   (in the folder of the build; without TEST nothing is run)
[ $# -gt 0 ] || exit 0
kept=test/failures flaky=0 failed=0
rm -rf "$kept"
mkdir -p "$kept"

# check TARGET TEST...: run tests; the results of one that fails are printed as comments, because the verdict comes later.
check() {
    target=$1
    shift
    $CHECK "$target" TESTS="$*" 2>&1 | sed -u -E 's/^(FAIL|ERROR|XPASS):/# to be repeated:/'
}

# has_failed TEST: true if its newest run did not pass.
has_failed() { ! grep -qsE '^:global-test-result: (PASS|SKIP)' "${1%.sh}.trs"; }

# keep TEST NUMBER: keep the log of this run.
keep() { cp "${1%.sh}.log" "$kept/$(basename "$1" .sh)-$2.log"; }

# symptom LOG: print what makes a first failure final. The comments after "not ok" and the driver's "FAIL:" have the explanation.
symptom() {
    awk '/^not ok / { failed = 1 }
        /^ok / { failed = 0 }
        failed && /^(not ok|#)/ {
            if (/exit status (132|134|135|136|139)/) print "a crash"
            else if (/exit status 124|a timeout/) print "a hang"
            else if (/differ: (byte|char)|other (weights|receipts)|the same bits/) print "wrong weights"
        }' "$1" | head -n 1
}

for test; do rm -f "${test%.sh}.trs"; done # a test that cannot be built has no result
check check "$@"
for test; do
    has_failed "$test" || continue
    keep "$test" 1
    name=$(basename "$test" .sh)
    reason=$(symptom "$kept/$name-1.log")
    for number in 2 3; do
        [ -z "$reason" ] || break
        check check-TESTS "$test"
        ! has_failed "$test" || { keep "$test" $number && reason='a repetition failed'; }
    done
    if [ -n "$reason" ]; then
        failed=$((failed + 1))
        echo "FAIL: $name ($reason; see $kept/$name-*.log)"
    else
        flaky=$((flaky + 1))
        echo "FLAKY $name (see $kept/$name-1.log)"
    fi
done
[ $flaky -le 2 ] || { failed=$((failed + 1)) && echo "FAIL: $flaky tests are flaky, more than two"; }
[ $failed -eq 0 ]
