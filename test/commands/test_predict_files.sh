#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# vittrain predict on image files: the same as on the split that they are, from a checkpoint and from weights alone, with
# the training data removed; files, folders and lists on 1 to 3 ranks; hostile names and files; PyTorch files.
. "$TEST_SOURCE/test/support/program.sh"
needs python3

tree=$work/tree
for class in bird cat dog; do mkdir -p "$tree/train/$class" "$tree/val/$class"; done
"$TEST_BUILD/test/data/test_image_folder" --make "$tree" 36 || exit 1
for split in train val; do mv "$tree/$split/dog" "$tree/$split/a,\"b\""; done

# predict NAME RANKS WORD...: predictions to $work/NAME.out, messages to $work/NAME.log.
predict() {
    name=$1 ranks=$2
    shift 2
    run_log=$work/$name.log
    # shellcheck disable=SC2086
    timeout $time_limit $([ "$ranks" = 1 ] || echo $MPIRUN -np "$ranks") "$vittrain" predict "$@" \
        >"$work/$name.out" 2>"$run_log" </dev/null
    status=$?
}

# messages: print the messages of the newest prediction without the warning of alpha, which one of the images has.
messages() { grep -v 'files have a band of alpha' "$run_log"; }

# predicts TITLE: the newest prediction ended well and without a message.
predicts() {
    bad=$(ended)
    result "$1" "$bad$(messages)" "$run_log"
}

# refuses TITLE STATUS PATTERN WORD...: predict fails in this way.
refuses() {
    title=$1 expected=$2 pattern=$3
    shift 3
    predict refused 1 "$@"
    result "$title" "$(failed_otherwise "$expected" "$pattern" | tr '\n' ' ')" "$run_log"
}

run 1 train model.name=vit_cifar model.dim=32 model.depth=1 model.heads=2 model.patch=8 model.image=24 \
    data.format=imagefolder data.root="$tree" train.global_batch=5 train.epochs=1 run.threads=1 \
    augment.random_resized_crop=on augment.mean=0.4,0.5,0.6 eval.resize=30 eval.resize_to=shorter \
    eval.crop=center output.tensorboard=off debug.batches=2 run.dir="$work/run"
result 'a run' "$(ended)" "$work/train.log"
last=$work/run/checkpoints/last.h5 weights=$work/run/weights.safetensors
images=$tree/val

# ---- the same as on the split, whose images are in the same order
predict split 1 "$last" predict.split=val debug.batches=0 predict.output=-
predict files 1 "$last" "$images" predict.output=-
predicts 'a folder'
# The cell of the class is quoted and has commas: compare what follows it.
sed 's/.*[a-z"],0/0/; 1d' "$work/split.out" >"$work/a"
sed 's/.*[a-z"],0/0/; 1d' "$work/files.out" >"$work/b"
bad=$(cmp "$work/a" "$work/b" 2>&1)
[ "$(wc -l <"$work/b")" = 12 ] || bad="$bad; not 12 lines"
result 'it has the probabilities of the split' "$bad" "$work/files.out"
refuses 'files and a split' 2 'predict.split does not apply to image files' "$last" "$images" predict.split=val
rm -r "$tree/train"
predict weights 1 "$weights" "$images/" predict.output=-
result 'weights without a deck and without training data give the same' \
    "$(cmp "$work/files.out" "$work/weights.out" 2>&1; messages)"
predict override 1 "$weights" "$images" predict.output=- augment.mean=0.1
result 'an option overrides the metadata' \
    "$([ $status -eq 0 ] || echo "status $status")$(cmp -s "$work/files.out" "$work/override.out" && echo same)"
run 1 eval eval "$weights" data.format=imagefolder data.root="$tree" run.threads=1
run 1 evaluated eval "$last" debug.batches=0
bad=$(grep 'test: loss' "$work/eval.log" >"$work/a" || echo 'no loss'; diff "$work/a" "$work/evaluated.log" | grep '^<')
result 'eval of weights takes their model and preprocessing' "$bad" "$work/eval.log"

# ---- run folders
for folder in "$work/run" "$work/run/checkpoints/"; do
    predict folder 2 "$folder" "$images" predict.output=-
    bad=$(cmp "$work/files.out" "$work/folder.out" 2>&1)
    grep -qx 'using .*/run/.*best.h5' "$run_log" || bad="$bad; no best.h5"
    result "predict of ${folder##*/run}/ takes the best checkpoint" "$bad" "$run_log"
done
run 1 init model.name=vit_cifar model.dim=32 model.depth=1 model.heads=2 model.patch=8 model.image=24 run.threads=1 train.steps=1 \
    debug.fraction=0.1 model.init="$work/run" run.dir="$work/init" # ten classes instead of three
