# SPDX-License-Identifier: BSD-3-Clause
# Shared by the tests of the whole program: a small model on part of the sample, TAP results, and comparisons of
# runs. Sourced. At the end it prints the plan: the number of results.

number=0 all_skipped=
work=$(mktemp -d) || exit 1
trap finish EXIT
cd "$work" || exit 1 # log books of runs are written here
export srcdir="$TEST_SOURCE" # where test programs find their vectors
vittrain=$TEST_BUILD/vittrain
export XDG_CACHE_HOME="$work/cache" # where emulated GPUs cache algorithms
time_limit=${TEST_TIMEOUT:-300} # seconds for one command: far more than it takes on a busy machine

# Options of a small run with all random features on: 50 steps take about a second.
small="model.name=vit_cifar model.dim=32 model.depth=2 model.heads=2 model.patch=8 \
data.format=cifar10 debug.fraction=0.3 train.precision=fp32 train.global_batch=24 \
output.log_every=1 run.seed=7 run.threads=1 optim.lr=3e-3"

# tidy: called at the end; a script may define its own.
tidy() { :; }

finish() {
    finished=$?
    tidy
    rm -rf "$work"
    [ $finished -eq 0 ] || result "the script ended with status $finished" failed
    [ -n "$all_skipped" ] || echo "1..$number"
}

# skip_all REASON: end the script; all of its tests, or those that follow, are skipped.
skip_all() {
    [ $number = 0 ] || { result "the rest # SKIP $1"; exit 0; }
    all_skipped=yes
    echo "1..0 # SKIP $1"
    exit 0
}

# result NAME PROBLEM [FILE]: print a TAP line. It is ok if PROBLEM is empty; otherwise FILE is printed as explanation.
result() {
    number=$((number + 1))
    if [ -z "$2" ]; then
        echo "ok $number - $1"
        return
    fi
    echo "not ok $number - $1"
    echo "# $2"
    [ -z "$3" ] || tr -d '\0' <"$3" | sed 's/^/# /' # Open MPI 5 ends its output with a NUL byte
}

# ended [STATUS]: print the exit status of the newest command if it is another one than STATUS (0).
ended() { [ "$status" -eq "${1:-0}" ] || echo "exit status $status;"; }

# has FILE PATTERN...: print the patterns that no line of the file matches.
has() {
    in=$1
    shift
    for pattern; do grep -aqE -- "$pattern" "$in" || echo "no \"$pattern\" in ${in##*/};"; done
}

# needs PROGRAM...: skip the test if one of these programs is not installed.
needs() {
    for program; do
        command -v "$program" >/dev/null || skip_all "needs $program"
    done
}

# processes PATTERN: print the ids of all processes of this machine whose command line matches, in ascending order. A
# space in the pattern matches the end of an argument.
processes() { grep -las -e "$(echo "$1" | tr ' ' .)" /proc/[0-9]*/cmdline | cut -d/ -f3 | sort -n; }

# run RANKS NAME WORD...: run the program; set $status, write the output to $work/NAME.log. mpirun passes standard output and
# standard error on in any order, also in the middle of a result in JSON: all of standard error comes last.
run() {
    run_ranks=$1 run_log=$work/$2.log
    shift 2
    if [ "$run_ranks" = 1 ]; then
        timeout $time_limit "$vittrain" "$@" >"$run_log" 2>&1 </dev/null
    else
        timeout $time_limit $MPIRUN -np "$run_ranks" "$vittrain" "$@" >"$run_log" 2>"$run_log.stderr" </dev/null
    fi
    status=$?
    [ "$run_ranks" = 1 ] || cat "$run_log.stderr" >>"$run_log"
}

# run_pair NAME COMMAND COMMAND: like `run`, with one shell command for each of two ranks. `mpirun A : B` is not used because
# Open MPI 5.0.7 crashes with it (open-mpi/ompi#13303).
run_pair() {
    run_log=$work/$1.log run_ranks=2
    timeout $time_limit $MPIRUN -np 2 sh -c 'eval "shift $TEST_RANK"; eval "exec $1"' sh "$2" "$3" \
        >"$run_log" 2>&1 </dev/null
    status=$?
}

