# SPDX-License-Identifier: BSD-3-Clause
"""Writes float32.safetensors and float32.txt: eight steps of training a small Vision Transformer with PyTorch and timm
on records of six channels of float32 with missing values, for test_float32_steps.c. The records are normalised by
their statistics, as numpy computes them, and missing values become 0. The losses are computed in double precision.

Needs torch, timm, safetensors. Run it in this directory; the result does not depend on anything but versions.
"""

import numpy
import torch
from make_models import randomize, timm_model
from safetensors.torch import save_file
from torch import nn

RECORDS, CHANNELS, SIDE, CLASSES, BATCH, STEPS, RATE = 32, 6, 16, 4, 16, 8, 3e-3


def make_records():
    """The same numbers as value_at of test_float32_steps.c."""
    record, channel, pixel = numpy.ogrid[:RECORDS, :CHANNELS, : SIDE * SIDE]
    number = (record * 7919 + pixel * 104729 + channel * 31 + record * pixel % 13) % 1009
    values = (number / 1009.0).astype(numpy.float32) * (10.0 ** (channel - 2.0)).astype(numpy.float32)
    values = (values + (channel * 25).astype(numpy.float32)).astype(numpy.float32)
    values[number % 50 == 0] = numpy.nan
    return values


def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = timm_model(image=SIDE, channels=CHANNELS, patch=4, dim=24, depth=2, heads=3, hidden=96, classes=CLASSES,
                       qkv_bias=True, class_token=True, pool_mean=False, norm_epsilon=1e-6)
    randomize(model)
    save_file({name: tensor.detach().contiguous() for name, tensor in model.state_dict().items()},
              "float32.safetensors")
    values = make_records().astype(numpy.float64)
    mean = numpy.nanmean(values, axis=(0, 2), keepdims=True)
    std = numpy.nanstd(values, axis=(0, 2), keepdims=True)
    images = torch.from_numpy(numpy.nan_to_num((values - mean) / std)).reshape(RECORDS, CHANNELS, SIDE, SIDE)
    labels = torch.arange(RECORDS) * 7 % CLASSES
    model = model.double()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.05)
    with open("float32.txt", "w") as file:
        for step in range(STEPS):
            batch = slice(step % 2 * BATCH, step % 2 * BATCH + BATCH)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
            file.write(f"{step + 1} {loss.item():.9g}\n")
            print(step + 1, loss.item())


if __name__ == "__main__":
    main()
