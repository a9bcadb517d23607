# SPDX-License-Identifier: BSD-3-Clause
"""Pixels moved by torchvision through Pillow, and the matrices of Pillow's rotation.

Writes augment.safetensors beside this script. For each size: `source` and, case by case, the
parameters of all stages and the picture after them, in the order of the reference's transforms:
crop with padding, flip, rotation, translation, erasing. `turned`: NumPy's roll, flips and rot90
with the parameters in `turns`.
"""
import math
import pathlib

import numpy
from PIL import Image
from safetensors.numpy import save_file
import torchvision.transforms.functional as functional

# shift_x, shift_y, flip, degrees, translate_x, translate_y, erase x, y, width, height
CASES = [
    (0, 0, 0, 0.0, 0, 0, 0, 0, 0, 0),
    (4, -3, 0, 0.0, 0, 0, 0, 0, 0, 0),
    (0, 0, 1, 0.0, 0, 0, 0, 0, 0, 0),
    (0, 0, 0, 7.25, 0, 0, 0, 0, 0, 0),
    (0, 0, 0, -14.9, 0, 0, 0, 0, 0, 0),
    (0, 0, 0, 0.0, 3, -2, 0, 0, 0, 0),
    (0, 0, 0, 0.0, 0, 0, 5, 2, 9, 13),
    (0, 0, 1, 11.0, 2, 1, 0, 0, 0, 0),
    (2, 1, 1, -3.3, -3, 3, 10, 4, 6, 8),
    (-4, 4, 0, 45.0, 1, -1, 0, 0, 3, 17),
    (1, 0, 1, 133.7, 0, 0, 1, 1, 1, 1),
    (0, 0, 0, 180.0, -1, 0, 0, 0, 0, 0),
]
SIZES = {"square": (32, 32), "wide": (28, 20)}  # width, height
PADDING = 4

# roll_x, roll_y, flip, vertical flip, quarter turns
TURNS = [(0, 0, 0, 0, 1), (0, 0, 0, 0, 2), (0, 0, 0, 0, 3), (0, 0, 0, 1, 0), (0, 0, 0, 1, 1), (0, 0, 1, 0, 1),
         (0, 0, 1, 1, 3), (5, 0, 0, 0, 0), (0, 19, 0, 0, 0), (27, 1, 1, 0, 2), (9, 17, 0, 1, 3)]


def transform(image, case):
    shift_x, shift_y, flip, degrees, translate_x, translate_y, x, y, width, height = case
    size = image.size
    if shift_x or shift_y:
        image = functional.pad(image, PADDING)
        image = functional.crop(image, PADDING + shift_y, PADDING + shift_x, size[1], size[0])
    if flip:
        image = functional.hflip(image)
    image = functional.rotate(image, degrees)
    image = functional.affine(image, 0.0, [translate_x, translate_y], 1.0, [0.0, 0.0])
    tensor = functional.to_tensor(image)
    if width:
        tensor = functional.erase(tensor, y, x, height, width, 0.0)
    return (tensor * 255).round().byte().numpy()


def turn(source, case):
    roll_x, roll_y, flip, vflip, turns = case
    image = numpy.roll(source, (roll_y, roll_x), (1, 2))
    image = image[:, :, ::-1] if flip else image
    image = image[:, ::-1] if vflip else image
    return numpy.rot90(image, turns, (1, 2))


def fixed_matrix(degrees, size):
    """The matrix that Image.rotate hands down, as the C code of Pillow rounds it."""
    caught = []
    original = Image.Image.transform
    Image.Image.transform = lambda self, size, method, data, *rest, **more: caught.append(data)
    Image.new("L", size).rotate(degrees)
    Image.Image.transform = original
    a, b, c, d, e, f = caught[0]
    fixed = [a, b, c + a * 0.5 + b * 0.5, d, e, f + d * 0.5 + e * 0.5]
    return [math.floor(value * 65536.0 + 0.5) for value in fixed]


def main():
    random = numpy.random.default_rng(1)
    tensors = {"cases": numpy.array(CASES, dtype=numpy.float64)}
    for name, size in SIZES.items():
        source = random.integers(0, 256, (size[1], size[0], 3), dtype=numpy.uint8)
        image = Image.fromarray(source)
        tensors[f"{name}.source"] = numpy.ascontiguousarray(source.transpose(2, 0, 1))
        tensors[f"{name}.moved"] = numpy.stack([transform(image, case) for case in CASES])
        planes = tensors[f"{name}.source"]
        cases = [case for case in TURNS if case[4] % 2 == 0 or size[0] == size[1]]
        tensors[f"{name}.turns"] = numpy.array(cases, dtype=numpy.float64)
        tensors[f"{name}.turned"] = numpy.stack([turn(planes, case) for case in cases])
        angles = numpy.concatenate([random.uniform(-15, 15, 150), random.uniform(-180, 180, 50)])
        matrices = [fixed_matrix(float(angle), size) for angle in angles]
        tensors[f"{name}.angles"] = angles
        tensors[f"{name}.matrices"] = numpy.array(matrices, dtype=numpy.int32)
    save_file(tensors, pathlib.Path(__file__).with_name("augment.safetensors"))


if __name__ == "__main__":
    main()
