# SPDX-License-Identifier: BSD-3-Clause
"""Writes trajectory.safetensors and trajectory.txt: the loss of each of 50 steps of training a small Vision
Transformer with PyTorch and timm, for test_trajectory.sh.

The first 200 images of the sample of CIFAR-10, in file order, in batches of 28 (the last of an epoch has 4): cross
entropy with label smoothing, the gradient's norm clipped, AdamW with weight decay, linear warm-up and cosine. The
safetensors file holds the weights at the start (timm's names), the text the step and its loss, one a line. The
losses are computed in double precision; in single precision PyTorch must come out near enough for the test's
comparison to be one of the programs and not of rounding.

Needs torch, timm, safetensors. Run it in this directory; the result does not depend on anything but versions.
"""

import copy
import math

import numpy
import torch
from make_models import randomize, timm_model
from safetensors.torch import save_file
from torch import nn

SAMPLE = "../../data/cifar-10-sample/data_batch_1.bin"
RECORDS, RECORD_BYTES, BATCH, STEPS = 200, 3073, 28, 50
RATE, WARMUP, WEIGHT_DECAY, CLIP_NORM, SMOOTHING = 3e-3, 5, 0.05, 2.0, 0.1
SHAPE = dict(image=32, channels=3, patch=8, dim=24, depth=3, heads=3, hidden=96, classes=10, qkv_bias=True,
             class_token=True, pool_mean=False, norm_epsilon=1e-6)


def read_records():
    with open(SAMPLE, "rb") as file:
        bytes_ = file.read(RECORDS * RECORD_BYTES)
    records = torch.from_numpy(numpy.frombuffer(bytes_, numpy.uint8).reshape(RECORDS, RECORD_BYTES).copy())
    images = (records[:, 1:].reshape(-1, 3, 32, 32).double() / 255 - 0.5) / 0.5
    return images, records[:, 0].long()


def rate_at(step):
    if step < WARMUP:
        return RATE * (step + 1) / WARMUP
    return RATE * (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP))) / 2


def train(model, images, labels):
    """The losses, and how many of the gradients were longer than CLIP_NORM."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=WEIGHT_DECAY)
    losses, clipped = [], 0
    steps_per_epoch = -(-RECORDS // BATCH)
    for step in range(STEPS):
        begin = step % steps_per_epoch * BATCH
        batch = slice(begin, min(begin + BATCH, RECORDS))
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images[batch]), labels[batch], label_smoothing=SMOOTHING)
        loss.backward()
        clipped += torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM).item() > CLIP_NORM
        optimizer.step()
        losses.append(loss.item())
    return losses, clipped


def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = timm_model(**SHAPE)
    randomize(model)
    images, labels = read_records()
    losses, clipped = train(copy.deepcopy(model).double(), images, labels)
    single, _ = train(copy.deepcopy(model), images.float(), labels)
    gap = max(abs(a - b) / b for a, b in zip(single, losses))
    print(f"loss {losses[0]:.6f} to {losses[-1]:.6f}, {clipped} of {STEPS} gradients clipped; "
          f"PyTorch's own losses in single precision are {gap:.1e} off at most")
    assert 0 < clipped < STEPS
    assert gap < 3e-6, "rounding grows: choose a tamer model"
    save_file({name: tensor.detach().contiguous() for name, tensor in model.state_dict().items()},
              "trajectory.safetensors")
    with open("trajectory.txt", "w") as file:
        file.writelines(f"{step + 1} {loss:.9g}\n" for step, loss in enumerate(losses))


if __name__ == "__main__":
    main()
