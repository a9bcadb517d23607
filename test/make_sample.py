#!/usr/bin/env python3
"""Makes input/data/cifar-10-sample from the complete CIFAR-10 (binary version).

    test/make_sample.py DIRECTORY_OF_THE_COMPLETE_SET [input/data/cifar-10-sample]

Takes, in canonical order, the first images of each class: 400 of the training set, 100 of the test
set. So the sample is balanced and can be reproduced bit for bit from the complete set.
"""
import pathlib
import shutil
import sys

RECORD = 3073
CLASSES = 10


def take(files, per_class):
    """The first per_class records of each class, in file order."""
    taken = [0] * CLASSES
    records = []
    for file in files:
        content = file.read_bytes()
        for begin in range(0, len(content), RECORD):
            label = content[begin]
            if taken[label] < per_class:
                taken[label] += 1
                records.append(content[begin : begin + RECORD])
    assert taken == [per_class] * CLASSES, taken
    return b"".join(records)


def main():
    source = pathlib.Path(sys.argv[1])
    target = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else "input/data/cifar-10-sample")
    target.mkdir(parents=True, exist_ok=True)
    training = [source / f"data_batch_{number}.bin" for number in range(1, 6)]
    (target / "data_batch_1.bin").write_bytes(take(training, 400))
    (target / "test_batch.bin").write_bytes(take([source / "test_batch.bin"], 100))
    shutil.copyfile(source / "batches.meta.txt", target / "batches.meta.txt")


if __name__ == "__main__":
    main()
