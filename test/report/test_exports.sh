#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# report.py's report.format and the program's output.tensorboard_tags, on two ranks: the log lines and files that an export
# writes from a run's folder, and the tags and steps of TensorBoard events.
. "$TEST_SOURCE/test/support/program.sh"
needs python3
PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE

# train.batch clears the deck's global batch, so that the result file has the batch per rank that was asked for.
printf '[train]\nglobal_batch = 64\n' >"$work/deck.ini"
tiny="$work/deck.ini model.name=cnn_a data.format=cifar10 debug.fraction=0.2 train.precision=fp32 train.batch=10 \
run.threads=1 run.seed=7 optim.lr=3e-3 output.monitor=0 output.logbook="

# points FOLDER: the points of its TensorBoard events, "TAG STEP VALUE" in each line.
points() {
    python3 - "$1" 2>&1 <<'END'
import glob, struct, sys

NUMBERS = {1: "<d", 5: "<f"}

def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value, at

def fields(data):
    at, found = 0, {}
    while at < len(data):
        key, at = varint(data, at)
        kind, key = key & 7, key >> 3
        found[key], at = (struct.calcsize(NUMBERS[kind]), at) if kind in NUMBERS else varint(data, at)
        if kind != 0:
            part, at = data[at:at + found[key]], at + found[key]
            found[key] = struct.unpack(NUMBERS[kind], part)[0] if kind in NUMBERS else part
    return found

for name in sorted(glob.glob(sys.argv[1] + "/events.out.tfevents.*")):
    data = open(name, "rb").read()
    while data:
        size = struct.unpack_from("<Q", data)[0]
        event, data = fields(data[12:12 + size]), data[16 + size:]
        value = fields(fields(event[5])[1]) if 5 in event else {}
        if 2 in value:  # a scalar, not the options and results of a run
            print(value[1].decode(), event.get(2, 0), "%.6g" % value[2])
END
}

# steps FOLDER TAG: the steps of the points with this tag.
steps() {
    points "$1" | awk -v tag="$2" '$1 == tag { printf "%s%s", n++ ? " " : "", $2 }'
}

# differs NAME FOUND EXPECTED: prints a problem unless both are equal.
differs() {
    [ "$2" = "$3" ] || echo "$1: $2, not $3; "
}

# counted PATTERN FILE COUNT: prints a problem unless COUNT lines match.
counted() {
    differs "lines with $1" "$(grep -cE "$1" "$2")" "$3"
}

# drawn FILE NAME: prints a problem unless this is XML with a curve of this name.
drawn() {
    python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' "$1" 2>&1 &&
        has "$1" "<tspan fill=\"#[0-9a-f]*\">$2 <" 'stroke="#0067ac" stroke-width="(1.7|2.9)"'
}

# export_run FORMAT FOLDER: the report with this format.
export_run() {
    run_log=$work/report_$2.log
    timeout $time_limit python3 "$TEST_SOURCE/tools/report.py" "$work/$2" "report.format=$1" output.logbook= >"$run_log" 2>&1
    status=$?
}

run 2 cnn $tiny run.dir="$work/cnn" output.tensorboard_tags=imagenet output.log_every=8 train.epochs=2 schedule.name=cosine schedule.per=epoch
export_run imagenet cnn
log=$work/cnn/imagenet.log
meter='[0-9]+[.][0-9]{3} \( *[0-9]+[.][0-9]{3}\)' loss='Loss [0-9][.][0-9]{4}e[+-][0-9]{2} \([0-9][.][0-9]{4}e[+-][0-9]{2}\)'
share='[0-9]+[.][0-9]{2} \( *[0-9]+[.][0-9]{2}\)' tab=$(printf '\t')
result "ImageNet's lines are in imagenet.log" "$(
    differs status $status 0
    counted "^Epoch: \[[01]\]\[( 0| 8|16|19)/20\]${tab}Time +$meter${tab}Data +$meter${tab}$loss${tab}Acc@1 +$share${tab}Acc@5 +$share\$" "$log" 8
    counted "^Test: \[4/5\]${tab}Time +$meter${tab}$loss${tab}Acc@1 +$share${tab}Acc@5 +$share\$" "$log" 2
    counted '^ \* Acc@1 [0-9]+[.][0-9]{3} Acc@5 [0-9]+[.][0-9]{3}$' "$log" 2
    differs rates "$(grep '^lr: ' "$log" | tr '\n' ' ')" "lr: [0.0015] lr: [0.0] ")" "$run_log"
