# SPDX-License-Identifier: BSD-3-Clause
"""Reads weights with the safetensors package and compares them, bit for bit, with a vector of a
checkpoint as h5py reads it. Both have the same metadata, which describe the model of the run.

    check_safetensors.py WEIGHTS CHECKPOINT VECTOR
"""
import json
import sys

import h5py
from safetensors import safe_open


def check_metadata(metadata, checkpoint):
    """A CIFAR ViT whose normalisation is that of the model."""
    assert metadata == json.loads(checkpoint["metadata"][()])
    assert metadata["format"] == "pt"
    assert metadata["program"].encode() == checkpoint.attrs["program"]
    assert metadata["architecture"].encode() == checkpoint.attrs["model"]
    assert json.loads(metadata["input_size"]) == [3, 32, 32]
    assert json.loads(metadata["mean"]) == json.loads(metadata["std"]) == [0.5, 0.5, 0.5]
    assert metadata["interpolation"] == "bilinear"
    names = json.loads(metadata["label_names"])
    assert json.loads(metadata["num_classes"]) == len(names) == 10 and names[0] == "airplane"
    deck = checkpoint["deck"][()].decode()
    assert f"depth = {metadata['model.depth']}\n" in deck, metadata


def main():
    weights, checkpoint, vector = sys.argv[1:]
    seen = 0
    with safe_open(weights, "numpy") as file, h5py.File(checkpoint, "r") as state:
        check_metadata(file.metadata(), state)
        for unit in state["units"].values():
            values = unit[vector][()]
            for row in unit["tensors"][()]:
                tensor = file.get_tensor(row["name"].decode())
                assert list(tensor.shape) == list(row["shape"][: row["dimensions"]]), row["name"]
                part = values[row["offset"]:row["offset"] + row["count"]]
                assert tensor.tobytes() == part.tobytes(), row["name"]
                seen += 1
        assert seen == len(file.keys())
    print(f"{seen} tensors are the same")


if __name__ == "__main__":
    main()
