# SPDX-License-Identifier: BSD-3-Clause
"""Weights written by the safetensors package for the small model of test/support/model_fixture.c, in every type
that is read, and position embeddings on other grids as timm resizes them.

Writes weights_*.safetensors beside this script. resized.* hold what timm makes of `pos_embed`.
"""
import pathlib

import torch
from safetensors.torch import save_file
from timm.layers import resample_abs_pos_embed

HERE = pathlib.Path(__file__).parent
WIDTH, SIDE, CLASSES, HIDDEN = 8, 4, 3, 5


def weights(side=SIDE, classes=CLASSES, prefix=1, patches=None):
    torch.manual_seed(1)
    return {
        "cls_token": torch.randn(1, 1, WIDTH),
        "pos_embed": torch.randn(1, (patches or side * side) + prefix, WIDTH),
        "patch_embed.proj.weight": torch.randn(WIDTH, 3, 2, 2),
        "patch_embed.proj.bias": torch.randn(WIDTH),
        "blocks.0.mlp.fc1.weight": torch.randn(HIDDEN, WIDTH),
        "blocks.0.mlp.fc1.bias": torch.randn(HIDDEN),
        "norm.weight": torch.randn(WIDTH),
        "head.weight": torch.randn(classes, WIDTH),
        "head.bias": torch.randn(classes),
    }


def save(name, tensors, **metadata):
    save_file(tensors, HERE / f"weights_{name}.safetensors", metadata={"format": "pt", **metadata})


def main():
    save("fp32", weights())
    save("fp64", {name: tensor.double() / 3 for name, tensor in weights().items()})
    small = weights()
    # halves of every kind: zero, subnormal, largest, infinite
    small["head.bias"] = torch.tensor([-0.0, 6e-8, 65504.0])
    small["norm.weight"][:3] = torch.tensor([float("inf"), -float("inf"), 6.1e-5])
    save("fp16", {name: tensor.half() for name, tensor in small.items()})
    save("bf16", {name: tensor.bfloat16() for name, tensor in small.items()})
    for side in (1, 2, 7, 13):
        tensors = weights(side)
        resized = resample_abs_pos_embed(tensors["pos_embed"], [SIDE, SIDE], num_prefix_tokens=1)
        save(f"side{side}", {**tensors, "resized.pos_embed": resized})
    tensors = weights(6, prefix=0)
    resized = resample_abs_pos_embed(tensors["pos_embed"], [SIDE, SIDE], num_prefix_tokens=0)
    save("no_class_token", {**tensors, "resized.pos_embed": resized})
    tensors = weights(7)
    resized = resample_abs_pos_embed(tensors["pos_embed"], [SIDE, 9], num_prefix_tokens=1)
    save("wide", {**tensors, "resized.pos_embed": resized})
    # 9 x 4 patches of 2 x 2 pixels: as many as in the grid of 4 x 9
    tensors = weights(patches=36)
    resized = resample_abs_pos_embed(tensors["pos_embed"], [SIDE, 9], old_size=[9, 4], num_prefix_tokens=1)
    save("high", {**tensors, "resized.pos_embed": resized}, input_size="[3, 18, 8]")
    save("classes", weights(classes=7))
    save("backbone", {name: tensor for name, tensor in weights().items()
                      if name != "pos_embed" and not name.startswith("head.")})


if __name__ == "__main__":
    main()
