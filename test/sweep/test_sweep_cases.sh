#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# tools/sweep.py without trainings, but for one sweep: keys, values, methods, results, claims and errors. A script stands for the program.
. "$TEST_SOURCE/test/support/program.sh"
needs python3
script=$TEST_SOURCE/tools/sweep.py

# Writes the files of a run: its best value is optim.lr, or 2 with optim.lr=two; in the notation of `format` 2 if there is a file
# `second`. Other values of optim.lr: fail, usage (an error of the program), limit (the time is up), none (no evaluation).
cat >program <<'END'
#!/bin/sh
echo "$*" >>calls
finished=true stop=null monitor=${MONITOR:-top1}
for word; do
    case $word in
    run.dir=*) folder=${word#run.dir=} ;;
    optim.lr=fail) exit 3 ;;
    optim.lr=usage) echo 'vittrain: error: optim.lr is wrong' >&2 && exit 2 ;;
    optim.lr=limit) finished=false value=0.5 stop='"train.max_seconds have passed"' ;;
    optim.lr=none) value=null ;;
    optim.lr=*) value=${word#optim.lr=} ;;
    esac
done
mkdir -p "$folder"
printf '[run]\nname = a\ndir = %s\n[optim]\nlr = %s\n[output]\nlogbook = \n' "$folder" "$value" >"$folder/deck.ini"
echo "{\"format\": 2, \"finished\": $finished, \"stop_reason\": $stop, \"best\": {\"monitor\": \"$monitor\", \"value\": $value}, \"total_seconds\": 7}" >"$folder/result.json"
END
chmod +x program

# sweep NAME WORD...: run sweep.py; set $status, write the output to NAME.log.
sweep() {
    run_log=$work/$1.log
    shift
    timeout $time_limit python3 "$script" "$@" >"$run_log" 2>&1 </dev/null
    status=$?
}

# wrong NAME STATUS TEXT WORD...: sweep.py ends with this status and one line that has the text.
wrong() {
    name=$1 expected=$2 text=$3
    shift 3
    sweep wrong "$@"
    bad=$(ended "$expected")
    [ "$(grep -c '^sweep.py: error: ' "$run_log")" = 1 ] || bad="$bad no line of error;"
    grep -q "error: .*$text" "$run_log" || bad="$bad no $text"
    result "$name" "$bad" "$run_log"
}

# rows FOLDER: print state, values and metric of all trials.
rows() { awk -F, 'NR > 1 { print $2 "," $4 "," $5 "," $6 }' "$1/trials.csv" | paste -s -d ' '; }

sweep grid grid optim.lr=0.1,0.3,0.2 model.depth=1..5:3 -- ./program deck.ini
bad=$(ended)
expected='finished,0.1,1,0.1 finished,0.1,3,0.1 finished,0.1,5,0.1 finished,0.3,1,0.3 finished,0.3,3,0.3 finished,0.3,5,0.3'
[ "$(rows grid)" = "$expected finished,0.2,1,0.2 finished,0.2,3,0.2 finished,0.2,5,0.2" ] || bad="$bad $(rows grid);"
grep -qx 'deck.ini optim.lr=0.3 model.depth=5 run.dir=grid/trial-006 output.logbook=' calls || bad="$bad other words"
result 'a grid' "$bad" grid/trials.csv
[ "$(paste -s -d ' ' grid/best.ini)" = '[run] name = a [optim] lr = 0.3 [output]' ] && bad= || bad='other best.ini;'
[ "$(sed -n '/^ *[0-9]/{s/ *\([0-9]*\).*/\1/p;}' grid.log | head -n 1)" = 4 ] || bad="$bad the best is not first"
result 'best.ini, and a table with the best first' "$bad" grid.log
calls=$(wc -l <calls)
sweep again grid
bad=$(ended)
[ "$(wc -l <calls)" = "$calls" ] || bad="$bad trials ran again"
result 'a sweep at its end runs nothing' "$bad" "$run_log"

MONITOR=loss sweep loss loss optim.lr=0.3,0.1,0.2 "optim.betas=0.9,0.99;0.8,0.9" -- ./program
bad=$(ended)
grep -q '^lr = 0.1$' loss/best.ini || bad="$bad not the lowest loss;"
grep -q '^1,finished,[0-9]*,0.3,"0.9,0.99",0.3,[0-9.]*,trial-001,$' loss/trials.csv || bad="$bad other rows"
result 'the lowest loss is best; values that contain commas' "$bad" loss/trials.csv
sweep failed failed optim.lr=fail,0.2,limit,none,usage -- ./program
states=$(cut -d, -f2 failed/trials.csv | paste -s -d ' ')
[ "$states" = 'state failed finished finished failed failed' ] && bad= || bad="states: $states;"
grep -q '^1,.*exit code 3' failed/trials.csv && grep -q '^5,.*optim.lr is wrong' failed/trials.csv || bad="$bad no reason;"
grep -q '^3,.*,train.max_seconds have passed$' failed/trials.csv || bad="$bad the limit is not named;"
result 'trials that fail, or reach the limit of time, have a reason; the sweep continues' "$(ended)$bad" failed/trials.csv
wrong 'all trials fail' 1 'all trials' bad optim.lr=fail,none -- ./program
wrong 'a usage error in the first trial ends the sweep' 2 'optim.lr is wrong' usage optim.lr=usage,1 -- ./program

sweep random random --method=random --trials=12 --seed=5 optim.lr=1e-4..0.1:log model.depth=2..4 -- ./program
sweep other other --method=random --trials=11 --seed=5 optim.lr=1e-4..0.1:log model.depth=2..4 -- ./program
sweep other other --trials=12
bad=$(ended)
[ "$(rows random)" = "$(rows other)" ] || bad="$bad one seed, two sweeps;"
[ "$(grep -c ',finished,' other/trials.csv)" = 12 ] || bad="$bad not 12 trials"
result 'random values depend on seed and trial only; more trials' "$bad" random/trials.csv

cat >unit.py <<'END'
import importlib.util, os, sys
spec = importlib.util.spec_from_file_location("sweep", sys.argv[1])
sweep = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sweep)
def values(word): return sweep.Key(word).values
assert values("a.b=1e-4..0.1:log:4") == ["0.0001", "0.001", "0.01", "0.1"]
assert values("a.b=0..1.0:3") == ["0", "0.5", "1"]
assert values("a.b=-3..3:3") == ["-3", "0", "3"]
assert values("a.b=x;y,z") == ["x", "y,z"]
ranges = [sweep.Key(w) for w in ("a.b=2..4", "a.b=1..64:log", "a.b=0.5..0.7", "a.b=-2..2")]
for key in ranges:
    drawn = [float(key.draw(i)) for i in range(3000)]
    assert key.low <= min(drawn) < key.low + 0.01 and key.high - 1.5 < max(drawn) <= key.high, key.name
    assert key.kind is float or all(v == int(v) for v in drawn)
