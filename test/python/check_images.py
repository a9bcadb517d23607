# SPDX-License-Identifier: BSD-3-Clause
"""Compares the images of a packed file (h5py) with those of the source folder, resized by Pillow: shorter side
to SIZE, then the centre SIZE x SIZE, as torchvision's Resize and CenterCrop do. Images are turned by their EXIF
orientation (data.exif=on). --orientations writes images with all orientations in all formats to a class's folder.

    check_images.py PACKED.h5 ROOT/SPLIT GROUP
    check_images.py --orientations FOLDER
"""
import os
import sys

import h5py
import numpy as np
from PIL import Image, ImageOps

ENDINGS = (".jpg", ".jpeg", ".png", ".webp")


def files_of(folder):
    """Paths and labels in the order of torchvision's ImageFolder."""
    for label, name in enumerate(sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())):
        for directory, _, files in sorted(os.walk(os.path.join(folder, name), followlinks=True)):
            for file in sorted(files):
                if file.lower().endswith(ENDINGS):
                    yield os.path.join(directory, file), label


def resized_middle(path, size):
    image = ImageOps.exif_transpose(Image.open(path)).convert("RGB")
    width, height = image.size
    shorter = min(width, height)
    width, height = (size if side == shorter else size * side // shorter for side in (width, height))
    image = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = round((width - size) / 2), round((height - size) / 2)
    return np.asarray(image.crop((left, top, left + size, top + size))).transpose(2, 0, 1)


def write_orientations(folder):
    rows, columns = np.mgrid[0:53, 0:80]
    image = Image.fromarray(np.stack([columns * 3, rows * 4, columns + rows], -1).astype(np.uint8))
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        for ending in "jpg", "png", "webp":
            image.save(os.path.join(folder, f"{orientation}.{ending}"), exif=exif)


def main():
    if sys.argv[1] == "--orientations":
        write_orientations(sys.argv[2])
        return
    packed, folder, group = sys.argv[1:]
    seen = near = 0
    with h5py.File(packed, "r") as file:
        pixels, labels = file[group]["bytes"], file[group]["label"]
        for record, (path, label) in enumerate(files_of(folder)):
            assert labels[record] == label, path
            expected = resized_middle(path, pixels.shape[2])
            gap = np.abs(pixels[record].astype(int) - expected)
            # Pillow 13 changes the order of the passes of some resizes.
            assert gap.max() <= 1, f"{path}: {gap.max()} levels apart"
            near += int((gap > 0).any())
            seen += 1
        assert seen == len(labels)
    print(f"{seen} images are Pillow's, {near} of them to one level")


if __name__ == "__main__":
    main()
