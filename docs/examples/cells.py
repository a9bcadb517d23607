#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Draw images of cells in a fluorescence microscope and write them to an HDF5 file with the class of each pixel.

    python3 cells.py [FILE]

Cells are ellipses of different brightness, which overlap. The illumination is uneven; the image is blurred and has the noise
of photons and of the camera. /images: uint16 [N, H, W]; /labels: uint8 [N, H, W], background, cell (inside) and border.
Prints the intersection over union of a threshold (Otsu's method, computed for each image) for the last tenth of the images.
"""
import argparse

import h5py
import numpy

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("file", nargs="?", default="cells.h5")
parser.add_argument("--images", type=int, default=1000)
parser.add_argument("--size", type=int, default=64, help="height and width in pixels")
args = parser.parse_args()

size = args.size
y, x = numpy.mgrid[:size, :size]
classes = ["background", "cell", "border"]


def blur(image, sigma):
    frequency = numpy.fft.fftfreq(size) ** 2
    transfer = numpy.exp(-2 * (numpy.pi * sigma) ** 2 * (frequency[:, None] + frequency))
    return numpy.fft.ifft2(numpy.fft.fft2(image) * transfer).real


def inside(numbers):
    """True where the four neighbours of a pixel have its number."""
    same = numpy.ones(numbers.shape, bool)
    for axis in (-2, -1):
        equal = numpy.diff(numbers, axis=axis) == 0
        for at in (0, size - 1):
            same &= numpy.insert(equal, at, True, axis=axis)
    return same


def classes_of(numbers):
    return numpy.where(numbers == 0, 0, numpy.where(inside(numbers), 1, 2)).astype("u1")


def draw(random):
    """Return an image and the classes of its pixels. A later cell covers the earlier ones in the labels."""
    numbers, light = numpy.zeros((size, size), int), numpy.zeros((size, size))
    for number in range(1, random.integers(6, 13)):
        centre, radii, angle = random.uniform(0, size, 2), random.uniform(5, 10, 2), random.uniform(0, numpy.pi)
        along = (x - centre[0]) * numpy.cos(angle) + (y - centre[1]) * numpy.sin(angle)
        across = (y - centre[1]) * numpy.cos(angle) - (x - centre[0]) * numpy.sin(angle)
        cell = (along / radii[0]) ** 2 + (across / radii[1]) ** 2 < 1
        texture = 1 + 1.5 * blur(random.standard_normal((size, size)), 1.5)
        light = light + cell * texture * random.uniform(0.3, 1)
        numbers[cell] = number
    direction = random.uniform(0, 2 * numpy.pi)
    across = ((x - size / 2) * numpy.cos(direction) + (y - size / 2) * numpy.sin(direction)) / size
    illumination, haze = 1 + 0.8 * across, 0.4 + 0.4 * across
    photons = random.poisson(100 * numpy.maximum(blur(illumination * light, 1.2) + haze, 0))
    image = 100 + 2 * photons + random.normal(0, 10, (size, size))
    return numpy.clip(image, 0, 65535).astype("u2"), classes_of(numbers)


def otsu(image):
    """The threshold that maximizes the variance between the two classes of pixels."""
    counts, edges = numpy.histogram(image, 128)
    centres = (edges[1:] + edges[:-1]) / 2
    below, sums = numpy.cumsum(counts)[:-1], numpy.cumsum(counts * centres)[:-1]
    above, total = counts.sum() - below, (counts * centres).sum()
    return edges[1 + numpy.argmax(below * above * (sums / below - (total - sums) / above) ** 2)]


def iou(predicted, labels):
    pairs = [(predicted == number, labels == number) for number in range(len(classes))]
    return [(a & b).sum() / (a | b).sum() for a, b in pairs]


random = numpy.random.default_rng(1)
images, labels = (numpy.stack(parts) for parts in zip(*(draw(random) for _ in range(args.images))))
with h5py.File(args.file, "w") as file:
    for name, values in (("images", images), ("labels", labels)):
        file.create_dataset(name, data=values, chunks=(1, size, size), shuffle=True, compression="gzip")
    file["labels"].attrs["class_names"] = classes

held_out = slice(args.images - args.images // 10, None)
threshold = classes_of(numpy.stack([image > otsu(image) for image in images[held_out]]).astype(int))
values = iou(threshold, labels[held_out])
print("Otsu's threshold: IoU", *(f"{name} {value:.3f}" for name, value in zip(classes, values)), f"mean {numpy.mean(values):.3f}")