counts = [[ranges[0].draw(i) for i in range(3000)].count(v) for v in "234"]
assert min(counts) > 850, counts
key = sweep.Key("a.b=1e-4..0.1:log")
assert 1300 < sum(float(key.draw(i)) < 10**-2.5 for i in range(3000)) < 1700
# Claims: of this host they are void without a lock, of another one two minutes after the last renewal.
plan = {"keys": ["a.b=1,2,3"], "method": "grid", "trials": 3, "seed": 1, "command": ["true"]}
one, two, three = (sweep.Sweep("claims", plan) for _ in range(3))
os.mkdir("claims")
a, b = one.claim(), two.claim()
assert (a[0], b[0]) == (1, 2), (a, b)
a[1].close()
number, again = two.claim()
assert number == 1 and again.name == "claims/.claim-001.2"
c = one.claim()
assert c[0] == 3 and one.claim() is None
with open("claims/.claim-001.3", "w") as file: file.write("elsewhere 17\n")
assert one.claim() is None
os.utime(file.name, (1, 1))
d = one.claim()
assert d[1].name == "claims/.claim-001.4"
one.asked = 1  # a signal stops the trial before its start; then one process continues it
one.run(*d)
assert sweep.read_json("claims/trial-001.json")["state"] == "stopped" and one.claim() is None
with open(d[1].name, "w") as file: file.write("elsewhere 17\n")
os.utime(file.name, (0, 0))  # as if released on another host
e, f = two.claim(), three.claim()
assert e[1].name == "claims/.claim-001.5" and f is None, (e, f)
for state in ("finished", "failed"):
    e[1].close()
    sweep.write("claims/trial-001.json", '{"state": "%s"}' % state)
    assert two.claim() is None
