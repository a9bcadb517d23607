#!/bin/sh
# output.style through the whole program, on two ranks: what scripts made for other programs' logs find
# in a run's console and log, the tags and steps of its TensorBoard events, and the files of styles.
. "$TEST_SOURCE/test/program.sh"

tiny="model.name=cnn_a data.format=cifar10 debug.fraction=0.1 train.precision=fp32 train.global_batch=20 \
run.threads=1 run.seed=7 optim.lr=3e-3 output.monitor=0 output.logbook="

# points FOLDER: the points of its events, "TAG STEP VALUE" a line, in their order.
points() {
    python3 -c '
import glob, os, struct, sys

def fields(data):
    """number, value of each field; varints and floats as numbers"""
    at = 0
    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        elif key & 7 == 1:
            yield key >> 3, struct.unpack_from("<d", data, at)[0]
            at += 8
        elif key & 7 == 5:
            yield key >> 3, struct.unpack_from("<f", data, at)[0]
            at += 4
        else:
            size = varint()
            yield key >> 3, data[at:at + size]
            at += size

for name in sorted(glob.glob(os.path.join(sys.argv[1], "events.out.tfevents.*"))):
    data = open(name, "rb").read()
    while data:
        size = struct.unpack_from("<Q", data)[0]
        event = dict(fields(data[12:12 + size]))
        data = data[16 + size:]
        if 5 in event:
            value = dict(fields(dict(fields(event[5]))[1]))
            print(value[1].decode(), event.get(2, 0), "%.6g" % value[2])
' "$1" 2>&1
}

# steps FOLDER TAG: the steps of its points.
steps() {
    points "$1" | awk -v tag="$2" '$1 == tag { printf "%s%s", n++ ? " " : "", $2 }'
}

# differs WHAT FOUND EXPECTED: a problem, or nothing.
differs() {
    [ "$2" = "$3" ] || echo "$1: $2, not $3; "
}

# counted PATTERN FILE COUNT: as many lines have the pattern, or a problem.
counted() {
    differs "lines with $1" "$(grep -cE "$1" "$2")" "$3"
}

# ---- course

run 2 course $tiny run.dir="$work/course" output.style=course output.log_every=8 train.epochs=3
file=$work/course/10_3_1_2.txt
lines='^(No checkpoint|Epoch|Train Acc|Total tr|New best|Training comp|Finished|Class|Accuracy|Precision|Recall|F1-score|Specificity|Confusion|Predicted|Actual|-----|      plane|[a-z]+ +[0-9]+ +[0-9]+ )'
result "the course's lines are there" "$(
    differs status $status 0
    counted '^Epoch \[[123]/3\], Step \[(8|16)/20\], Loss: [0-9]+\.[0-9]{4}$' "$run_log" 6
    counted '^Epoch [123] completed in [0-9]+\.[0-9]{2} seconds$' "$run_log" 3
    counted '^Train Accuracy: [0-9]+\.[0-9]{2}%, Test Accuracy: [0-9]+\.[0-9]{2}%$' "$run_log" 3
    counted '^Total training time so far: [0-9]+\.[0-9]{2} seconds$' "$run_log" 3
    counted '^Set epoch [012] for distributed sampler$' "$run_log" 3
    counted '^epoch [0-9]+ done' "$run_log" 0)" "$run_log"

result "its log has Python's stamps" "$(
    counted '^20..-..-.. ..:..:..,... - Epoch \[[123]/3\], Step \[(8|16)/20\], Loss: ' "$work/course/train.log" 6
    counted '^Class: ' "$work/course/train.log" 10)" "$work/course/train.log"

grep -E "$lines" "$run_log" >"$work/console"
grep -E "$lines" "$file" >"$work/written"
result "the result file has the console's lines" "$(
    [ "$(wc -l <"$work/written")" -gt 80 ] || echo "few lines;"
    cmp "$work/console" "$work/written" 2>&1)" "$file"

result "the confusion matrix has its columns" "$(
    LC_ALL=C awk '/^Actual/ { rows = 1; next }
        rows == 1 && $0 != "      plane  car    bird   cat    deer   dog    frog   horse  ship   truck  " { print "header;" }
        rows > 1 { if (length($0) != 76) print length($0) " wide;"
            for (i = 2; i <= 11; i++) sum += $i }
        rows { rows++ }
        END { if (rows != 12 || sum != 100) print rows " rows, " sum " samples" }' "$file")" "$file"