result "and its tags in the events" "$(
    differs tags "$(points "$work/cnn" | awk '{ print $1 }' | sort -u | tr '\n' ' ')" \
        "Loss/train Loss/val acc1/train acc1/val acc5/train acc5/val lr "
    differs steps "$(steps "$work/cnn" Loss/train)" "1 9 17 21 29 37"
    differs steps "$(steps "$work/cnn" acc1/val)" "20 40"
    differs accuracy "$(points "$work/cnn" | awk '$1 == "acc1/val" { printf " * Acc@1 %.3f\n", $3 }')" \
        "$(grep -o '^ \* Acc@1 [0-9.]*' "$log")")"

export_run course cnn
file=$work/cnn/10_2_1_2.txt
result "the course's lines are in its result file" "$(
    differs status $status 0
    counted '^Epoch \[[12]/2\], Step \[(1|9|17|20)/20\], Loss: [0-9]+\.[0-9]{4}$' "$file" 8
    counted '^Epoch [12] completed in [0-9]+\.[0-9]{2} seconds$' "$file" 2
    counted '^Train Accuracy: [0-9]+\.[0-9]{2}%, Test Accuracy: [0-9]+\.[0-9]{2}%$' "$file" 2
    counted '^Total training time so far: [0-9]+\.[0-9]{2} seconds$' "$file" 2
    counted '^Class: ' "$file" 10
    drawn "$work/cnn/accuracy_plot.svg" 'Test Accuracy')" "$run_log"
result "the confusion matrix has its columns" "$(
    awk '/^Actual/ { rows = 1; next }
        rows == 1 && $0 != "      plane  car    bird   cat    deer   dog    frog   horse  ship   truck  " { print "header;" }
        rows > 1 && rows < 12 { if (length($0) != 76) print length($0) " wide;"
            for (i = 2; i <= 11; i++) sum += $i }
        rows { rows++ }
        END { if (rows != 13 || sum != 100) print rows " rows, " sum " samples" }' "$file")" "$file"
rm "$file" && mkdir -p "$file/full"
export_run course cnn
result "a file that cannot be written is an error" "$(ended 5; has "$run_log" '^report: error: .*10_2_1_2[.]txt')" "$run_log"

for epochs in 2 3; do
    run 2 vit $tiny model.name=vit_cifar model.dim=32 model.depth=2 model.heads=2 model.patch=8 run.dir="$work/vit" \
        output.tensorboard_tags=lightning train.epochs=$epochs
done
export_run course vit
file=$work/vit/10_3_1_2.txt
result "a ViT has its own lines, of both attempts" "$(
    differs status $status 0
    counted '^Epoch \[[123]/3\], Step \[(10|20)/20\], Loss: [0-9]+\.[0-9]{4}, Acc: [0-9]+\.[0-9]{2}%$' "$file" 6
    counted '^Epoch \[[123]/3\], Loss: [0-9.]+, Accuracy: [0-9.]+%, Time: [0-9.]+s$' "$file" 3
    counted '^Overall Accuracy: 0\.[0-9]{4}$' "$file" 1
    counted '^Class: airplane$' "$file" 1
    drawn "$work/vit/training_metrics.svg" 'Training Loss')" "$run_log"
export_run lightning vit
result "Lightning's tags are in the events of both attempts" "$(
    differs status $status 0
    differs tags "$(points "$work/vit" | awk '{ print $1 }' | sort -u | tr '\n' ' ')" \
        "epoch hp_metric train/acc_epoch train/acc_step train/loss_epoch train/loss_step val/acc val/acc_best val/loss "
    differs steps "$(steps "$work/vit" train/loss_step)" "9 19 29 39 49 59"
    differs steps "$(steps "$work/vit" val/acc_best)" "19 39 59"
    differs epochs "$(points "$work/vit" | awk '$1 == "epoch" { print $2 ":" $3 }' | sort -u | tr '\n' ' ')" \
        "19:0 29:1 39:1 49:2 59:2 9:0 ")"
result "hparams.yaml has the counts of parameters and the deck" "$(
    file=$work/vit/hparams.yaml
    counted '^model/params/(total|trainable): [1-9][0-9]*$' "$file" 2
    counted '^model/params/non_trainable: 0$' "$file" 1
    counted '^train:$' "$file" 1
    counted '^  epochs: 3$' "$file" 1
    counted "^  tensorboard_tags: 'lightning'$" "$file" 1
    differs keys "$(grep -cE "^  [a-z0-9_]+: (true|false|-?[0-9.]+(e[-+][0-9]+)?|'.*')\$" "$file")" "$(grep -cvE '^$|^\[|\+=' "$work/vit/deck.ini")"
    counted "^'train' execution time: [0-9]+[.][0-9]+ \(s\)\$" "$work/vit/exec_time.log" 1)" "$run_log"
