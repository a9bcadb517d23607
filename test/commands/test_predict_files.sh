#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# vittrain predict on image files: the same as on the split that they are, from a checkpoint and from weights alone, with
# the training data removed; files and folders on 1 to 3 ranks; hostile names and files; PyTorch files.
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

run 1 train model.name=vit_cifar model.dim=32 model.depth=1 model.heads=2 model.patch=8 model.image=24 \
    data.format=imagefolder data.root="$tree" train.global_batch=5 train.epochs=1 run.threads=1 train.exact=layout \
    augment.random_resized_crop=on augment.mean=0.4,0.5,0.6 eval.resize=30 eval.resize_to=shorter \
    eval.crop=center output.tensorboard=off debug.batches=2 run.dir="$work/run"
result 'a run' "$(ended)" "$work/train.log"
last=$work/run/checkpoints/last.h5 weights=$work/run/weights.safetensors
images=$tree/val

# ---- the same as on the split, whose images are in the same order
predict split 1 "$last" predict.split=val debug.batches=0 predict.output=-
predict files 1 "$last" "$images" predict.output=-
result 'a folder' "$(ended; messages)" "$run_log"
# The cell of the class is quoted and has commas: compare what follows it.
sed 's/.*[a-z"],0/0/; 1d' "$work/split.out" >"$work/a"
sed 's/.*[a-z"],0/0/; 1d' "$work/files.out" >"$work/b"
bad=$(cmp "$work/a" "$work/b" 2>&1)
[ "$(wc -l <"$work/b")" = 12 ] || bad="$bad; not 12 lines"
result 'it has the probabilities of the split' "$bad" "$work/files.out"
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
    predict folder 1 "$folder" "$images" predict.output=-
    bad=$(cmp "$work/files.out" "$work/folder.out" 2>&1)
    grep -qx 'using .*/run/.*best.h5' "$run_log" || bad="$bad; no best.h5"
    result "predict of ${folder##*/run}/ takes the best checkpoint" "$bad" "$run_log"
done
run 1 init model.name=vit_cifar model.dim=32 model.depth=1 model.heads=2 model.patch=8 model.image=24 run.threads=1 train.steps=1 \
    debug.fraction=0.1 model.init="$work/run" run.dir="$work/init" # ten classes instead of three
result 'a new run starts from the best weights of a run folder' \
    "$([ $status -eq 0 ] && grep -q "^weights: from $work/run/best.safetensors$" "$work/init.log" || echo "status $status")" "$work/init.log"
mkdir "$work/bare"
errors predict 3<<END
2|predict.split|$last $images predict.split=val
4|bare|$work/bare $images
END
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
errors 3<<END
2|${one##*/}|predict $one
2|vit_unknown_patch14_224|predict $work/large.safetensors $one
2|model.heads=2|predict $weights $one model.heads=4
2|model.heads is 4|data.format=synthetic model.init=$weights model.dim=32 model.heads=4
2|no data|predict $weights
4|augment.std|predict $work/faulty.safetensors $one
4|plain.safetensors|predict $work/plain.safetensors $one
4|head.weight|predict $weights $one model.classes=2
END
predict replaced 1 "$work/faulty.safetensors" "$one" augment.std=0.5
result 'an option replaces an invalid value in the metadata' "$(ended; messages)" "$run_log"
shape="model.name=vit_cifar model.dim=32 model.depth=1 model.heads=2 model.patch=8 model.image=24 model.classes=3"
predict described 1 "$work/plain.safetensors" "$one" $shape
result 'options describe weights without metadata' \
    "$(grep -cE '^ +[0-9.]+ %  class [012]$' "$work/described.out" | grep -v 3)" "$run_log"
cow=$(printf 'c\033w')
mv "$images/cat" "$images/$cow"
run 1 renamed eval "$weights" data.format=imagefolder data.root="$tree" run.threads=1
result 'data with other classes' \
    "$(grep -q 'class 2 is "c w" in the data, but "cat" in the weights' "$work/renamed.log" || echo 'no warning')" "$work/renamed.log"
result 'names in the tables of eval have no control characters' \
    "$(grep -q '^c w  ' "$work/renamed.log" || echo 'no row'; grep -c "$cow" "$work/renamed.log" | grep -v 0)" "$work/renamed.log"
mv "$images/$cow" "$images/cat"

# ---- files, folders; ranks
predict table 1 "$weights" "$one"
head -n 1 "$work/table.out" | grep -qxF "$one" && [ "$(wc -l <"$work/table.out")" = 4 ] &&
    [ "$(grep -cE '^ +[0-9.]+ %  (bird|cat|a,"b")$' "$work/table.out")" = 3 ] && bad= || bad='another table'
result 'a table with the classes by name' "$bad" "$work/table.out"
ln -s "$images" "$work/link"
mkdir -p "$work/more/deep/er"
cp "$one" "$work/more/deep/er/z.JPG"
cp "$one" "$work/more/no ending"
echo 'not an image' >"$work/more/readme.md"
for ranks in 1 3; do
    predict mixed$ranks $ranks "$last" "$one" "$work/more" "$work/link" "$one" "$work/more/no ending" \
        predict.output=- train.batch=3
done
result 'the same bytes on 1 and 3 ranks' "$(cmp "$work/mixed1.out" "$work/mixed3.out" 2>&1)" "$run_log"
printf '%s\n' file "$one" "$work/more/deep/er/z.JPG" >"$work/a"
for ending in bird cat; do ls "$images/$ending" | sed "s,^,$work/link/$ending/,"; done >>"$work/a"
printf '%s\n' "$one" "$work/more/no ending" >>"$work/a"
sed 's/,.*//; /^"/d' "$work/mixed1.out" | diff "$work/a" - >"$work/bad"
result 'in the order of the operands' "$(cat "$work/bad")"
for ranks in 1 3; do predict few$ranks $ranks "$weights" "$one" "$work/more/no ending"; done
result 'fewer files than ranks' "$(diff "$work/few1.out" "$work/few3.out"; wc -l <"$work/few1.out" | grep -v 8)"
cd "$work/more" || exit 1
predict relative 1 "$weights" "$one" deep/er/z.JPG "no ending" predict.output="$work/p.json"
cd "$work" || exit 1
python3 - "$work/p.json" "$one" <<'END' >"$work/bad" 2>&1
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
assert [line["file"] for line in lines] == [sys.argv[2], "deep/er/z.JPG", "no ending"], lines
assert all(line["class"] in ("bird", "cat", 'a,"b"') and len(line["probabilities"]) == 3 for line in lines)
END
result 'files of the working directory, as JSON' "$(cat "$work/bad" "$run_log")"

# ---- hostile names and files
odd=$work/odd
mkdir "$odd"
cp "$one" "$odd/$(printf 'new\nline, "q" \033[2J.jpg')"
predict odd 1 "$weights" "$odd"
result 'control characters in a name are spaces' \
    "$(grep -qxF "$odd/new line, \"q\"  [2J.jpg" "$work/odd.out" || echo no)" "$work/odd.out"
