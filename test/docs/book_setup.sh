# SPDX-License-Identifier: BSD-3-Clause
# Read by book_page.sh. before_NAME creates what the reader has when a page's command is run, unless a command before has
# done it: `<!-- before: NAME -->`. $with_NAME are arguments that make the command small: `<!-- with: NAME -->`.

# images FOLDER COUNT: write COUNT images to train/ and some to val/, in three classes.
images() {
    for class in bird cat dog; do mkdir -p "$1/train/$class" "$1/val/$class"; done
    "$TEST_BUILD/test/data/test_image_folder" --make "$1" "$2"
}

# weights NAME WORD...: write data/NAME.safetensors, as if downloaded, with a run of one step.
weights() {
    name=$1
    shift
    [ -e "data/$name.safetensors" ] || {
        ./vittrain "$@" data.val=none train.steps=1 run.dir="weights/$name" output.logbook=weights
        cp "weights/$name/weights.safetensors" "data/$name.safetensors"
    }
}

before_photos() {
    [ -e photos ] || {
        images made 60
        mv made/train photos
        cp photos/cat/001.jpg new.jpg
    }
}
before_run_of_photos() {
    before_photos
    [ -e runs/photos ] || ./vittrain data.format=imagefolder data.root=photos data.val=0.1 model.name=resnet18 model.image=64 \
        train.batch=16 train.steps=1 run.dir=runs/photos
}
before_animals() { [ -e animals ] || images animals 24; }
before_imagenet() { [ -e imagenet ] || images imagenet 12; }
before_pictures() {
    before_photos
    images others 24
    mv others/val pictures
    ls pictures/*/* >names.txt
}
before_deck() { cp input/quickstart.ini deck.ini; }
before_trained() { ./vittrain input/vit_cifar.ini run.dir=runs/cifar train.epochs=1 model.depth=1; }
before_newest() { (cd runs && ln -sfn "$(ls -d vittrain-2* | tail -n 1)" vittrain-DATE); }

before_vit_base() { weights vit_base_patch32_224 input/vit_base32_ddp.ini model.init=none $with_vit_base; }
before_resnet18() { weights resnet18 model.name=resnet18 model.image=64 model.width=8 train.batch=4; }
before_vit_tiny() {
    before_photos
    weights vit_tiny model.name=vit_tiny_patch16_224 data.format=synthetic data.classes=1000 data.samples=4 train.batch=1
}
before_torchvision() {
    ./vittrain model.name=resnet18 data.format=synthetic model.image=64 train.steps=1 train.batch=2 data.val=none run.dir=runs/resnet18
}
before_vit_cifar() { ./vittrain model.name=vit_cifar train.steps=1 train.batch=2 data.val=none run.dir=runs/vit-cifar; }
before_timm() {
    ./vittrain model.name=vit_tiny_patch16_224 data.format=synthetic data.image=32 data.classes=10 model.classes=10 model.image=224 \
        data.samples=4 train.batch=4 train.steps=1 run.dir=runs/timm
}

before_other_receipt() {
    mpirun -np 2 ./vittrain run.dir=runs/other train.epochs=2 output.receipt=1 run.seed=1
    cp runs/other/receipt.csv runs/exact/receipt.csv
}
before_running() {
    mpirun -np 2 ./vittrain run.dir=runs/stopped train.epochs=100000 &
    job=$!
    until grep -qs train runs/stopped/metrics.csv; do sleep 0.1; done
    pkill() { kill $1 $job && wait $job && grep '"finished": false' runs/stopped/result.json; }
}
before_ddp() { mpirun -np 2 ./vittrain run.dir=runs/ddp >/dev/null; }
before_fsdp() { mpirun -np 2 ./vittrain run.dir=runs/fsdp mesh.strategy=fsdp >/dev/null; }
before_small_flow() { python3() { "${PYTHON:-python3}" "$@" --runs=4 --held-out=1 --times=6; }; }
before_few_cells() { python3() { "${PYTHON:-python3}" "$@" --images=40; }; }
before_python() { python3() { "${PYTHON:-python3}" "$@"; }; }

with_depth="model.depth=1"
with_small="model.depth=1 model.dim=32 model.heads=2"
with_epoch="train.epochs=1"
with_small_epoch="$with_epoch $with_small"
with_endless="train.epochs=100000"
with_all="train.epochs=1 model.depth=1 model.dim=32 model.heads=2 train.global_batch=4 debug.fraction=1"
with_photos="$with_small_epoch train.batch=8 debug.fraction=1"
with_animals="train.epochs=1 debug.fraction=1"
with_narrow="model.width=8 train.epochs=1 train.batch=8"
with_resnet50="model.image=32 model.width=4 train.epochs=1 train.batch=4 debug.fraction=1"
with_vit_base="model.image=64 model.dim=32 model.depth=2 model.heads=2 train.epochs=1"
with_vit_base_photos="$with_vit_base debug.fraction=1 train.batch=8"
with_vit_tiny="train.steps=1 train.batch=2 debug.fraction=1 debug.batches=1"
with_synthetic="data.samples=64 debug.fraction=1 train.epochs=1"
with_pause="debug.pause=backward:1:go"
with_bench="bench.max=8KiB bench.seconds=0.01"
with_product="product:64 run.threads=1"
with_thread="run.threads=1"
with_find_batch="model.image=64 model.dim=64 model.depth=1 model.heads=2 plan.memory=76MiB"
with_find_lr="find.steps=40 train.global_batch=8 $with_small"
with_sweep="debug.fraction=0.02 run.threads=1 $with_small_epoch train.global_batch=8 output.monitor=0"