END
python3 unit.py "$script" >unit.log 2>&1 && bad= || bad="status $?"
result 'ranges, their distribution, claims' "$bad" unit.log

wrong 'no folder' 2 folder
wrong 'a folder that has no sweep' 2 nowhere nowhere
wrong 'no command' 2 nowhere nowhere optim.lr=1,2
wrong 'an unknown flag' 2 --foo nowhere --foo optim.lr=1,2 -- ./program
wrong 'an unknown method' 2 method nowhere --method=best optim.lr=1,2 -- ./program
for word in lr=1,2 optim.lr=1 optim.lr=1,,2 optim.lr=1,1 optim.lr=2..1 optim.lr=0..1:log optim.lr=1..2:loq optim.lr=..2 optim.lr=1..2:1 \
    optim.lr=1..2; do
    wrong "a wrong key: $word" 2 "${word%%=*}" nowhere $word -- ./program
done
wrong 'a key that varies twice' 2 twice nowhere optim.lr=1,2 optim.lr=3,4 -- ./program
wrong 'trials of a grid' 2 --trials nowhere --trials=3 optim.lr=1,2 -- ./program
wrong 'no trials' 2 --trials nowhere --method=random --trials=0 optim.lr=1,2 -- ./program
[ -e nowhere ] && bad='a folder was made' || bad=
result 'all that before anything was written' "$bad"
wrong 'the folder of another sweep' 2 grid grid optim.lr=1,2 -- ./program deck.ini
wrong 'other options' 2 grid grid -- ./program other.ini
wrong 'a program that is not there' 5 ./nothing gone optim.lr=1,2 -- ./nothing
echo '{' >gone/sweep.json
wrong 'a damaged file' 5 gone/sweep.json gone
wrong 'a folder that is a file' 5 program/ program/x optim.lr=1,2 -- ./program
if python3 -c 'import optuna' 2>/dev/null; then
    sweep tpe tpe --method=tpe --trials=14 optim.lr=1e-4..0.1:log model.depth=2..4 model.name=a,b -- ./program
    bad=$(ended)
    [ "$(grep -c ',finished,' tpe/trials.csv)" = 14 ] || bad="$bad not all trials"
    result 'TPE by Optuna' "$bad" "$run_log"
else
    wrong 'TPE without Optuna' 2 --method=tpe tpe --method=tpe optim.lr=1,2 -- ./program
fi

# Trainings on two ranks; one fails.
sweep real real optim.lr=3e-3,1e30 -- $MPIRUN -np 2 "$vittrain" $small debug.batches=5 train.epochs=2 output.monitor=0
bad=$(ended)
grep -q '^1,finished,' real/trials.csv && grep -q '^2,failed,.*NaN' real/trials.csv || bad="$bad other states;"
grep -q '2 ranks' real/trial-001/train.log || bad="$bad not on two ranks;"
run 1 best real/best.ini train.epochs=1 run.dir=best
[ $status -eq 0 ] || bad="$bad best.ini: status $status"
result 'trials on two ranks' "$bad" real/trials.csv
