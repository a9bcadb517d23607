"""Reads weights with the safetensors package and compares them, bit for bit, with a vector of a
checkpoint as h5py reads it.

    check_safetensors.py WEIGHTS CHECKPOINT VECTOR
"""
import sys

import h5py
from safetensors import safe_open


def main():
    weights, checkpoint, vector = sys.argv[1:]
    seen = 0
    with safe_open(weights, "numpy") as file, h5py.File(checkpoint, "r") as state:
        assert file.metadata() == {"format": "pt"}
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
