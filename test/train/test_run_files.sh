#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# Files of real runs: result.json, metrics.csv, and rows of the log book. Runs finish,
# are resumed or stopped, or fail.
. "$TEST_SOURCE/test/support/program.sh"
needs python3

short="$small train.steps=20 output.weights=off output.tensorboard=off checkpoint.every=0"

# ranks: prints attempt and rank of the ranks in result.json.
ranks() { python3 -c 'import json; print([(rank["attempt"], rank["rank"]) for rank in json.load(open("one/result.json"))["ranks"]])'; }

# rows FILE PATTERN: prints the number of lines that match.
rows() { grep -cE -- "$2" "$1" 2>/dev/null; }

run 3 one $short mesh.strategy=fsdp data.val=reference train.test=on run.dir="$work/one"
python3 -c '
import json, os, re
result = json.load(open("one/result.json"))
keys = {
    "": """format finished stop_reason name tags seed model image image_width parameters trainable_parameters
        flops_per_image peak_flops backend precision strategy replica shard transport world_size nodes threads global_batch
        planned_bytes planned train_samples val_samples test_samples class_names loss_weights chosen_on_test steps_per_epoch total_steps
        val_steps base_lr attempts units ranks epochs steps total_seconds without_setup_seconds training_seconds
        images_per_second train best split samples loss top1 top5 evaluation_seconds test classes
        macro confusion_matrix sensors""",
    "train": "loss top1 top5",
    "best": "monitor value step",
    "test": """split samples loss top1 top5 evaluation_seconds classes macro confusion_matrix weights step""",
    "attempts": """started ended command version commit instructions library job hosts devices ranks nodes threads changed
        from_step to_step resumed_from setup_seconds seconds stop_reason error""",
    "units": """unit parameters trainable_parameters weights_bytes gradients_bytes optimizer_bytes gathered_bytes
        activations_bytes buffers_bytes forward_seconds backward_seconds waiting_seconds""",
    "ranks": """attempt rank host device threads planned_bytes peak_bytes user_seconds system_seconds steps seconds
        data_seconds compute_seconds exposed_comm_seconds""",
    "classes": "name recall precision f1 specificity one_vs_rest_accuracy",
}
page = open(os.environ["TEST_SOURCE"] + "/docs/outputs.md").read()
lines = page[page.index("\n## result.json"):page.index("\n## Log book")].split("\n")
described = set(re.findall("`([a-z0-9_]+)`", "\n".join(lines)))
for key, names in keys.items():
    value = result if key == "" else result[key]
    differing = set(names.split()) ^ set(value[0] if isinstance(value, list) else value)
    if differing: print(key or "result.json", sorted(differing))
    if set(names.split()) - described: print("docs/outputs.md lacks", sorted(set(names.split()) - described))
for key, value in {"name": "vittrain", "world_size": 3, "shard": 3, "strategy": "fsdp", "steps": 20, "split": "val", "train_samples": 563,
                   "test_samples": 125, "stop_reason": "all steps done"}.items():
    if result[key] != value: print(key, result[key])
if not re.search("vittrain .*mesh.strategy=fsdp", result["attempts"][0]["command"]): print(result["attempts"])
if [(rank["attempt"], rank["rank"]) for rank in result["ranks"]] != [(1, 0), (1, 1), (1, 2)]: print(result["ranks"])
if not 0 < result["training_seconds"] <= result["without_setup_seconds"] <= result["total_seconds"]: print("seconds")
if result["best"]["monitor"] != "top1" or not 0 <= result["train"]["top1"] <= 1: print(result["best"], result["train"])
' >bad 2>&1
result 'result.json has the keys of docs/outputs.md' "$(ended; cat bad)" "$work/one/result.json"

