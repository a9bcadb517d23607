#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Images per second of an epoch of CNN-A (batches of 16, single precision) with its data: vittrain and PyTorch in turn on
# the same cores. Prints rows of the benchmarks' CSV (README.md); the last is the ratio of the medians.
#
#   benchmarks/epoch.sh FOLDER [TURNS] >> benchmarks/results/epoch-HOST.csv
#
# FOLDER: CIFAR-10's binary files. Environment: PYTHON (with torch and torchvision), VITTRAIN.
set -euo pipefail

folder=${1:?FOLDER} turns=${2:-3}
here=$(dirname "$(readlink -f "$0")")
. "$here/common.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

report() { row "epoch with its data" cnn_a 16 fp32 none 1 "$(nproc)" speed "$1" "$2"; } # VALUE UNIT

for turn in $(seq "$turns"); do
    "${PYTHON:-python3}" "$here/pytorch_epoch.py" "$folder" | tee -a "$scratch/pytorch"
    "$vittrain" "$here/../input/cnn_a.ini" data.root="$folder" output.logbook= train.epochs=2 data.val=none \
        checkpoint.every=0 output.tensorboard=off output.log_every=1000 run.dir="$scratch/run$turn" >"$scratch/log"
    speed=$(awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i }
        $at["split"] == "epoch" { speed = $at["images_per_second"] } END { print speed }' "$scratch/run$turn/metrics.csv")
    report "$speed" images/s | tee -a "$scratch/vittrain"
done
ours=$(cut -d, -f14 "$scratch/vittrain" | median) theirs=$(cut -d, -f14 "$scratch/pytorch" | median)
framework="vittrain over pytorch" report "$(awk -v a="$ours" -v b="$theirs" 'BEGIN { printf "%.2f", a / b }')" x
