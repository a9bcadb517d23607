# SPDX-License-Identifier: BSD-3-Clause
"""Compares data.val=reference with PyTorch: the records of each split, which `vittrain predict` lists, with the indices of
random_split(ConcatDataset([train, test]), lengths, torch.Generator().manual_seed(run.seed)). TEST_LONG=1 also compares
permutations of the sizes around the limit from which PyTorch draws other numbers (2 GB of memory, a minute or more).

    check_torch_split.py VITTRAIN TEST_RANDOM FOLDER
"""
import os
import subprocess
import sys

import numpy as np
import torch
from torch.utils.data import ConcatDataset, random_split

from support import run, table

TINY = ["model.image=8", "model.patch=8", "model.dim=8", "model.heads=1", "model.depth=1", "data.image=8",
        "data.format=synthetic", "data.val=reference", "output.tensorboard=off", "output.logbook="]
LARGE = 2**32 // 20  # the threshold of randperm_cpu


def records_of(vittrain, folder, split):
    output = f"{folder}/{split}.csv"
    run(vittrain, "predict", f"{folder}/run/checkpoints/last.h5", f"predict.split={split}", f"predict.output={output}",
        "train.batch=500")
    return [int(row["record"]) for row in table(output)]


def check_splits(vittrain, folder, training, seed):
    """The synthetic test set has a quarter of the training set's samples."""
    folder = f"{folder}/split-{training}-{seed}"
    run(vittrain, "train", *TINY, f"data.samples={training}", f"run.seed={seed}", f"run.dir={folder}/run", "train.steps=1")
    count = training + (training + 3) // 4
    lengths = [count * 3 // 4, count // 12]
    lengths.append(count - sum(lengths))
    data = ConcatDataset([range(training), range(count - training)])
    parts = random_split(data, lengths, torch.Generator().manual_seed(seed))
    for split, part in zip(("train", "val", "test"), parts):
        assert records_of(vittrain, folder, split) == sorted(part.indices), (split, training, seed)
    print(f"{count} samples, seed {seed}: {lengths} as PyTorch {torch.__version__}")


def check_permutation(program, count, seed):
    expected = torch.randperm(count, generator=torch.Generator().manual_seed(seed), dtype=torch.int32).numpy()
    process = subprocess.Popen([program, "--torch", str(seed), str(count)], stdout=subprocess.PIPE)
    at = 0
    while piece := process.stdout.read(1 << 24):
        numbers = np.frombuffer(piece, np.int32)
        assert (expected[at:at + len(numbers)] == numbers).all(), (count, seed)
        at += len(numbers)
    assert process.wait() == 0 and at == count
    print(f"randperm({count}), seed {seed}")


def main():
    vittrain, program, folder = sys.argv[1:]
    check_splits(vittrain, folder, 48000, 42)
    check_splits(vittrain, folder, 101, 7)
    for count in (0, 1, 5000, 60000, 2**20 + 1):
        check_permutation(program, count, 42)
    for count in (LARGE - 1, LARGE) if os.environ.get("TEST_LONG") == "1" else ():
        check_permutation(program, count, 42)


if __name__ == "__main__":
    main()