result 'a new run starts from the best weights of a run folder' \
    "$([ $status -eq 0 ] && grep -q "^weights: from $work/run/best.safetensors$" "$work/init.log" || echo "status $status")" "$work/init.log"
mkdir "$work/bare"
refuses 'a folder without weights' 4 'bare holds neither checkpoints nor weights: name a run folder' "$work/bare" "$images"
cp "$weights" "$work/bare"
run 1 bare eval "$work/bare" data.format=imagefolder data.root="$tree" run.threads=1
result 'eval of a run without checkpoints takes its weights' \
    "$(grep -q "^using $work/bare/weights.safetensors$" "$run_log" || echo no; grep 'test: loss' "$run_log" | diff - "$work/a")" "$run_log"

# Weights as other programs write them: without metadata, and with that of a model that this program does not have.
python3 - "$weights" "$work/plain.safetensors" "$work/large.safetensors" "$work/faulty.safetensors" <<'END'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + size])
for name, metadata in zip(sys.argv[2:], ({"format": "pt"}, {"format": "pt", "architecture": "vit_unknown_patch14_224"},
                                   {**header["__metadata__"], "std": "[0,1,1]"})):
    header["__metadata__"] = metadata
    text = json.dumps(header).encode()
    open(name, "wb").write(struct.pack("<Q", len(text)) + text + data[8 + size:])
END
one=$images/cat/$(ls "$images/cat" | head -n 1)
refuses 'an image instead of weights' 2 'is an image: name the run folder or the weights first' "$one"
refuses 'an unknown architecture is named' 2 'weights of vit_unknown_patch14_224, which is not a model' "$work/large.safetensors" "$one"
refuses 'an invalid std in the metadata' 4 'std=\[0,1,1\] must be one number above 0 per channel; correct the file or set augment.std' \
    "$work/faulty.safetensors" "$one"
predict replaced 1 "$work/faulty.safetensors" "$one" augment.std=0.5
predicts 'unless an option replaces it'
refuses 'heads that no tensor shows' 2 'model.heads is 4, but .* has weights for 2 heads: set model.heads=2' "$weights" "$one" model.heads=4
fails 1 'also of the weights of model.init' 2 'model.heads is 4, but' data.format=synthetic model.init="$weights" model.dim=32 model.heads=4
refuses 'weights without metadata need options' 4 'plain.safetensors does not fit' "$work/plain.safetensors" "$one"
refuses 'a head for another number of classes' 4 'head.weight is \[3, 32\] instead of \[2, 32\]' "$weights" "$one" model.classes=2
refuses 'neither data nor files for weights of other classes' 2 'no data are given, .* sample of CIFAR-10' "$weights"
shape="model.dim=32 model.depth=1 model.heads=2 model.patch=8 model.image=24"
run 1 convert convert "$work/plain.safetensors" "$work/plain.h5" $shape
run 1 back convert "$work/plain.h5" "$work/described.safetensors"
predict described 1 "$work/described.safetensors" "$one"
result 'or convert, which describes them' \
    "$(grep -cE '^ +[0-9.]+ %  class [012]$' "$work/described.out" | grep -v 3)" "$run_log"
cow=$(printf 'c\033w')
mv "$images/cat" "$images/$cow"
run 1 renamed eval "$weights" data.format=imagefolder data.root="$tree" run.threads=1
result 'data with other classes' \
    "$(grep -q 'class 2 is "c w" in the data, but "cat" in the weights' "$work/renamed.log" || echo 'no warning')" "$work/renamed.log"
result 'names in the tables of eval have no control characters' \
    "$(grep -q '^c w  ' "$work/renamed.log" || echo 'no row'; grep -c "$cow" "$work/renamed.log" | grep -v 0)" "$work/renamed.log"
mv "$images/$cow" "$images/cat"

# ---- files, folders, lists; ranks
predict table 1 "$weights" "$one"
head -n 1 "$work/table.out" | grep -qxF "$one" && [ "$(wc -l <"$work/table.out")" = 4 ] &&
    [ "$(grep -cE '^ +[0-9.]+ %  (bird|cat|a,"b")$' "$work/table.out")" = 3 ] && bad= || bad='another table'
result 'a table with the classes by name' "$bad" "$work/table.out"
predict top 1 "$weights" "$one" predict.top=1
result 'predict.top=1' "$(head -n 2 "$work/table.out" | diff - "$work/top.out")"
ln -s "$images" "$work/link"
mkdir -p "$work/more/deep/er"
cp "$one" "$work/more/deep/er/z.JPG"
cp "$one" "$work/more/no ending"
echo 'not an image' >"$work/more/readme.md"
printf '%s\r\nno ending\n\ndeep/er/z.JPG\nno ending' "$one" >"$work/more/list.txt"
for ranks in 1 2 3; do
    predict mixed$ranks $ranks "$last" "$one" "$work/more" "$work/link" "$one" "$work/more/list.txt" \
        predict.output=- train.batch=3
