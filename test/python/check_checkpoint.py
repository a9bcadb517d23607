# SPDX-License-Identifier: BSD-3-Clause
"""Reads a checkpoint with h5py and checks it against docs/checkpoint.md. Reads the weights of the
run with the safetensors package, and compares them bit for bit with a vector of the checkpoint.

    check_checkpoint.py CHECKPOINT WEIGHTS VECTOR
"""

import json
import sys

import h5py
import numpy
from safetensors import safe_open

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


def check_tensors(unit, weights, vector):
    """Check that tensors do not overlap, that gaps between them are zero, and that the weights are
    those of the vector. Return the names of the tensors."""
    tensors, master, values = unit["tensors"][()], unit["master"][()], unit[vector][()]
    gaps = numpy.ones(master.size, bool)
    end = 0
    for row in tensors:
        shape = row["shape"][: row["dimensions"]]
        assert numpy.prod(shape) == row["count"] and row["offset"] >= end, row["name"]
        end = row["offset"] + row["count"]
        gaps[row["offset"] : end] = False
        tensor = weights.get_tensor(row["name"].decode())
        assert list(tensor.shape) == list(shape), row["name"]
        assert tensor.tobytes() == values[row["offset"] : end].tobytes(), row["name"]
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


def check_metadata(metadata, file):
    """A CIFAR ViT whose normalisation is that of the model."""
    assert metadata == json.loads(file["metadata"][()])
    assert metadata["format"] == "pt"
    assert metadata["program"].encode() == file.attrs["program"]
    assert metadata["architecture"].encode() == file.attrs["model"]
    assert json.loads(metadata["input_size"]) == [3, 32, 32]
    assert json.loads(metadata["mean"]) == json.loads(metadata["std"]) == [0.5, 0.5, 0.5]
    assert metadata["interpolation"] == "bilinear"
    names = json.loads(metadata["label_names"])
    assert json.loads(metadata["num_classes"]) == len(names) == 10 and names[0] == "airplane"
    assert f"depth = {metadata['model.depth']}\n" in file["deck"][()].decode(), metadata


def main():
    checkpoint, path, vector = sys.argv[1:]
    with h5py.File(checkpoint) as file, safe_open(path, "numpy") as weights:
        for name in NUMBERS:
            assert numpy.ndim(file.attrs[name]) == 0, name
        for name in TEXTS:
            assert file.attrs[name], name
        assert file["deck"].attrs["crc32c"] == crc32c(file["deck"][()] + b"\0")
        check_metadata(weights.metadata(), file)
        vectors = ["master", "moment1", "moment2"][: 1 + file.attrs["moments"]]
        if file.attrs["averaged"]:
            vectors.append("average")
        names = []
        for unit in file["units"].values():
            assert set(unit) == {"tensors", "pieces", *vectors}, unit.name
            assert all(unit[vector].dtype == "<f4" for vector in vectors)
            assert unit["tensors"].attrs["crc32c"] == crc32c(unit["tensors"][()].tobytes()), unit.name
            names += check_tensors(unit, weights, vector)
            check_pieces(unit, vectors)
        assert sorted(names) == sorted(weights.keys())
        print(f"{len(file['units'])} units, {len(names)} tensors, vectors {' '.join(vectors)}")


main()
