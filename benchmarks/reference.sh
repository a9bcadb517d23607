#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The runs of the course projects' tables: CNN-A, CNN-B and the CIFAR ViT with 16 and 64 images per rank on
# 1 rank, 2 ranks, and 4 ranks of 2 nodes; ViT-B/32 on 2 nodes as DDP and as FSDP. Nodes are namespaces of
# this machine (test/support/cluster.sh), as root. Run folders go to runs/, rows of the log book to runs/logbook/. Runs that
# exist are resumed, so the script can be stopped at any time.
#
#   benchmarks/reference.sh [RUN...]       in a built checkout with CIFAR-10 in data/cifar-10-batches-bin
#
# RUN: cnn_a, cnn_b, vit_cifar, vit_base32; default: all. Environment: EPOCHS (10), FRACTION_RUN (1): fraction of the
# training data, if all of it takes too long; the log book shows the share of the data.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
cd "$here/.."
[ -e data/cifar-10-batches-bin/test_batch.bin ] || { echo "reference.sh: no data/cifar-10-batches-bin: tools/fetch.sh cifar10" >&2; exit 2; }
scratch=$(mktemp -d)
cluster() { TEST_BUILD=$PWD TEST_SOURCE=$PWD sh test/support/cluster.sh "$scratch" "$@"; }
trap 'cluster down; rm -rf "$scratch"' EXIT
cluster up 2
cluster env >"$scratch/env.sh"

# run NODES RANKS WORD...: trains on the first of the two nodes, or on both.
run() {
    local nodes=$1 ranks=$2
    shift 2
    cluster hosts $((ranks / nodes)) | head -n "$nodes" >"$scratch/hosts"
    cat >"$scratch/job.sh" <<END
. "$scratch/env.sh" && cd "$PWD" &&
    exec mpirun --oversubscribe -np $ranks -hostfile "$scratch/hosts" ./vittrain $* run.threads=1 data.root=data/cifar-10-batches-bin
END
    cluster exec 1 sh "$scratch/job.sh" </dev/null
}

fraction() { # RUN
    local name=FRACTION_$1
    echo "${!name:-1}"
}

course() { # MODEL
    local batch layout
    for batch in 16 64; do
        for layout in "1 1" "1 2" "2 4"; do
            set -- "$1" $layout
            run "$2" "$3" "input/$1.ini" "run.dir=runs/$1-b$batch-n$2-r$3" "train.batch=$batch" \
                "train.epochs=${EPOCHS:-10}" "debug.fraction=$(fraction "$1")"
        done
    done
}

# Without published weights training starts from random ones, with the same learning rate.
vit_base32() {
    local strategy weights=none
    [ ! -e data/vit_base_patch32_224.safetensors ] || weights=data/vit_base_patch32_224.safetensors
    for strategy in ddp fsdp; do
        run 2 2 input/vit_base32_course.ini "run.dir=runs/vit_base32-$strategy" "mesh.strategy=$strategy" "model.init=$weights" \
            "train.batch=${BATCH:-32}" train.precision=auto train.test=on "train.epochs=${EPOCHS:-10}" "debug.fraction=$(fraction vit_base32)" output.tensorboard_tags=lightning
    done
}

for what in ${*:-cnn_a cnn_b vit_cifar vit_base32}; do
    case $what in
    cnn_a | cnn_b | vit_cifar) course "$what" ;;
    vit_base32) vit_base32 ;;
    *) echo "reference.sh: no run $what" >&2; exit 2 ;;
    esac
done