done
bad=$(cmp "$work/mixed1.out" "$work/mixed2.out" 2>&1; cmp "$work/mixed1.out" "$work/mixed3.out" 2>&1)
result 'the same bytes on 1, 2 and 3 ranks' "$bad" "$run_log"
printf '%s\n' file "$one" "$work/more/deep/er/z.JPG" >"$work/a"
for ending in bird cat; do ls "$images/$ending" | sed "s,^,$work/link/$ending/,"; done >>"$work/a"
printf '%s\n' "$one" "$one" "$work/more/no ending" "$work/more/deep/er/z.JPG" "$work/more/no ending" >>"$work/a"
sed 's/,.*//; /^"/d' "$work/mixed1.out" | diff "$work/a" - >"$work/bad"
result 'in the order of the operands' "$(cat "$work/bad")"
for ranks in 1 3; do predict few$ranks $ranks "$weights" "$one" "$work/more/no ending"; done
result 'fewer files than ranks' "$(diff "$work/few1.out" "$work/few3.out"; wc -l <"$work/few1.out" | grep -v 8)"
cd "$work/more" || exit 1
predict relative 1 "$weights" list.txt "no ending" predict.output="$work/p.json"
cd "$work" || exit 1
python3 - "$work/p.json" "$one" <<'END' >"$work/bad" 2>&1
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
assert [line["file"] for line in lines] == [sys.argv[2], "no ending", "deep/er/z.JPG", "no ending", "no ending"], lines
assert all(line["class"] in ("bird", "cat", 'a,"b"') and len(line["probabilities"]) == 3 for line in lines)
END
result 'a list in the working directory, as JSON' "$(cat "$work/bad" "$run_log")"

# ---- hostile names and files
odd=$work/odd
mkdir "$odd"
cp "$one" "$odd/$(printf 'new\nline, "q" \033[2J.jpg')"
predict odd 1 "$weights" "$odd"
result 'control characters in a name are escaped' \
    "$(grep -qxF "$odd/new\\nline, \"q\" \\x1b[2J.jpg" "$work/odd.out" || echo no)" "$work/odd.out"
predict csv 1 "$weights" "$odd" predict.output="$work/odd.csv"
python3 - "$work/odd.csv" "$odd" <<'END' >"$work/bad" 2>&1
import csv, sys
rows = list(csv.reader(open(sys.argv[1], newline="")))
assert rows[0][:4] == ["file", "predicted", "class", "p0"] and len(rows) == 2, rows
assert rows[1][0] == sys.argv[2] + '/new\nline, "q" \033[2J.jpg', rows
END
result 'and quoted in CSV' "$(cat "$work/bad")"
head -c 300 "$one" >"$work/cut.jpg"
mkfifo "$work/pipe.jpg" "$work/pipe.txt"
: >"$work/empty.txt"
mkdir -p "$work/empty/below" "$work/loop"
ln -s . "$work/loop/loop"
refuses 'a file that is not there' 3 'not-there.jpg: No such file' "$weights" "$one" not-there.jpg
refuses 'a list with such a file' 3 'odd/x.jpg: No such file' "$weights" "$(echo x.jpg >"$odd/l.txt" && echo "$odd/l.txt")"
refuses 'an empty folder' 3 'empty: no images' "$weights" "$work/empty"
refuses 'an empty list' 3 'empty.txt: the list is empty' "$weights" "$work/empty.txt"
refuses 'a list that is not there' 3 'no.txt: cannot read the list: No such file' "$weights" no.txt
refuses 'an image named as a list' 3 'not a list' "$weights" "$(cp "$one" "$work/image.txt" && echo "$work/image.txt")"
refuses 'a pipe' 3 'pipe.jpg: is not a regular file' "$weights" "$work/pipe.jpg"
refuses 'a pipe for a list' 3 'pipe.txt: cannot read the list: not a regular' "$weights" "$work/pipe.txt"
refuses 'a device' 3 'zero: is not a regular file' "$weights" /dev/zero
refuses 'a circular link' 3 'loop/loop: the folder is inside itself: a circular link' "$weights" "$work/loop"
refuses 'a text' 3 'readme.md: is not an image' "$weights" "$work/more/readme.md"
refuses 'a truncated image' 3 'cut.jpg: is truncated' "$weights" "$work/cut.jpg" predict.output="$work/none.csv"
for ranks in 1 3; do
    predict skip$ranks $ranks "$weights" "$work/cut.jpg" "$one" not-there.jpg "$work/more/readme.md" "$one" \
        data.skip_broken=on predict.top=1
