# SPDX-License-Identifier: BSD-3-Clause
"""Compares pixels of evaluations by the recipe `photos` with those of timm.data.create_transform, for image
files of all shapes: no level may differ.

    check_evaluation.py TEST_RECIPE FOLDER [SHARE]      (SHARE: 1 of so many files)
"""
import itertools
import subprocess
import sys

import numpy
import timm
import torch
from PIL import Image
from timm.data import create_transform, resolve_data_config

from support import images_in

# timm's tags of torchvision's weights; timm's own weights of a ResNet bring their preprocessing.
MODELS = {"vit_tiny_patch16_224": "vit_tiny_patch16_224", "resnet18": "resnet18.tv_in1k"}
SIZES = (None, (256, 128), (112, 224))  # None: that of the weights


def levels(transform, config, path):
    mean, std = (torch.tensor(config[key]).reshape(3, 1, 1) for key in ("mean", "std"))
    image = transform(Image.open(path).convert("RGB"))
    return ((image * std + mean) * 255).round().numpy().astype(int)


def main():
    program, folder = sys.argv[1:3]
    share = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    files = images_in(folder)[::share]
    worst = 0
    for (name, tag), size in itertools.product(MODELS.items(), SIZES):
        config = resolve_data_config(timm.get_pretrained_cfg(tag).to_dict())
        words = []
        if size is not None:
            config["input_size"] = (3, *size)
            words = [f"model.image={size[0]}", f"model.image_width={size[1]}"]
        transform = create_transform(**config, is_training=False)
        for path in files:
            expected = levels(transform, config, path)
            done = subprocess.run([program, name, str(path), *words], stdout=subprocess.PIPE, check=True)
            pixels = numpy.frombuffer(done.stdout, numpy.uint8).reshape(expected.shape)
            worst = max(worst, int(abs(pixels - expected).max()))
    print(f"{len(files)} images, {len(MODELS)} models, {len(SIZES)} sizes: at most {worst} levels of difference")
    return worst > 0


if __name__ == "__main__":
    sys.exit(main())