# failed_otherwise STATUS PATTERN: print the differences if the newest run did not end with STATUS and an error line that
# matches PATTERN, of one process exactly one.
failed_otherwise() {
    [ $status -eq "$1" ] || echo "exit status $status, not $1;"
    lines=$(grep -c '^vittrain: error: ' "$run_log")
    [ "$lines" = 1 ] || { [ "$run_ranks" != 1 ] && [ "$lines" -gt 1 ]; } || echo "$lines lines of error;"
    grep -a '^vittrain: error: ' "$run_log" | grep -qE "$2" || echo "no $2"
}

# fails RANKS NAME STATUS PATTERN WORD...: the command ends with STATUS and one error line that matches PATTERN.
fails() {
    on=$1 title=$2 expected=$3 pattern=$4
    shift 4
    run "$on" failing "$@"
    result "$title" "$(failed_otherwise "$expected" "$pattern" | tr '\n' ' ')" "$run_log"
}

# errors WORD... 3<<ROWS: one rank fails with the words and those of each row. A row: STATUS|PATTERN|WORD...
errors() {
    while IFS='|' read -r code named words <&3; do
        fails 1 "refused: $words" "$code" "$named" "$@" $words
    done
}

# reports_kill STATUS: true if mpirun may return this exit status after a rank was killed. That of MPICH may return 0.
reports_kill() { [ "$1" -ne 0 ] || [ "$TEST_MPI" = mpich ]; }

# finished FOLDER: true if the run in this folder has done all its steps.
finished() { grep -q '^ "finished": true' "$1/result.json"; }

# killed_job JOB PATTERN: wait for a job in which a rank was killed, and return its exit status. PATTERN matches the command lines of
# its ranks. mpirun may hang when they have ended (docs/faults.md): after 10 s it is killed, too.
killed_job() {
    no_rank() { [ -z "$(processes "$1")" ]; }
    wait_job='' wait_until no_rank "$2"
    tries=0
    while kill -0 "$1" 2>/dev/null && [ $tries -lt 200 ]; do
        sleep 0.05
        tries=$((tries + 1))
    done
    hanging=$(processes "^${MPIRUN%% *} .*${2#^}")
    [ -z "$hanging" ] || kill -9 $hanging
    wait "$1"
}

