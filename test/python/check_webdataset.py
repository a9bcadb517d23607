# SPDX-License-Identifier: BSD-3-Clause
"""Shards that webdataset.TarWriter writes have the same samples in vittrain: the same order, bytes and labels as the
Python package webdataset reads, compared in the packed file that `convert data` makes of them.
  check_webdataset.py VITTRAIN TREE WORK      TREE/train/CLASS/*.jpg and TREE/val likewise"""
import json
import os
import subprocess
import sys

import h5py
import webdataset

PER_SHARD = 25


def sample(folder, number, name, label):
    """Labels are .cls and .json in turn, with members that are no part of the data."""
    with open(f"{folder}/{name}", "rb") as file:
        image = file.read()
    key = "a/" * (number % 3) + "long" * (40 * (number % 2)) + os.path.splitext(name)[0].replace("/", "_")
    made = {"__key__": key, ("jpg", "JPEG", "png")[number % 3]: image, "txt": "a caption"}
    if number % 4 == 3:
        made["json"] = {"label": label, "caption": "é"}
    else:
        made["cls"] = label
    return made


def write(tree, shards, split):
    """Write all images of a split in the order of their names."""
    classes = sorted(os.listdir(f"{tree}/{split}"))
    names = [(f"{name}/{file}", label) for label, name in enumerate(classes)
             for file in sorted(os.listdir(f"{tree}/{split}/{name}"))]
    for first in range(0, len(names), PER_SHARD):
        with webdataset.TarWriter(f"{shards}/set-{split}-{first // PER_SHARD:06d}.tar") as writer:
            for number, (name, label) in enumerate(names[first:first + PER_SHARD]):
                writer.write(sample(f"{tree}/{split}", first + number, name, label))
    return (len(names) + PER_SHARD - 1) // PER_SHARD


def read(pattern):
    """Read the undecoded images and the labels in order with webdataset."""
    images, labels = [], []
    for found in webdataset.WebDataset(pattern, shardshuffle=False, empty_check=False):
        images.append(next(found[key] for key in found if key.lower() in ("jpg", "jpeg", "png")))
        labels.append(int(found["cls"]) if "cls" in found else json.loads(found["json"])["label"])
    return images, labels


def main(vittrain, tree, work):
    shards, packed = f"{work}/wds", f"{work}/wds.h5"
    os.mkdir(shards)
    counts = {split: write(tree, shards, split) for split in ("train", "val")}
    subprocess.run([vittrain, "convert", "data", "data.format=webdataset", f"data.root={shards}", "data.val=val",
                    f"convert.output={packed}"], check=True)
    with h5py.File(packed) as file:
        for split, group in (("train", file["train"]), ("val", file["validation"])):
            pattern = f"{shards}/set-{split}-{{000000..{counts[split] - 1:06d}}}.tar"
            images, labels = read(pattern)
            offset, data = group["offset"][:], group["bytes"][:]
            assert len(images) == len(group["label"]) > 0, (len(images), len(group["label"]))
            assert list(group["label"]) == labels
            for number, image in enumerate(images):
                assert data[offset[number]:offset[number + 1]].tobytes() == image, (split, number)
            print(f"{split}: {len(images)} samples are equal")


if __name__ == "__main__":
    main(*sys.argv[1:])
