# SPDX-License-Identifier: BSD-3-Clause
"""Compares image files that the program decodes and resizes with Pillow: shorter side to SIZE, then
the centre SIZE x SIZE, as torchvision's Resize and CenterCrop do. Images are turned by their EXIF
orientation (data.exif=on). --orientations writes images with all orientations in all formats to a
folder.

    check_images.py TEST_RECIPE FOLDER SIZE
    check_images.py --orientations FOLDER
"""

import os
import subprocess
import sys

import numpy as np
from PIL import Image, ImageOps

from support import images_in


def resized_middle(path, size):
    image = ImageOps.exif_transpose(Image.open(path)).convert("RGB")
    width, height = image.size
    shorter = min(width, height)
    width, height = (
        size if side == shorter else size * side // shorter for side in (width, height)
    )
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


def decoded(program, path, size):
    words = f"model.image={size} eval.resize={size} eval.resize_to=shorter eval.crop=center augment.interpolation=bilinear"
    words = [program, "resnet18", path, *words.split(), "data.scaled_decode=off", "data.exif=on"]
    done = subprocess.run(words, stdout=subprocess.PIPE, check=True)
    return np.frombuffer(done.stdout, np.uint8).reshape(3, size, size)


def main():
    if sys.argv[1] == "--orientations":
        write_orientations(sys.argv[2])
        return
    program, folder, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
    files = images_in(folder, (".jpg", ".jpeg", ".png", ".webp"))
    near = 0
    for path in files:
        gap = np.abs(decoded(program, path, size).astype(int) - resized_middle(path, size))
        # Pillow 13 changes the order of the passes of some resizes.
        assert gap.max() <= 1, f"{path}: {gap.max()} levels apart"
        near += int((gap > 0).any())
    print(f"{len(files)} images are Pillow's, {near} of them to one level")


if __name__ == "__main__":
    main()
