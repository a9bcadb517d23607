#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# test/support/check_system.sh: which failures are repeated, and which fail the run. The tests are results in a table.
. "$TEST_SOURCE/test/support/program.sh"
cd "$work" || exit 1

# Called in place of make, with Automake's driver. The line of a test in `plan` has one word for each of its runs.
cat >stub <<'END'
for name in ${2#TESTS=}; do
    stem=${name%.sh}
    echo x >>"$stem.runs"
    outcome=$(sed -n "s/^$stem //p" plan | cut -d' ' -f"$(wc -l <"$stem.runs")")
    case $outcome in
    good) echo 'ok 1 - it runs' ;;
    skipped) echo 'ok 1 - it runs # SKIP' ;;
    crash) echo 'not ok 1 - it runs' && echo '# exit status 139;' ;;
    hang) echo 'not ok 1 - exit status 124 [3 ranks]' ;;
    bits) echo 'not ok 1 - the same weights' && echo '# a.safetensors b.safetensors differ: byte 1, line 1' ;;
    *) echo 'not ok 1 - a line is there' && echo '# no "line" in log; # exit status 1' ;;
    esac >tap
    echo 1..1 >>tap
    sh "$TEST_SOURCE/build-aux/tap-driver.sh" --test-name "$name" --log-file "$stem.log" --trs-file "$stem.trs" \
        --comments -- cat tap
done
END

# runs TITLE PLAN STATUS LINE...: the tests of the plan (one word for each run, tests separated by commas) end with this status, and
# these lines of results.
runs() {
    title=$1
    rm -f ./*.runs ./*.trs ./*.log
    echo "$2" | tr ',' '\n' >plan
    status_wanted=$3
    shift 3
    CHECK='sh stub' sh "$TEST_SOURCE/test/support/check_system.sh" $(cut -d' ' -f1 plan | sed 's/$/.sh/') >output 2>&1
    status=$?
    bad="$(ended "$status_wanted")$(has output "$@")"
    [ "$(grep -cE '^(FAIL|FLAKY)' output)" = $# ] || bad="$bad; other results"
    result "$title" "$bad" output
}

runs 'tests that pass' 'a good,b skipped' 0
runs 'a failure that two repetitions do not have' 'a good,b bad good good' 0 '^FLAKY b '
result 'its log is kept' "$(has test/failures/b-1.log 'a line is there')"
runs 'a repetition that fails' 'a bad bad,b bad good bad' 1 '^FAIL: a .*repetition' '^FAIL: b .*repetition'
runs 'three flaky tests' 'a bad good good,b bad good good,c bad good good' 1 '^FLAKY a' '^FLAKY b' '^FLAKY c' '^FAIL: 3 tests'
runs 'a crash, a hang and other bits' 'a crash good good,b hang good good,c bits good good' 1 '^FAIL: a .*crash' '^FAIL: b .*hang' \
    '^FAIL: c .*weights'
