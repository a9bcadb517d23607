# SPDX-License-Identifier: BSD-3-Clause
"""Reads a packed data set with h5py, checks it against docs/data.md, and compares the records of CIFAR-10
with the original files.

    check_packed.py FILE.h5 [FOLDER]
"""
import os
import sys

import h5py
import numpy

from check_h5py import check_table, crc32c


def check_split(file, group):
    records, labels = group.attrs["records"], group["label"][()]
    assert 0 <= group.attrs["first"] <= group.attrs["total"] - records
    assert labels.dtype == "<i4" and labels.shape == (records,)
    assert 0 <= labels.min() and labels.max() < len(file["classes"])
    crc = group["crc"][()]
    assert crc.dtype == "<u4" and crc.shape == (records,)
    data = group["bytes"]
    assert data.dtype == "u1" and data.chunks is None and data.compression is None
    if file.attrs["kind"] == b"encoded":
        offset = group["offset"][()]
        assert offset.dtype == "<i8" and offset.shape == (records + 1,)
        assert offset[0] == 0 and offset[-1] == data.size and (numpy.diff(offset) >= 0).all()
    else:
        offset = None
        shape = tuple(file.attrs[name] for name in ("channels", "height", "width"))
        assert data.shape == (records, *shape)
    for i in range(0, records, max(1, records // 20)):
        record = data[offset[i] : offset[i + 1]] if offset is not None else data[i]
        assert crc32c(record.tobytes() + labels[i].tobytes()) == crc[i], (group.name, i)
    return data, labels


def check_cifar(data, labels, folder, name):
    raw = numpy.fromfile(os.path.join(folder, name), numpy.uint8).reshape(-1, 3073)
    assert (raw[:, 0] == labels).all() and (raw[:, 1:].reshape(data.shape) == data[()]).all()


def main():
    with h5py.File(sys.argv[1], "r") as file:
        assert file.attrs["packed"] == 1 and file.attrs["kind"] in (b"encoded", b"decoded")
        assert file.attrs["file"] < file.attrs["files"] and file.attrs["shuffled"] in (0, 1)
        assert file.attrs["source"] and file.attrs["program"]
        check_table(file["classes"])
        splits = {name: file[name] for name in ("train", "validation", "test") if name in file}
        for name, group in splits.items():
            data, labels = check_split(file, group)
            if len(sys.argv) > 2:
                files = {"train": "data_batch_1.bin", "test": "test_batch.bin"}
                check_cifar(data, labels, sys.argv[2], files[name])
        print({name: int(group.attrs["records"]) for name, group in splits.items()})


if __name__ == "__main__":
    main()