picture='import struct, sys
data = open(sys.argv[1], "rb").read(24)
print(data[:8] == b"\x89PNG\r\n\x1a\n", *struct.unpack(">II", data[16:]))'
result "and the plots are pictures" "$(for name in accuracy_plot training_metrics; do
    differs $name "$(python3 -c "$picture" "$work/course/$name.png" 2>&1)" "True 1200 500"
done)"

# ---- a ViT of the course, in two parts; something is in the result file's way

vit="$tiny model.name=vit_cifar model.dim=32 model.depth=2 model.heads=2 model.patch=8 output.style=course output.log_every=10"
mkdir -p "$work/vit/10_2_1_2.txt/full"
run 2 vit $vit run.dir="$work/vit" train.epochs=2
result "a ViT has its own, and a result file that cannot be written is a warning" "$(
    differs status $status 0
    counted '^Epoch \[[12]/2\], Step \[(10|20)/20\], Loss: [0-9]+\.[0-9]{4}, Acc: [0-9]+\.[0-9]{2}%$' "$run_log" 4
    counted '^Epoch \[[12]/2\], Loss: [0-9.]+, Accuracy: [0-9.]+%, Time: [0-9.]+s$' "$run_log" 2
    counted '^Saved checkpoint to .*/checkpoints/step-000000[24]0[.]h5$' "$run_log" 2
    counted '^Overall Accuracy: 0\.[0-9]{4}$' "$run_log" 1
    counted '^Class: airplane$' "$run_log" 1
    counted '^warning: .*10_2_1_2[.]txt' "$run_log" 1)" "$run_log"

run 2 vit_more $vit run.dir="$work/vit" train.epochs=3
result "it goes on, and its result file tells of both parts" "$(
    differs status $status 0
    counted '^Resuming training from epoch 2$' "$run_log" 1
    counted '^Epoch \[[123]/3\], Step \[(10|20)/20\], Loss: [0-9.]+, Acc: [0-9.]+%$' "$work/vit/10_3_1_2.txt" 6
    counted '^Epoch \[[123]/3\], Loss: ' "$work/vit/10_3_1_2.txt" 3)" "$run_log"

# ---- imagenet

run 2 imagenet $tiny run.dir="$work/imagenet" output.style=imagenet output.log_every=8 train.epochs=2 schedule.name=cosine schedule.per=epoch
meter='[0-9]+[.][0-9]{3} \( *[0-9]+[.][0-9]{3}\)' loss='Loss [0-9][.][0-9]{4}e[+-][0-9]{2} \([0-9][.][0-9]{4}e[+-][0-9]{2}\)'
share='[0-9]+[.][0-9]{2} \( *[0-9]+[.][0-9]{2}\)' tab=$(printf '\t')
result "ImageNet's lines are there" "$(
    differs status $status 0
    counted "^Epoch: \[[01]\]\[( 0| 8|16)/20\]${tab}Time +$meter${tab}Data +$meter${tab}$loss${tab}Acc@1 +$share${tab}Acc@5 +$share\$" "$run_log" 6
    counted "^Test: \[4/5\]${tab}Time +$meter${tab}$loss${tab}Acc@1 +$share${tab}Acc@5 +$share\$" "$run_log" 2
    counted '^ \* Acc@1 [0-9]+[.][0-9]{3} Acc@5 [0-9]+[.][0-9]{3}$' "$run_log" 2
    differs rates "$(grep '^lr: ' "$run_log" | tr '\n' ' ')" "lr: [0.0015] lr: [0.0] "
    counted '^CPU times: user .*s, sys: .*s, total: .*s$' "$run_log" 1
    counted '^Wall time: .*s$' "$run_log" 1)" "$run_log"
result "and its tags" "$(
    differs tags "$(points "$work/imagenet" | awk '{ print $1 }' | sort -u | tr '\n' ' ')" \
        "Loss/train Loss/val acc1/train acc1/val acc5/train acc5/val lr "
    differs steps "$(steps "$work/imagenet" Loss/train)" "1 9 17 21 29 37"
    differs steps "$(steps "$work/imagenet" acc1/val)" "20 40"
    differs accuracy "$(points "$work/imagenet" | awk '$1 == "acc1/val" { printf " * Acc@1 %.3f\n", $3 }')" \
        "$(grep -o '^ \* Acc@1 [0-9.]*' "$run_log")")"

