#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Cut and resized images for test_crop, by torchvision through Pillow: crop.safetensors with, case by
case, "source" [height, width, 3], "numbers" (what the case is, see test_crop.c), "expected" and
"bicubic" [3, height, width]. Needs numpy, Pillow before 13 (which turns the passes of some resizes round),
safetensors, torchvision.
    make_crop.py crop.safetensors"""
import sys

import numpy as np
from PIL import Image
from safetensors.numpy import save_file
from torchvision.transforms import InterpolationMode as Mode
from torchvision.transforms import functional

random = np.random.default_rng(5)
BOX, MIDDLE, MOVED = range(3)
SQUARE, SHORTER = 1, 2


def cases():
    """(width, height) of the source, size of the output, and what is done."""
    yield (50, 40), 24, (BOX, 3, 5, 31, 28)
    yield (50, 40), 24, (BOX, 0, 0, 50, 40)
    yield (50, 40), 24, (BOX, 49, 39, 1, 1)
    yield (50, 40), 24, (BOX, 10, 2, 7, 38)
    yield (90, 70), 16, (BOX, 1, 1, 88, 69)
    yield (32, 32), 48, (BOX, 2, 3, 20, 25)
    yield (50, 40), 24, (BOX, 5, 5, 24, 24)
    for size in [(50, 40), (40, 50), (33, 33), (97, 31)]:
        yield size, 24, (MIDDLE, SHORTER, 30)
        yield size, 24, (MIDDLE, SQUARE, 31)
    yield (50, 40), 24, (MIDDLE, SHORTER, 15)
    yield (50, 40), 25, (MIDDLE, SQUARE, 12)
    for left, top in [(0, 0), (-4, -4), (12, 9), (-1, 12)]:
        yield (50, 40), 24, (MOVED, SQUARE, 32, left, top, 4)


def make(image, size, case, interpolation):
    kind, *numbers = case
    if kind == BOX:
        left, top, width, height = numbers
        return functional.resized_crop(image, top, left, height, width, [size, size], interpolation)
    resize_to, resize, *place = numbers
    image = functional.resize(image, [resize, resize] if resize_to == SQUARE else [resize], interpolation)
    if kind == MIDDLE:
        return functional.center_crop(image, [size, size])
    left, top, pad = place
    return functional.crop(functional.pad(image, pad), top + pad, left + pad, size, size)


def main():
    tensors = {}
    for number, ((width, height), size, case) in enumerate(cases()):
        source = random.integers(0, 256, (height, width, 3)).astype(np.uint8)
        tensors[f"source{number}"] = source
        tensors[f"numbers{number}"] = np.array([size, *case], np.int32)
        for name, interpolation in (("expected", Mode.BILINEAR), ("bicubic", Mode.BICUBIC)):
            made = np.array(make(Image.fromarray(source), size, case, interpolation))
            tensors[f"{name}{number}"] = np.ascontiguousarray(made.transpose(2, 0, 1))
    save_file(tensors, sys.argv[1])


if __name__ == "__main__":
    main()