# interrupted RUN COPY STEP: copy the folder of a run as if it had been killed after the checkpoint of this step: newer checkpoints,
# the results and the weights are missing.
interrupted() {
    cp -a "$work/$1" "$work/$2"
    rm -f "$work/$2/result.json" "$work/$2"/*.safetensors
    ls "$work/$2"/checkpoints/step-*.h5 | awk -v last="$work/$2/checkpoints/step-$(printf %08d "$3").h5" '$0 > last' | xargs rm
}

# wait_until COMMAND...: wait until the command succeeds, at most 2 minutes or $wait_job ends. False if it never did.
wait_until() {
    tries=0
    until "$@"; do
        [ $tries -lt 6000 ] || return
        # The command may have succeeded just before the end of the job.
        [ -z "${wait_job:-}" ] || kill -0 "$wait_job" 2>/dev/null || { "$@"; return; }
        sleep 0.02
        tries=$((tries + 1))
    done
}

# wait_for PATTERN FILE: wait until a line of FILE matches PATTERN.
wait_for() { wait_until grep -qsE "$1" "$2"; }

# take_nodes N [slurm]: start N nodes (cluster.sh), with Slurm if requested, for `cluster`. Settings for mpirun are in
# $work/env.sh. Skip the test if nodes cannot be started.
take_nodes() {
    node_count=$1
    shift
    cluster() { sh "$TEST_SOURCE/test/support/cluster.sh" "$work" "$@"; }
    reason=$(cluster usable "$@") || skip_all "$reason"
    tidy() { cluster down; }
    trap 'exit 1' INT TERM
    cluster up "$node_count" "$@" || exit 1
    cluster env >"$work/env.sh"
}

# on_first COMMAND WORD...: run the command on the first node, with the settings for mpirun.
on_first() { cluster exec 1 sh -c '. "$0/env.sh" && cd "$0" && exec "$@"' "$work" "$@"; }

# notice_soon: let mpirun notice a lost node after 3 s.
notice_soon() {
    for name in OMPI_MCA_oob_tcp PRTE_MCA_oob_tcp PRTE_MCA_prte; do
        echo "export ${name}_keepalive_time=1 ${name}_keepalive_probes=2"
    done >>"$work/env.sh"
}

# paused RANK FILE: wait until this rank waits for FILE (debug.pause), and print its process ID.
paused() {
    wait_until test -s "$2.$1"
    cat "$2.$1"
}

# signalled RANKS NAME SIGNAL PHASE:STEP WORD...: start a run in the folder $work/NAME. Its last rank gets the signal in that phase.
# Print what is wrong with the end of the run. Its output is appended to $work/NAME.log.
signalled() {
    on=$1 name=$2 signal=$3 phase=$4 rank=$(($1 - 1)) launcher='' go=$work/go
    shift 4
    [ "$on" = 1 ] || launcher="$MPIRUN -np $on"
    rm -f "$go"*
    timeout $time_limit $launcher "$vittrain" run.dir="$work/$name" debug.pause="$phase:$go" "$@" >"$work/signalled.log" 2>&1 </dev/null &
    job=$!
    victim=$(paused $rank "$go")
    if [ -n "$victim" ]; then
        kill -"$signal" "$victim"
        [ "$signal" = KILL ] || sleep 0.5 # until its thread has the signal
        touch "$go"
        if [ "$signal" = KILL ]; then killed_job $job "^$vittrain run.dir=$work/$name "; else wait $job; fi
        ended=$?
        [ "$signal" = KILL ] || [ $ended = 0 ] || echo "$phase: exit status $ended;"
        [ "$signal" != KILL ] || reports_kill $ended || echo "$phase: exit status 0;"
    else
        wait $job
        echo "$phase: no pause;"
    fi
    cat "$work/signalled.log" >>"$work/$name.log"
}

# take_emulated_gpu: set $module to the module of the emulated GPU. Skip the test if it was not built.
take_emulated_gpu() {
    module=$TEST_BUILD/test/emulated-cuda.so
    [ -e "$module" ] || skip_all 'no g++ for the emulated GPU'
}

# column FILE SPLIT NAME: print step and a column of metrics.csv for one split, one row per line, without those of outputs.
column() {
    awk -F, -v split_="$2" -v name="$3" '
        NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
        $at["split"] == split_ && $at["output"] == "" { print $at["step"], $at[name] }' "$1"
}

# differ A B TOLERANCE: print the first pair of values in two files of `column` whose difference exceeds TOLERANCE of
# the larger value, or the difference in length. Print nothing if the files agree.
differ() {
    paste -d' ' "$1" "$2" | awk -v tolerance="$3" '
        NF != 4 { print "line " NR ": " $0; exit }
        {
            gap = $2 - $4; if (gap < 0) gap = -gap
            size = $2 < 0 ? -$2 : $2
            if ($1 != $3 || !(gap <= tolerance * size)) { print "line " NR ": " $0; exit }
            seen++
        }
        END { if (NR == 0) print "nothing to compare" }'
}

# losses_of NAME: if the newest run succeeded, write its losses to $work/NAME.loss and $work/NAME.val, and other columns to
# $work/NAME.COLUMN.
losses_of() {
    [ $status -eq 0 ] || return
    column "$work/$1/metrics.csv" val loss >"$work/$1.val"
    for column in loss grad_norm loss_scale skipped_steps; do
        column "$work/$1/metrics.csv" train $column >"$work/$1.$column"
    done
}

# train RANKS NAME WORD...: run with the words $steps in the folder $work/NAME.
train() {
    train_ranks=$1 trained=$2
    shift 2
    run "$train_ranks" "$trained" $steps run.dir="$work/$trained" "$@"
    losses_of "$trained"
}

# compare NAME RUN REFERENCE TOLERANCE: the newest run, RUN, succeeded and has the losses of REFERENCE.
compare() {
    bad=
    [ $status -eq 0 ] || bad="exit status $status"
    [ -n "$bad" ] || bad=$(differ "$work/$3.loss" "$work/$2.loss" "$4")
    [ -n "$bad" ] || bad=$(differ "$work/$3.val" "$work/$2.val" "$4")
    result "$1" "$bad" "$work/$2.log"
}
