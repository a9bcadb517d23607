# What the tests of the whole program share: a small model on a part of the sample, TAP results, and
# comparisons of runs. Sourced; the caller prints its own plan.

number=0
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1 # so that log books of runs lie there, too
srcdir=$TEST_SOURCE  # where test programs find their vectors
export srcdir
vittrain=$TEST_BUILD/vittrain
XDG_CACHE_HOME=$work/cache # where emulated GPUs remember algorithms
export XDG_CACHE_HOME

# What makes a run small: 50 steps take about a second. Everything random is on.
small="model.name=vit_cifar model.dim=32 model.depth=2 model.heads=2 model.patch=8 \
data.format=cifar10 debug.fraction=0.15 train.precision=fp32 train.global_batch=24 \
output.log_every=1 run.seed=7 run.threads=1 optim.lr=3e-3"

# result NAME PROBLEM [FILE]: a TAP line; the problem is empty when all is well, the file explains.
result() {
    number=$((number + 1))
    if [ -z "$2" ]; then
        echo "ok $number - $1"
        return
    fi
    echo "not ok $number - $1"
    echo "# $2"
    [ -z "$3" ] || sed 's/^/# /' "$3"
}

# run RANKS NAME WORD...: runs the program; its output lies in $work/NAME.log, its status in $status.
run() {
    run_ranks=$1 run_log=$work/$2.log
    shift 2
    if [ "$run_ranks" = 1 ]; then
        timeout 120 "$vittrain" "$@" >"$run_log" 2>&1 </dev/null
    else
        timeout 120 $MPIRUN -np "$run_ranks" "$vittrain" "$@" >"$run_log" 2>&1 </dev/null
    fi
    status=$?
}

# failed_otherwise STATUS PATTERN: what is not so when the newest run is to have ended with this
# status and one line of error that has the pattern; nothing when all is.
failed_otherwise() {
    [ $status -eq "$1" ] || echo "exit status $status, not $1;"
    lines=$(grep -c '^vittrain: error: ' "$run_log")
    [ "$lines" = 1 ] || echo "$lines lines of error;"
    grep '^vittrain: error: ' "$run_log" | grep -qE "$2" || echo "no $2"
}

# fails RANKS NAME STATUS PATTERN WORD...: the command ends with this status and one line of error.
fails() {
    on=$1 title=$2 expected=$3 pattern=$4
    shift 4
    run "$on" failing "$@"
    result "$title" "$(failed_otherwise "$expected" "$pattern" | tr '\n' ' ')" "$run_log"
}

# killed WORD...: two ranks train in $work/killed, one is killed when the first checkpoint is there; prints
# what is wrong with the job's end, and leaves what it said in $work/killed.log.
killed() {
    timeout 60 $MPIRUN -np 2 "$vittrain" run.dir="$work/killed" "$@" >"$work/killed.log" 2>&1 </dev/null &
    job=$!
    tries=0
    until [ -e "$work/killed/checkpoints/last.h5" ] || [ $tries -gt 3000 ]; do
        sleep 0.01
        tries=$((tries + 1))
    done
    victim=$(pgrep -f "^$vittrain .*run.dir=$work/killed " | tail -n 1)
    kill -9 "$victim"
    wait $job
    status=$?
    [ $status -ne 0 ] && [ $status -ne 124 ] || echo "exit status $status;"
    [ ! -e "$work/killed/result.json" ] || echo "it had ended before"
}

# wait_for PATTERN FILE: until a line of the file has the pattern; at most 30 s.
wait_for() {
    tries=0
    until grep -qs "$1" "$2" || [ $tries -gt 1500 ]; do
        sleep 0.02
        tries=$((tries + 1))
    done
}

# take_nodes N [slurm]: starts N nodes, with Slurm, that `cluster` reaches (cluster.sh), with settings for mpirun in
# $work/env.sh; ends the test where there can be none.
take_nodes() {
    node_count=$1
    shift
    cluster() { sh "$TEST_SOURCE/test/cluster.sh" "$work" "$@"; }
    if ! reason=$(cluster usable "$@"); then
        echo "1..0 # SKIP $reason"
        exit 0
    fi
    trap 'cluster down; rm -rf "$work"' EXIT
    trap 'exit 1' INT TERM
    cluster up "$node_count" "$@" || exit 1
    cluster env >"$work/env.sh"
}

# take_emulated_gpu: sets $module to the emulated GPU's; ends the test where there is none.
take_emulated_gpu() {
    module=$TEST_BUILD/test/emulated-cuda.so
    if [ ! -e "$module" ]; then
        echo '1..0 # SKIP no C++ compiler for the emulated GPU'
        exit 0
    fi
}

# column FILE SPLIT NAME: a column of metrics.csv for one split, one value a line.
column() {
    awk -F, -v split_="$2" -v name="$3" '
        NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
        $at["split"] == split_ { print $at["step"], $at[name] }' "$1"
}

# differ A B TOLERANCE: prints the first pair of values (as `column` gives them) that are further
# apart than TOLERANCE of the larger, or a difference in number; nothing when they agree.
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

# losses_of NAME: of the newest run, if it ended well: its losses lie in $work/NAME.loss and NAME.val.
losses_of() {
    [ $status -eq 0 ] || return
    column "$work/$1/metrics.csv" train loss >"$work/$1.loss"
    column "$work/$1/metrics.csv" val loss >"$work/$1.val"
}

# compare NAME RUN REFERENCE TOLERANCE: the newest run, RUN, ended well and has the REFERENCE's losses.
compare() {
    bad=
    [ $status -eq 0 ] || bad="exit status $status"
    [ -n "$bad" ] || bad=$(differ "$work/$3.loss" "$work/$2.loss" "$4")
    [ -n "$bad" ] || bad=$(differ "$work/$3.val" "$work/$2.val" "$4")
    result "$1" "$bad" "$work/$2.log"
}
