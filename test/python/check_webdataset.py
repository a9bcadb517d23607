# SPDX-License-Identifier: BSD-3-Clause
"""Shards that webdataset.TarWriter writes have the same samples in vittrain as in the Python package
webdataset: the same order, labels and images. Images are compared by the probabilities that one
model predicts for samples and for extracted files.

    check_webdataset.py VITTRAIN TREE WORK      TREE/train/CLASS/*.jpg and TREE/val likewise
"""

import json
import os
import sys

import webdataset

from support import probabilities_of, run, table

PER_SHARD = 25


def sample(folder, number, name, label):
    """Labels are .cls and .json in turn, with members that are no part of the data."""
    with open(f"{folder}/{name}", "rb") as file:
        image = file.read()
    key = (
        "a/" * (number % 3)
        + "long" * (40 * (number % 2))
        + os.path.splitext(name)[0].replace("/", "_")
    )
    made = {"__key__": key, ("jpg", "JPEG", "png")[number % 3]: image, "txt": "a caption"}
    if number % 4 == 3:
        made["json"] = {"label": label, "caption": "é"}
    else:
        made["cls"] = label
    return made


def write(tree, shards, split):
    """Write all images of a split in the order of their names."""
    classes = sorted(os.listdir(f"{tree}/{split}"))
    names = [
        (f"{name}/{file}", label)
        for label, name in enumerate(classes)
        for file in sorted(os.listdir(f"{tree}/{split}/{name}"))
    ]
    for first in range(0, len(names), PER_SHARD):
        with webdataset.TarWriter(f"{shards}/set-{split}-{first // PER_SHARD:06d}.tar") as writer:
            for number, (name, label) in enumerate(names[first : first + PER_SHARD]):
                writer.write(sample(f"{tree}/{split}", first + number, name, label))
    return (len(names) + PER_SHARD - 1) // PER_SHARD


def read(pattern):
    """Read the undecoded images and the labels in order with webdataset."""
    images, labels = [], []
    for found in webdataset.WebDataset(pattern, shardshuffle=False, empty_check=False):
        images.append(next(found[key] for key in found if key.lower() in ("jpg", "jpeg", "png")))
        labels.append(int(found["cls"]) if "cls" in found else json.loads(found["json"])["label"])
    return images, labels


def predict(vittrain, work, *words):
    """Return the rows of a prediction, and their probabilities."""
    output = f"{work}/predicted.csv"
    run(vittrain, "predict", f"{work}/wds_run", *words, f"predict.output={output}", "train.precision=fp32")
    return table(output), probabilities_of(output)


def compare(vittrain, work, split, images, labels):
    rows, samples = predict(vittrain, work, f"predict.split={split}")
    assert [int(row["label"]) for row in rows] == labels
    names = [f"{work}/{split}{number:04d}.jpg" for number in range(len(images))]
    for name, image in zip(names, images):
        with open(name, "wb") as file:
            file.write(image)
    _, files = predict(vittrain, work, *names)
    assert len(files) == len(samples) > 0, (len(files), len(samples))
    for sample, file in zip(samples, files):
        assert max(abs(a - b) for a, b in zip(sample, file)) < 1e-4, (split, sample, file)
    different = {round(sample[0], 4) for sample in samples}
    assert len(different) > len(set(images)) / 2, "the images have nearly the same probabilities"
    print(f"{split}: {len(samples)} samples are equal")


def main(vittrain, tree, work):
    shards = f"{work}/wds"
    os.mkdir(shards)
    counts = {split: write(tree, shards, split) for split in ("train", "val")}
    options = "data.format=webdataset data.val=val model.name=vit_cifar model.dim=32 model.depth=1 model.heads=2 train.epochs=9"
    run(vittrain, *options.split(), f"data.root={shards}", "train.batch=8", "optim.lr=1e-2", f"run.dir={work}/wds_run")
    for split, count in counts.items():
        images, labels = read(f"{shards}/set-{split}-{{000000..{count - 1:06d}}}.tar")
        compare(vittrain, work, split, images, labels)


if __name__ == "__main__":
    main(*sys.argv[1:])
