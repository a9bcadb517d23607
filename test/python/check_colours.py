# SPDX-License-Identifier: BSD-3-Clause
"""Applies the program's functions and torchvision's (through Pillow) to real photographs: every byte must
be equal. Skipped without a folder of images.

    check_colours.py TEST_POLICY [FOLDER]      (FOLDER: else VITTRAIN_IMAGES)
"""
import os
import subprocess
import sys

import numpy
from PIL import Image

from support import images_in
from make_policy import CHANGES, FUNCTIONS, operate, planes

MOST_IMAGES, LONGEST = 20, 500
# Kinds whose amount policy_operation does not take from RandAugment.
FACTORS, TRANSLATIONS = (6, 7, 8, 9), (3, 4)


def amount_of(kind, magnitude, negative, image):
    from torchvision.transforms import RandAugment
    magnitudes, signed = list(RandAugment()._augmentation_space(31, (image.height, image.width)).values())[kind]
    amount = float(magnitudes[magnitude].item()) if magnitudes.ndim > 0 else 0.0
    amount = -amount if signed and negative else amount
    if kind in FACTORS:
        return 1.0 + amount
    return float(int(amount)) if kind in TRANSLATIONS else amount


def changed(program, kind, amount, pixels):
    words = [program, str(kind), repr(float(amount)), str(pixels.shape[1]), str(pixels.shape[2])]
    done = subprocess.run(words, input=pixels.tobytes(), stdout=subprocess.PIPE, check=True)
    return numpy.frombuffer(done.stdout, numpy.uint8).reshape(pixels.shape)


def main():
    program = os.path.abspath(sys.argv[1])
    folder = sys.argv[2] if len(sys.argv) > 2 else os.environ.get("VITTRAIN_IMAGES", "")
    if not folder:
        print("skipped: no images; VITTRAIN_IMAGES names a folder")
        return 0
    files = images_in(folder)
    wrong = compared = 0
    for path in files[:: max(1, len(files) // MOST_IMAGES)][:MOST_IMAGES]:
        image = Image.open(path).convert("RGB")
        image.thumbnail((LONGEST, LONGEST))
        source = planes(image)
        cases = [(kind, amount, FUNCTIONS[kind](image, amount)) for kind, amount in CHANGES]
        for kind in range(14):
            for magnitude, negative in ((9, 0), (23, 1)):
                cases.append((kind, amount_of(kind, magnitude, negative, image),
                              operate(image, kind, magnitude, negative)))
        for kind, amount, expected in cases:
            difference = changed(program, kind, amount, source) != planes(expected)
            compared += 1
            if difference.any():
                wrong += 1
                print(f"{path}: kind {kind}, {amount}: {difference.sum()} of {difference.size} bytes differ")
    print(f"{compared} changes of {min(len(files), MOST_IMAGES)} images, {wrong} not Pillow's")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