done
printf '%s\n' 'cut.jpg: is truncated' 'not-there.jpg: No such file' 'readme.md: is not an image' '3 of 5 files were skipped' |
    while read -r line; do grep -qF "$line" "$work/skip3.log" || echo "no $line"; done >"$work/bad"
[ $status -eq 0 ] && [ "$(wc -l <"$work/skip1.out")" = 4 ] || echo "status $status" >>"$work/bad"
grep 'warning: ' "$work/skip1.log" >"$work/a"
grep 'warning: ' "$work/skip3.log" | diff "$work/a" - >>"$work/bad"
result 'data.skip_broken=on reports and skips them' "$(cat "$work/bad"; diff "$work/skip1.out" "$work/skip3.out")" "$run_log"
cp "$one" "$work/loop/one.jpg" && ln -s self.jpg "$work/loop/self.jpg"
predict loop 1 "$weights" "$work/loop" data.skip_broken=on predict.top=1
bad=$(grep -q 'skipped: .*loop/loop: the folder is inside itself' "$run_log" && grep -q 'skipped: .*self.jpg: Too many levels' "$run_log" ||
    echo 'no warning')
[ "$(wc -l <"$work/loop.out")" = 2 ] && [ $status -eq 0 ] || bad="$bad; status $status"
result 'also circular links' "$bad" "$run_log"
refuses 'only broken files' 3 'none of the 2 files' "$weights" "$work/cut.jpg" no.jpg data.skip_broken=on \
    predict.output="$work/none.csv"
result 'no output is left' "$(ls "$work" | grep none)"
refuses 'an output that is an input' 2 'is also an input: choose another name' "$weights" "$one" predict.output="$one"
i=0
while [ $i -lt 3000 ]; do
    echo "$one"
    i=$((i + 1))
done >"$work/many.txt"
predict many 1 "$weights" "$work/many.txt" predict.output=-
result '3,000 files' "$([ $status -eq 0 ] || echo "status $status")$(sort -u "$work/many.out" | wc -l | grep -v 2)"
printf 'PK\003\004 0123456789' >"$work/w.pth"
refuses 'a PyTorch file' 4 'w.pth is a PyTorch file.*save_file' "$work/w.pth" "$one"
fails 1 'also as initial weights' 4 'w.pth is a PyTorch file' $small model.init="$work/w.pth" run.dir="$work/init"

# ---- eval.flip: the mean of the logits of an image and its mirror image
mkdir "$work/pictures" "$work/mirrored"
python3 - "$work" <<'END'
import random, struct, sys, zlib

def png(path, rows):
    raw = b"".join(b"\0" + bytes(value for pixel in row for value in pixel) for row in rows)
    chunks = (b"IHDR", struct.pack(">IIBBBBB", 24, 24, 8, 2, 0, 0, 0)), (b"IDAT", zlib.compress(raw)), (b"IEND", b"")
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n")
        for kind, data in chunks:
            file.write(struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)))

random.seed(1)
for i in range(7):
    rows = [[[random.randrange(256) for _ in range(3)] for _ in range(24)] for _ in range(24)]
    png(f"{sys.argv[1]}/pictures/{i}.png", rows)
    png(f"{sys.argv[1]}/mirrored/{i}.png", [row[::-1] for row in rows])
END
plain='eval.resize=24 train.precision=fp32'
for name in pictures mirrored; do predict $name 1 "$last" "$work/$name" $plain predict.output=-; done
predict flipped 2 "$last" "$work/pictures" $plain eval.flip=on predict.output=-
result 'eval.flip: the mean of the logits of both images' "$(python3 - "$work" <<'END'
import csv, sys

def probabilities(name):
    return [[float(value) for value in row[-3:]] for row in list(csv.reader(open(f"{sys.argv[1]}/{name}.out")))[1:]]

both = list(zip(probabilities("pictures"), probabilities("mirrored"), probabilities("flipped")))
if len(both) != 7 or all(abs(p[0] - q[0]) < 1e-4 for p, q, _ in both):
    print("no images that differ from their mirror images")
for p, q, mean in both:
    roots = [(a * b) ** 0.5 for a, b in zip(p, q)]
    if max(abs(root / sum(roots) - value) for root, value in zip(roots, mean)) > 2e-6:
        print("expected", roots, "got", mean)
END
)" "$run_log"

# Last: the limit stays. With sanitizers, which need more address space, the list is read and refused.
truncate -s 1G "$work/huge.txt"
grep -q '^SANITIZER_CFLAGS = .' "$TEST_BUILD/Makefile" || ulimit -v 600000
refuses 'a list that does not fit into memory' 3 'huge.txt: (cannot read the list: Cannot allocate memory|not a list)' \
    "$weights" "$work/huge.txt"
