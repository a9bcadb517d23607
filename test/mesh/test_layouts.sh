#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# The layout does not change the result: losses with dropout, augmentation, clipping, accumulation and a short last batch are the
# same on any number of ranks and with every strategy, and all ranks hold identical weights after every step. A run resumes on
# another mesh from any checkpoint, with the losses of an uninterrupted run and the predictions of one rank.
# `make check` resumes each mesh on one other mesh; TEST_LONG=1 on all.
. "$TEST_SOURCE/test/support/program.sh"

# NAME RANKS WORD...
meshes="one 1
zero1-3 3 mesh.strategy=zero1 train.accumulate=3
zero2-4 4 mesh.strategy=zero2 mesh.shard=2
fsdp-3 3 mesh.strategy=fsdp
hsdp-4 4 mesh.strategy=hsdp mesh.shard=2 train.accumulate=3
ddp-4 4 train.global_batch=0 train.batch=7
fsdp-1 1 mesh.strategy=fsdp"
count=7
if [ -n "$TEST_LONG" ]; then others="1 2 3 4 5 6"; else others=4; fi

# 600 samples: 21 batches of 28 and one of 12 per epoch, with a checkpoint after step 18.
steps="$small train.global_batch=28 train.steps=25 train.clip_norm=1 train.label_smoothing=0.1 schedule.name=cosine \
schedule.warmup=5 optim.ema=0.9 debug.check_weights=1 checkpoint.every=0.82 output.tensorboard=off"

# place LINE: set name, ranks and mesh to those of this line, modulo the number of lines.
place() {
    set -- $(echo "$meshes" | sed -n "$(($1 % count + 1))p")
    name=$1 ranks=$2
    shift 2
    mesh=$*
}

# probabilities NAME: print 1 + p for predictions in CSV, to compare small differences.
probabilities() { awk -F, 'NR > 1 { for (i = NF - 9; i <= NF; i++) print NR "-" i, 1 + $i }' "$work/$1.csv"; }

for line in 0 1 2 3 4 5 6; do
    place $line
    train $ranks $name $mesh
    compare "$name trains as one rank" $name one 1e-5
done
result 'each step has a row' "$(wc -l <one.loss | grep -vx 25)" one.log
# One row per step, with the samples it counted. Evaluations in between do not count.
column one/metrics.csv train images_per_second >speed
bad=$(column one/metrics.csv train step_seconds | paste -d' ' speed - | awk '
    { n = $2 * $4; m = $1 % 22 == 0 ? 12 : 28; if (n < m - 0.01 || n > m + 0.01) print "step " $1 ": " n " samples, not " m }')
result 'each row counts the samples of its step' "$bad"
result 'the loss falls' "$(awk 'NR <= 5 { first += $2 } NR > 20 { last += $2 } END { if (!(last < first - 0.25)) print first " to " last }' one.loss)"
train 1 seed run.seed=8 train.steps=1
result 'another seed gives other losses' "$(head -n 1 one.loss | grep -xFf - seed.loss)" seed.log

run 1 predict predict one/checkpoints/last.h5 predict.output="$work/one.csv"
probabilities one >expected
for line in 0 1 2 3 4 5 6; do
    place $line
    from=$name
    for other in $others; do
        place $((line + other))
        interrupted $from on 18
        train $ranks on $mesh
        [ $status -ne 0 ] || status="0$(has on.log 'resuming from .*step-00000018.h5')"
        [ "$status" = 0 ] && bad=$(differ one.loss on.loss 1e-5)$(differ one.val on.val 1e-5) || bad="exit status $status"
        result "$name resumes the run of $from" "$bad" on.log
        rm -r on
        run $ranks predict predict $from/checkpoints/last.h5 $mesh predict.output="$work/other.csv"
        probabilities other >found
        result "$name predicts with the weights of $from" "$(ended; differ expected found 1e-4)" predict.log
    done
done

# Models with the parts of newer ViTs.
line=0
for model in deit3_small_patch16_224 vit_small_patch14_reg4_dinov2 vit_small_patch16_sincos vit_small_patch16_dinov3; do
    line=$((line + 1))
    place $line
    shape="model.name=$model model.image=32 model.layer_scale=0.1 train.steps=3"
    case $model in *dinov3) shape="$shape model.image_width=16 model.qk_norm=on" ;; esac
    train 1 reference $shape
    train $ranks shaped $shape $mesh
    compare "$name trains $model as one rank" shaped reference 1e-5
    rm -r reference shaped
done

# Without run.dir: the newest unfinished run of the same name and deck, with another strategy.
run 3 stopped $steps mesh.strategy=fsdp train.max_seconds=0.0001
run 4 continued $steps mesh.strategy=zero1
column runs/*/metrics.csv train loss >found
result 'a stopped run is found and continues with another strategy' \
    "$(ended; differ one.loss found 1e-5; has continued.log 'resuming from')" continued.log

head -c 100000 fsdp-3/checkpoints/last.h5 >cut.h5
fails 4 'a truncated checkpoint on 4 ranks' 4 cut.h5 $steps mesh.strategy=fsdp checkpoint.resume="$work/cut.h5" run.dir="$work/none"

# The decks of ViT-B/32 contain the same recipe.
bad=
for strategy in zero1 zero2 fsdp hsdp; do
    for deck in ddp $strategy; do
        sed -e 's/#.*//' -e "s/^strategy = $deck\$/strategy/" -e '/^ *$/d' "$TEST_SOURCE/input/vit_base32_$deck.ini" >$deck.deck
    done
    bad=$bad$(diff ddp.deck $strategy.deck)
    grep -q '^strategy$' $strategy.deck || bad="$bad; $strategy is another"
done
result 'the decks of ViT-B/32 differ in the strategy only' "$bad"
