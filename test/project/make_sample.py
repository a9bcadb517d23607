#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes input/cifar-10-sample.tar.xz from the complete CIFAR-10 (binary version).

    test/project/make_sample.py DIRECTORY_OF_THE_COMPLETE_SET [input/cifar-10-sample.tar.xz]

Takes, in canonical order, the first images of each class: 200 of the training set, 50 of the test set. So the
sample is balanced and can be reproduced from the complete set. `make` unpacks it to data/cifar-10-sample.
"""
import io
import lzma
import pathlib
import sys
import tarfile

RECORD = 3073
CLASSES = 10
# Differences between neighbouring pixels compress better than the pixels.
FILTERS = [{"id": lzma.FILTER_DELTA, "dist": 1}, {"id": lzma.FILTER_LZMA2, "preset": 9, "lc": 0, "lp": 0, "pb": 0}]
README = b"""# A sample of CIFAR-10

2,500 of the 60,000 images of CIFAR-10, in the data set's own binary format, so that vittrain can be tried without a
download: 2,000 for training (`data_batch_1.bin`, 200 of each class) and 500 for testing (`test_batch.bin`, 50 of each
class). They are the first of each class in canonical order.

A record is 3,073 bytes: the label (0 to 9, names in `batches.meta.txt`), then 32 x 32 bytes each of red, green and
blue, row by row.

Source: Alex Krizhevsky, *Learning Multiple Layers of Features from Tiny Images*, technical report, University of
Toronto, 2009. Home of the data set: <https://www.cs.toronto.edu/~kriz/cifar.html>. The complete set:
`tools/fetch.sh cifar10`.
"""


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
    target = sys.argv[2] if len(sys.argv) > 2 else "input/cifar-10-sample.tar.xz"
    members = {
        "batches.meta.txt": (source / "batches.meta.txt").read_bytes(),
        "data_batch_1.bin": take(sorted(source.glob("data_batch_?.bin")), 200),
        "test_batch.bin": take([source / "test_batch.bin"], 50),
        "README.md": README,
    }
    with lzma.open(target, "wb", filters=FILTERS) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo("cifar-10-sample/" + name)  # its date is 0
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


if __name__ == "__main__":
    main()
