#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# A checkpoint of any strategy on any number of ranks can be resumed with any other: the next losses equal those of an
# uninterrupted run, the predictions those of one rank.
# `make check` tests one combination for each mesh; TEST_LONG=1 tests all.
. "$TEST_SOURCE/test/support/program.sh"

# NAME RANKS STRATEGY SHARD
meshes="ddp-1 1 ddp 0
zero1-3 3 zero1 0
zero2-2 2 zero2 0
fsdp-4 4 fsdp 4
fsdp-3 3 fsdp 0
hsdp-4 4 hsdp 2
fsdp-2 2 fsdp 0"
count=7
steps="$small optim.ema=0.9 train.clip_norm=1 train.epochs=1 output.tensorboard=off"

# place NUMBER: set name, ranks and mesh to those of line NUMBER, modulo the number of lines.
place() {
    set -- $(echo "$meshes" | sed -n "$(($1 % count + 1))p")
    name=$1 ranks=$2 mesh="mesh.strategy=$3 mesh.shard=$4"
}

# probabilities FILE: print 1 - p for predictions in CSV, to compare small differences.
probabilities() {
    awk -F, 'NR > 1 { for (i = NF - 9; i <= NF; i++) print NR "-" i, 1 + $i }' "$1"
}

# others: distances between the meshes that read each other's checkpoints.
if [ -n "$TEST_LONG" ]; then others="1 2 3 4 5 6"; else others=4; fi
set -- $others

run 1 whole $steps train.steps=8 run.dir="$work/whole"
column "$work/whole/metrics.csv" train loss >"$work/whole.loss"
from=0
while [ $from -lt $count ]; do
    place $from
    source=$name
    run $ranks "$source" $steps $mesh train.steps=5 run.dir="$work/$source"
    column "$work/$source/metrics.csv" train loss >"$work/a"
    head -5 "$work/whole.loss" >"$work/b"
    result "$source trains as one rank" "$(differ "$work/a" "$work/b" 1e-5)" "$work/$source.log"
    checkpoint=$work/$source/checkpoints/last.h5
    # The number of ranks in the stored deck is ignored.
    run 1 predict predict "$checkpoint" predict.output="$work/one.csv"
    result "one rank predicts with $source's" "$(ended)" "$work/predict.log"
    probabilities "$work/one.csv" >"$work/b"
    for other in $others; do
        place $((from + other))
        cp -a "$work/$source" "$work/on"
        run $ranks on $steps $mesh train.steps=8 run.dir="$work/on"
        column "$work/on/metrics.csv" train loss >"$work/a"
        bad=$(differ "$work/a" "$work/whole.loss" 1e-5)
        grep -q 'resuming from .*step-00000005.h5' "$work/on.log" || bad="$bad; not resumed"
        result "$name goes on with $source's" "$bad" "$work/on.log"
        rm -r "$work/on"
        run $ranks predict predict "$checkpoint" $mesh predict.output="$work/other.csv"
        probabilities "$work/other.csv" >"$work/a"
        result "$name predicts with $source's" "$(differ "$work/a" "$work/b" 1e-6)" "$work/predict.log"
    done
    from=$((from + 1))
done

# Models with the parts of newer ViTs. `make check` tests each model on one or two meshes, and each mesh with one model.
turn=0
for model in deit3_small_patch16_224 vit_small_patch14_reg4_dinov2 vit_small_patch16_sincos vit_small_patch16_dinov3; do
    shape="$small model.name=$model model.image=32 model.layer_scale=0.1 train.steps=3 train.clip_norm=1"
    case $model in *dinov3) shape="$shape model.image_width=16 model.qk_norm=on" ;; esac
    run 1 "$model" $shape run.dir="$work/$model"
    column "$work/$model/metrics.csv" train loss >"$work/b"
    turn=$((turn + 1))
    for from in 0 1 2 3 4 5 6; do
        [ -n "$TEST_LONG" ] || [ $((from % 4)) = $((turn % 4)) ] || continue
        place $from
        run $ranks "$model-$name" $shape $mesh run.dir="$work/$model-$name"
        column "$work/$model-$name/metrics.csv" train loss >"$work/a"
        result "$name trains $model as one rank" "$(differ "$work/a" "$work/b" 1e-5)" "$work/$model-$name.log"
    done
done

# Without run.dir: the newest unfinished run of the same name and deck, with another strategy.
run 2 stopped $steps mesh.strategy=fsdp train.steps=8 checkpoint.every_seconds=1e-9 train.max_seconds=0.0001
run 3 goes-on $steps mesh.strategy=zero1 train.steps=8
column "$work"/runs/*/metrics.csv train loss >"$work/a"
bad=$(differ "$work/a" "$work/whole.loss" 1e-5)
grep -q 'resuming from' "$work/goes-on.log" || bad="$bad; not resumed"
result 'a stopped run is found and gone on with under another strategy' "$bad" "$work/goes-on.log"

# A missing shard: all ranks end, one reports the error.
head -c 100000 "$work/fsdp-4/checkpoints/last.h5" >"$work/cut.h5"
for command in "eval $work/cut.h5" \
    "train $small optim.ema=0.9 checkpoint.resume=$work/cut.h5 run.dir=$work/none"; do
    run 4 cut $command mesh.strategy=fsdp
    bad=$([ $status -eq 4 ] || echo "exit status $status")
    [ "$(grep -c '^vittrain: error: .*cut.h5' "$work/cut.log")" = 1 ] || bad="$bad; not one line of error"
    result "${command%% *} with a checkpoint that is cut, on 4 ranks" "$bad" "$work/cut.log"
done

# The decks of ViT-B/32 contain the same recipe.
bad=
for strategy in zero1 zero2 fsdp hsdp; do
    for deck in ddp $strategy; do
        sed -e 's/#.*//' -e "s/^strategy = $deck\$/strategy/" -e '/^ *$/d' \
            "$TEST_SOURCE/input/vit_base32_$deck.ini" >"$work/$deck.deck"
    done
    bad=$bad$(diff "$work/ddp.deck" "$work/$strategy.deck")
    grep -q '^strategy$' "$work/$strategy.deck" || bad="$bad; $strategy is another"
done
result 'the decks of ViT-B/32 differ in the strategy only' "$bad"