run 1 report report "$work/imagenet" report.result_file=on output.logbook=
result "a result file can be made of it, too" "$(
    differs status $status 0
    counted '^Epoch [12] completed in [0-9.]+ seconds$' "$work/imagenet/10_2_1_2.txt" 2
    counted '^Epoch \[' "$work/imagenet/10_2_1_2.txt" 0
    [ -s "$work/imagenet/accuracy_plot.png" ] || echo "no plot")" "$run_log"
rm -rf "$work/imagenet/10_2_1_2.txt" && mkdir -p "$work/imagenet/10_2_1_2.txt/full"
fails 1 "one that cannot be written is an error of the report" 5 '10_2_1_2[.]txt' report "$work/imagenet" report.result_file=on output.logbook=

# ---- lightning, which goes on within an epoch's lines

for epochs in 2 3; do
    run 2 lightning $tiny run.dir="$work/lightning" output.style=lightning output.log_every=10 train.epochs=$epochs
done
result "Lightning's lines are there" "$(
    differs status $status 0
    counted '^Trainable params: 10[.]0 K' "$run_log" 1
    counted '^Total estimated model params size \(MB\): 0' "$run_log" 1
    counted '^Epoch 2 .* 25/25 0:00:.* [0-9.]+it/s loss: .* v_num: 0 train/loss_step: .* val/acc_best: [0-9.]+ train/loss_epoch: .* train/acc_epoch: [0-9.]+$' "$run_log" 1)" "$run_log"
result "and its tags, over both parts" "$(
    differs tags "$(points "$work/lightning" | awk '{ print $1 }' | sort -u | tr '\n' ' ')" \
        "epoch hp_metric train/acc_epoch train/acc_step train/loss_epoch train/loss_step val/acc val/acc_best val/loss "
    differs steps "$(steps "$work/lightning" train/loss_step)" "9 19 29 39 49 59"
    differs steps "$(steps "$work/lightning" val/acc_best)" "19 39 59"
    differs epochs "$(points "$work/lightning" | awk '$1 == "epoch" { print $2 ":" $3 }' | sort -u | tr '\n' ' ')" \
        "19:0 29:1 39:1 49:2 59:2 9:0 ")"

result "hparams.yaml has the counts of parameters and the deck" "$(
    file=$work/lightning/hparams.yaml
    counted '^model/params/(total|trainable): 9986$' "$file" 2
    counted '^model/params/non_trainable: 0$' "$file" 1
    counted '^train:$' "$file" 1
    counted '^  epochs: 3$' "$file" 1
    counted "^  style: 'lightning'$" "$file" 1
    differs keys "$(grep -cE "^  [a-z0-9_]+: (true|false|-?[0-9.]+(e[-+][0-9]+)?|'.*')\$" "$file")" "$(grep -cvE '^$|^\[|\+=' "$work/lightning/deck.ini")")"

run 2 failed $tiny run.dir="$work/failed" output.style=lightning train.epochs=2 optim.lr=1e30
result "exec_time.log is there when a run ends and when it fails" "$(
    [ $status -ne 0 ] || echo "did not fail; "
    for name in lightning failed; do
        counted "^'train' execution time: [0-9]+[.][0-9]+ \(s\)\$" "$work/$name/exec_time.log" 1
    done)" "$run_log"

# ---- torchrun, which is started again

run 2 torchrun $tiny run.dir="$work/torchrun" output.style=torchrun train.epochs=2
first=$(grep -E '^(\[GPU0\]|Epoch|Final)' "$run_log" | sed "s|$work/||")
run 2 torchrun $tiny run.dir="$work/torchrun" output.style=torchrun train.epochs=3
result "the torchrun tutorial's lines are there" "$(
    differs status $status 0
    differs first "$first" "[GPU0] Epoch 0 | Batchsize: 10 | Steps: 20
Epoch 0 | Training snapshot saved at torchrun/checkpoints/step-00000020.h5
[GPU0] Epoch 1 | Batchsize: 10 | Steps: 20
Epoch 1 | Training snapshot saved at torchrun/checkpoints/step-00000040.h5
Final model saved at torchrun/weights.safetensors"
    differs later "$(grep -E '^(\[GPU0\]|Epoch|Loading|Resuming)' "$run_log" | sed "s|$work/||")" "Loading snapshot
Resuming training from snapshot at Epoch 2
[GPU0] Epoch 2 | Batchsize: 10 | Steps: 20
Epoch 2 | Training snapshot saved at torchrun/checkpoints/step-00000060.h5")" "$run_log"

echo "1..$number"
