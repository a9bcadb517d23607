# SPDX-License-Identifier: BSD-3-Clause
"""A pair of images mixed by torchvision.transforms.v2's MixUp and CutMix.

Writes mix.safetensors beside this script. Parameters of a case: the share that was drawn, and the
middle of CutMix's rectangle (x, y).
"""
import pathlib
from unittest import mock

import numpy
from safetensors.numpy import save_file
import torch
from torchvision.transforms import v2

CLASSES, HEIGHT, WIDTH = 7, 12, 20
MIXUP = [(0.0, 0, 0), (0.3, 0, 0), (0.5, 0, 0), (0.875, 0, 0), (1.0, 0, 0)]
CUTMIX = [(0.0, 10, 6), (0.3, 3, 11), (0.3, 19, 0), (0.51, 9, 5), (0.9, 0, 0), (0.999, 5, 5), (1.0, 2, 2)]


def mixed(transform, case, images, labels):
    share, x, y = case
    transform._dist = mock.Mock(sample=lambda shape: torch.tensor([share], dtype=torch.float64))
    with mock.patch("torch.randint", side_effect=[torch.tensor([x]), torch.tensor([y])]):
        return transform(images, labels)


def main():
    random = numpy.random.default_rng(4)
    images = torch.from_numpy(random.normal(size=(2, 3, HEIGHT, WIDTH)).astype(numpy.float32))
    labels = torch.tensor([5, 2])
    tensors = {"images": images.numpy(), "labels": labels.numpy().astype(numpy.int32)}
    for name, transform, cases in (("mixup", v2.MixUp(num_classes=CLASSES), MIXUP),
                                   ("cutmix", v2.CutMix(num_classes=CLASSES), CUTMIX)):
        results = [mixed(transform, case, images, labels) for case in cases]
        tensors[f"{name}.parameters"] = numpy.array(cases, dtype=numpy.float64)
        tensors[f"{name}.images"] = torch.stack([result[0] for result in results]).numpy()
        tensors[f"{name}.targets"] = torch.stack([result[1] for result in results]).numpy()
    save_file(tensors, pathlib.Path(__file__).with_name("mix.safetensors"))


if __name__ == "__main__":
    main()
