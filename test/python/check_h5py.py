# SPDX-License-Identifier: BSD-3-Clause
"""Reads a checkpoint with h5py and checks it against docs/checkpoint.md.

    check_h5py.py CHECKPOINT
"""
import sys

import h5py
import numpy

NUMBERS = """step epoch epoch_step global_batch seed best_metric best_step evaluations_without_gain
    plateau_rate_factor plateau_best plateau_bad epoch_loss_sum epoch_top1_sum epoch_top5_sum
    epoch_samples train_seconds without_setup_seconds total_seconds parts loss_scale
    loss_scale_good_steps skipped_steps finished moments averaged replica shard format""".split()
TEXTS = "model program date compute".split()

TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    TABLE.append(byte)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def check_table(dataset):
    assert dataset.attrs["crc32c"] == crc32c(dataset[()].tobytes()), dataset.name


def check_tensors(unit):
    """Check that tensors do not overlap and that gaps between them are zero."""
    tensors, master = unit["tensors"][()], unit["master"][()]
    gaps = numpy.ones(master.size, bool)
    end = 0
    for row in tensors:
        shape = row["shape"][: row["dimensions"]]
        assert numpy.prod(shape) == row["count"] and row["offset"] >= end, row["name"]
        end = row["offset"] + row["count"]
        gaps[row["offset"]:end] = False
    assert end == master.size and not master[gaps].any(), unit.name
    return [row["name"].decode() for row in tensors]


def check_pieces(unit, vectors):
    next_begin = 0
    for piece in unit["pieces"][()]:
        begin, count = int(piece["begin"]), int(piece["count"])
        assert begin == next_begin, unit.name
        next_begin = begin + count
        for vector in vectors:
            data = unit[vector][begin:next_begin].tobytes()
            assert piece["crc32c_" + vector] == crc32c(data), (unit.name, vector, begin)
    assert all(unit[vector].shape == (next_begin,) for vector in vectors), unit.name


def main():
    with h5py.File(sys.argv[1], "r") as file:
        for name in NUMBERS:
            assert numpy.ndim(file.attrs[name]) == 0, name
        for name in TEXTS:
            assert file.attrs[name], name
        assert file["deck"][()].decode().startswith("["), "deck"
        assert file["deck"].attrs["crc32c"] == crc32c(file["deck"][()] + b"\0")
        vectors = ["master", "moment1", "moment2"][: 1 + file.attrs["moments"]]
        if file.attrs["averaged"]:
            vectors.append("average")
        names = []
        for unit in file["units"].values():
            assert set(unit) == {"tensors", "pieces", *vectors}, unit.name
            assert all(unit[vector].dtype == "<f4" for vector in vectors)
            check_table(unit["tensors"])
            names += check_tensors(unit)
            check_pieces(unit, vectors)
        assert len(names) == len(set(names)) > 0
        print(f"{len(file['units'])} units, {len(names)} tensors, vectors {' '.join(vectors)}")


if __name__ == "__main__":
    main()
