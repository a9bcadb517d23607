# SPDX-License-Identifier: BSD-3-Clause
"""Images changed by torchvision through Pillow: RandAugment's operations and the colour jitter's.

Writes policy.safetensors beside this script. `operations`: kind (its place in torchvision's table),
magnitude and sign of RandAugment's operations; `changes`: kind and amount of single changes, kinds
as enum image_change_kind of src/image/augment.h has them. For each picture P, `P.source`, and what each
operation (`P.operations`) and each change (`P.changes`) makes of it.
"""
import pathlib

import numpy
from PIL import Image, ImageFilter
from safetensors.numpy import save_file
from torchvision.transforms import InterpolationMode, RandAugment
from torchvision.transforms import functional
from torchvision.transforms.autoaugment import _apply_op

MAGNITUDES = (1, 9, 15, 30)
BRIGHTNESS, SATURATION, CONTRAST, SHARPNESS, HUE, GREY, BLUR = 6, 7, 8, 9, 14, 15, 16
CHANGES = (
    [(BRIGHTNESS, factor) for factor in (0.0, 0.3, 1.0, 1.37, 3.0)]
    + [(SATURATION, factor) for factor in (0.0, 0.61, 1.0, 1.41)]
    + [(CONTRAST, factor) for factor in (0.0, 0.77, 1.0, 1.9)]
    + [(SHARPNESS, factor) for factor in (0.0, 0.5, 1.0, 2.5)]
    + [(HUE, part) for part in (-0.5, -0.21, -0.001, 0.0, 0.004, 0.1, 0.35, 0.5)]
    + [(GREY, 0.0)]
    + [(BLUR, radius) for radius in (0.1, 0.7, 1.0, 1.33, 2.0, 9.5)]
)
FUNCTIONS = {
    BRIGHTNESS: functional.adjust_brightness,
    SATURATION: functional.adjust_saturation,
    CONTRAST: functional.adjust_contrast,
    SHARPNESS: functional.adjust_sharpness,
    HUE: functional.adjust_hue,
    BLUR: lambda image, radius: image.filter(ImageFilter.GaussianBlur(radius)),
    GREY: lambda image, amount: functional.to_grayscale(image, 3),
}


def planes(image):
    return numpy.ascontiguousarray(numpy.asarray(image).transpose(2, 0, 1))


def operate(image, kind, magnitude, negative):
    space = RandAugment()._augmentation_space(31, (image.height, image.width))
    name = list(space)[kind]
    magnitudes, signed = space[name]
    amount = float(magnitudes[magnitude].item()) if magnitudes.ndim > 0 else 0.0
    return _apply_op(image, name, -amount if signed and negative else amount,
                     InterpolationMode.NEAREST, None)


def pictures():
    random = numpy.random.default_rng(6)
    y, x = numpy.mgrid[0:18, 0:25]
    yield "noise", random.integers(0, 256, (14, 17, 3))
    yield "ramps", numpy.stack([40 + 5 * y + x, 30 + 7 * x, 90 + 2 * x + 3 * y], -1)
    yield "grey", numpy.full((3, 4, 3), 77)
    yield "pixel", numpy.array([[[200, 10, 60]]])
    yield "lines", random.integers(0, 256, (2, 9, 3))


def main():
    operations = [(kind, magnitude, negative) for kind in range(14) for magnitude in MAGNITUDES
                  for negative in (0, 1)]
    tensors = {"operations": numpy.array(operations, dtype=numpy.float64),
               "changes": numpy.array(CHANGES, dtype=numpy.float64)}
    for name, pixels in pictures():
        image = Image.fromarray(pixels.astype(numpy.uint8))
        tensors[f"{name}.source"] = planes(image)
        tensors[f"{name}.operations"] = numpy.stack(
            [planes(operate(image, *operation)) for operation in operations])
        tensors[f"{name}.changes"] = numpy.stack(
            [planes(FUNCTIONS[kind](image, amount)) for kind, amount in CHANGES])
    save_file(tensors, pathlib.Path(__file__).with_name("policy.safetensors"))


if __name__ == "__main__":
    main()
