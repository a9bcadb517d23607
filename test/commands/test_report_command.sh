#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The command report starts tools/report.py with its words, without MPI. python3 is replaced by a script that prints them.
. "$TEST_SOURCE/test/support/program.sh"

mkdir bin share
printf '#!/bin/sh\nprintf "<%%s>" "$@"\nexit 7\n' >bin/python3
chmod +x bin/python3

PATH=$work/bin:$PATH run 1 words report 'runs/a b' report.csv=x.csv output.logbook=
result 'the script gets all words; its exit code is returned' "$(ended 7
    script=$(sed -n 's/^<-B><\([^>]*\)><runs\/a b><report.csv=x.csv><output.logbook=>$/\1/p' "$run_log")
    [ -r "${script:-none}" ] && [ "${script##*/tools/}" = report.py ] || echo "script \"$script\"")" "$run_log"

command="env PATH=$work/bin:\$PATH '$vittrain' report runs/a"
run_pair ranks "$command" "$command"
result 'only rank 0 starts it' "$([ "$(grep -o '<runs/a>' "$run_log" | wc -l)" = 1 ] || echo 'not once')" "$run_log"

timeout $time_limit env PATH="$work/share" "$vittrain" report runs/a >none.log 2>&1
status=$? run_log=$work/none.log
result 'without python3 there is one line of error' "$(failed_otherwise 5 python3)" "$run_log"

# A copy of the program in a folder without its files; make install puts them into PREFIX/share/vittrain.
mkdir -p prefix/bin prefix/share/vittrain/tools && cp "$vittrain" prefix/bin
: >prefix/share/vittrain/tools/report.py
vittrain=$work/prefix/bin/vittrain
PATH=$work/bin:$PATH run 1 installed report runs/a
result 'the installed script is found' "$(ended 7
    grep -qx "<-B><$work/prefix/share/vittrain/tools/report.py><runs/a>" "$run_log" || echo 'not found')" "$run_log"
rm -r prefix/share
fails 1 'a missing script is an error' 5 'report\.py' report runs/a

run 1 help report --help
result 'report --help prints its options' "$(ended; has "$run_log" 'report\.format')" "$run_log"