for format in csv json; do predict $format 1 "$weights" "$odd" predict.output="$work/odd.$format"; done
python3 - "$work/odd.csv" "$odd" "$work/odd.json" <<'END' >"$work/bad" 2>&1
import csv, json, sys
rows = list(csv.reader(open(sys.argv[1], newline="")))
assert rows[0] == ["file", "predicted", "class", 'p_a,"b"', "p_bird", "p_cat"] and len(rows) == 2, rows
assert rows[1][0] == sys.argv[2] + '/new\nline, "q" \033[2J.jpg', rows
assert json.load(open(sys.argv[3]))["file"] == rows[1][0]
END
result 'and quoted in CSV and JSON' "$(cat "$work/bad")"
head -c 300 "$one" >"$work/cut.jpg"
mkfifo "$work/pipe.jpg"
mkdir -p "$work/empty/below" "$work/loop"
ln -s . "$work/loop/loop"
printf 'PK\003\004 0123456789' >"$work/w.pth"
cd "$work" || exit 1
errors 3<<END
2|$one|predict $weights $one predict.output=$one
3|not-there.jpg|predict $weights $one not-there.jpg
3|empty: |predict $weights empty
3|pipe.jpg|predict $weights pipe.jpg
3|zero|predict $weights /dev/zero
3|loop/loop|predict $weights loop
3|readme.md|predict $weights more/readme.md
3|cut.jpg|predict $weights cut.jpg predict.output=none.csv
3|none of the files|predict $weights cut.jpg no.jpg data.skip_broken=on predict.output=none.csv
4|w.pth|predict w.pth $one
4|w.pth|$small model.init=w.pth run.dir=init
END
result 'no output is left' "$(ls "$work" | grep none)"
for ranks in 1 3; do
    predict skip$ranks $ranks "$weights" "$work/cut.jpg" "$one" not-there.jpg "$work/more/readme.md" "$one" \
        data.skip_broken=on
done
has "$work/skip3.log" '3 of 5 files are skipped, the first: .*cut.jpg: is truncated' >"$work/bad"
[ $status -eq 0 ] && [ "$(wc -l <"$work/skip1.out")" = 8 ] || echo "status $status" >>"$work/bad"
grep 'warning: ' "$work/skip1.log" >"$work/a"
grep 'warning: ' "$work/skip3.log" | diff "$work/a" - >>"$work/bad"
result 'data.skip_broken=on reports and skips them' "$(cat "$work/bad"; diff "$work/skip1.out" "$work/skip3.out")" "$run_log"
cp "$one" "$work/loop/one.jpg" && ln -s self.jpg "$work/loop/self.jpg"
predict loop 1 "$weights" "$work/loop" data.skip_broken=on
bad=$(grep -q 'skipped: .*loop/loop: the folder is inside itself' "$run_log" && grep -q 'skipped, the first: .*self.jpg: Too many levels' "$run_log" ||
    echo 'no warning')
[ "$(wc -l <"$work/loop.out")" = 4 ] && [ $status -eq 0 ] || bad="$bad; status $status"
result 'also circular links' "$bad" "$run_log"
predict many 1 "$weights" $(yes "$one" | head -n 3000) predict.output=-
result '3,000 files' "$([ $status -eq 0 ] || echo "status $status")$(sort -u "$work/many.out" | wc -l | grep -v 2)"
