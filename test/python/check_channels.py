# SPDX-License-Identifier: BSD-3-Clause
"""Initializes models of other numbers of input channels with weights for three, and compares the first layer with
timm's adapt_input_conv.

    check_channels.py VITTRAIN FOLDER
"""
import sys

import timm
import torch
from safetensors.torch import load_file
from timm.models._manipulate import adapt_input_conv

from support import run, save_weights

MODELS = {"vit_tiny_patch16_224": ("patch_embed.proj.weight", dict(img_size=32, depth=1),
                                   ["model.image=32", "model.depth=1"]),
          "resnet18": ("conv1.weight", {}, ["model.image=64"])}


def first_layer(program, folder, name, channels):
    """The layer after a step that changes nothing in fp32."""
    key, _, shape = MODELS[name]
    where = f"{folder}/{name}-{channels}"
    run(program, "data.format=synthetic", "data.values=float32", "data.samples=16", "data.val=none", f"run.dir={where}",
        f"model.channels={channels}", f"model.name={name}", f"model.init={folder}/three.safetensors", "train.steps=1",
        "train.batch=16", "train.precision=fp32", "optim.lr=1e-30", "optim.weight_decay=0", "output.logbook=", *shape)
    return load_file(f"{where}/weights.safetensors")[key]


def main(program, folder):
    torch.manual_seed(1)
    for name, (key, arguments, _) in MODELS.items():
        model = timm.create_model(name, num_classes=10, **arguments)
        save_weights(model, f"{folder}/three.safetensors")
        for channels in (1, 8):
            layer = first_layer(program, folder, name, channels)
            assert torch.equal(layer, adapt_input_conv(channels, model.state_dict()[key])), (name, channels)
            print(f"{name}, {channels} channels: equal")


if __name__ == "__main__":
    main(*sys.argv[1:])