# The times of all units add up to the step time in metrics.csv.
bad=$(python3 -c '
import csv, json
units = json.load(open("one/result.json"))["units"]
times = [unit[key] for unit in units for key in ("forward_seconds", "backward_seconds", "waiting_seconds")]
steps = [row for row in csv.DictReader(open("one/metrics.csv")) if row["split"] == "train"]
def mean(*keys): return sum(float(row[key]) for row in steps for key in keys) / len(steps)
phases = mean("forward_seconds", "backward_seconds", "reduce_seconds", "update_seconds")
whole = mean("compute_seconds", "exposed_comm_seconds")
names = [unit["unit"] for unit in units]
if names != ["stem", "blocks.0", "blocks.1", "head", "(the step)"]: print("units are", names)
if len(steps) != 20 or min(times) < 0 or sum(times) <= 0: print(len(steps), "steps,", times)
if not all(0 < float(row["peak_share"] or 1) <= 1 for row in steps): print("MFU")
if abs(sum(times) - phases) > 0.01 * phases or abs(phases - whole) > 0.01 * whole: print(sum(times), phases, whole)
' 2>&1)
result "the units' times are the step's" "$bad" "$work/one/result.json"

bad=$(has one/result.json '"test": \{' '"weights": "(best|last)"')
[ "$(rows one/metrics.csv ',test,')" = 1 ] || bad="$bad no row of the test split"
result 'the test split is evaluated once' "$bad" "$work/one/result.json"

# With data.val=test both splits are equal, so the test repeats the best evaluation, with an older checkpoint.
# The second epoch makes the loss worse.
for change in train.epochs=1 'train.epochs=2 optim.lr=1'; do
    run 3 best $small $change checkpoint.monitor=loss train.test=on mesh.strategy=fsdp run.dir="$work/best"
done
bad=$(python3 -c '
import json
result = json.load(open("best/result.json"))
test, best = result["test"], result["best"]
if test["weights"] != "best" or test["step"] != best["step"] or best["step"] >= result["steps"]: print("weights", test["step"], best)
if abs(test["loss"] - best["value"]) > 1e-6 * best["value"] or test["loss"] == result["loss"]: print("loss", test["loss"], best, result["loss"])
' 2>&1)
result 'the test split is evaluated with the best weights' "$bad" "$work/best.log"

run 1 evaluated eval "$work/best/best.safetensors" $small predict.split=val
python3 -c '
import json, re
header = [open(f"best/{name}.safetensors", "rb").read() for name in ("best", "weights")]
size = 8 + int.from_bytes(header[0][:8], "little")
if header[0][:size] != header[1][:size]: print("other names, shapes or metadata")
if header[0] == header[1]: print("the last weights")
best = json.load(open("best/result.json"))["best"]["value"]
loss = float(re.search("loss\": ([0-9.]*)", open("evaluated.log").read()).group(1))
if abs(loss - best) > 2e-5 * best: print("loss", loss, best)
' >bad 2>&1
result 'best.safetensors has the best weights' "$(cat bad)" "$work/evaluated.log"

python3 -c '
import base64, json, struct
kept = json.load(open("best/misclassified.json"))
result = json.load(open("best/result.json"))["test"]
wrong = result["samples"] - sum(row[i] for i, row in enumerate(result["confusion_matrix"]))
samples = kept["samples"]
if kept["split"] != "test" or len(samples) != min(wrong, 12): print("split, count", kept["split"], len(samples), wrong)
if samples != sorted(samples, key=lambda s: -s["probability"]): print("order")
for s in samples:
    png = base64.b64decode(s["png"])
    if result["confusion_matrix"][s["class"]][s["predicted"]] == 0 or s["class"] == s["predicted"]: print("class", s)
    if png[:8] != b"\x89PNG\r\n\x1a\n" or struct.unpack(">II", png[16:24]) != (32, 32): print("picture", s["name"])
' >bad 2>&1
result 'misclassified.json has the errors of the matrix with the highest probabilities' "$(cat bad)" "$work/best.log"

# The order of the last lines; the warning is logged only if several evaluations choose a checkpoint.
grep -v '^warning: ' best.log | tail -n 4 | cut -d' ' -f1 | tr '\n' ' ' >order
bad=$([ "$(cat order)" = 'time: final: test: next: ' ] || cat order)
bad="$bad$(has best.log "^next: vittrain report $work/best$")"
result 'the log ends with the results and the next command' "$bad" "$work/best.log"
bad=$([ "$(rows best.log '^warning: data.val=test: .* data.val=0.1$')" = 1 ] || echo 'no warning;')
grep -q ' warning: data.val=test: ' best/train.log || bad="$bad not in train.log;"
! grep -q '^warning: data.val=test' one.log || bad="$bad with data.val=reference"
result 'a best checkpoint that is chosen on the test set is a warning' "$bad" "$work/best.log"

bad=$(has runs/logbook/README.md '^\| .*/one \| 20[-0-9]* [0-9:]{8} UTC \| vit_cifar \| 3 \| 1 \| fsdp \| fp32 \| 24 \| 0.9 \| accuracy .* \| accuracy .* \| [0-9.]* \| .* \| finished \| all steps done \|$')
result 'the row of the log book' "$bad" "$work/runs/logbook/README.md"

# The run is resumed on one rank: a second attempt.
run 1 more $short train.steps=30 run.dir="$work/one" mesh.strategy=fsdp data.val=reference
bad=$(ended)
[ "$(ranks)" = '[(1, 0), (1, 1), (1, 2), (2, 0)]' ] || bad="$bad ranks $(ranks);"
[ "$(rows one/result.json '"from_step"')" = 2 ] || bad="$bad attempts;"
[ "$(rows runs/logbook/README.md '^\| .*/one \|')$(rows runs/logbook/README.md '^\| .*/one \| [^|]* \| vit_cifar \| 1 \|')" = 11 ] || bad="$bad rows of the index;"
result 'a resumed run keeps its history and its row' "$bad" "$work/runs/logbook/README.md"

# A finished run that is continued, and fails.
cp -r one beyond
run 1 beyond $short train.steps=40 optim.lr=1e30 run.dir="$work/beyond" mesh.strategy=fsdp data.val=reference
bad=$(ended 7; has beyond/result.json '^ "finished": false' '^ "steps": 30' '"error": ".*(NaN|finite)')
[ "$(rows beyond/result.json '"from_step"')" = 3 ] || bad="$bad attempts;"
result 'a finished run that is continued is not finished' "$bad" "$work/beyond/result.json"

run 1 again $small train.epochs=1000 train.max_seconds=1 run.dir="$work/again"
result 'the row of a run that stopped before its end' \
    "$(ended; has runs/logbook/README.md '^\| .*/again \| .* \| [0-9.]* of 1000 \| .* \| stopped \| train.max_seconds have passed')" "$work/again.log"

run 1 wild $short optim.lr=1e30 run.dir="$work/wild"
result 'the row of a failed run has the reason' "$(ended 7; has runs/logbook/README.md '^\| .*/wild \| .* \| failed \| .*(NaN|finite)')" "$work/wild.log"

: >file
run 1 unwritable $short run.dir="$work/unwritable" output.logbook="$work/file"
bad=$(ended)
[ "$(rows unwritable.log 'warning: .*log book: .*/file:')" = 1 ] || bad="$bad no warning;"
run 1 none $short run.dir="$work/none" output.logbook=
! grep -q '/none ' runs/logbook/README.md && ! grep -q 'log book' none.log || bad="$bad a row where none was asked for"
result 'a log book that cannot be written is a warning' "$bad" "$work/unwritable.log"
