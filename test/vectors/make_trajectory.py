# SPDX-License-Identifier: BSD-3-Clause
"""Writes trajectory.safetensors and a file of losses for each line of RUNS: training a small Vision Transformer with
PyTorch and timm, for test_trajectory.sh: 50 steps with AdamW, 20 with each of timm's optimizers.

The first 200 images of the sample of CIFAR-10, in file order, in batches of 28 (the last of an epoch has 4): cross
entropy with label smoothing, the gradient's norm clipped, AdamW with weight decay, linear warm-up and cosine. The
safetensors file holds the weights at the start (timm's names), the text the step and its loss, one a line. The
losses are computed in double precision; in single precision PyTorch must come out near enough for the test's
comparison to be one of the programs and not of rounding. Muon's iteration has the type of the gradients here.

Needs torch, timm, safetensors. Run it in this directory; the result does not depend on anything but versions.
"""

import copy
import functools
import math

import numpy
import torch
from make_models import randomize, timm_model
from safetensors.torch import save_file
from timm.optim import lamb, lars, lion, muon, param_groups_weight_decay
from torch import nn

SAMPLE = "../../data/cifar-10-sample/data_batch_1.bin"
RECORDS, RECORD_BYTES, BATCH = 200, 3073, 28
RATE, WARMUP, WEIGHT_DECAY, CLIP_NORM, SMOOTHING = 3e-3, 5, 0.05, 2.0, 0.1
SHAPE = dict(image=32, channels=3, patch=8, dim=24, depth=3, heads=3, hidden=96, classes=10, qkv_bias=True,
             class_token=True, pool_mean=False, norm_epsilon=1e-6)


zeropower = muon.zeropower_via_newtonschulz


def read_records():
    with open(SAMPLE, "rb") as file:
        bytes_ = file.read(RECORDS * RECORD_BYTES)
    records = torch.from_numpy(numpy.frombuffer(bytes_, numpy.uint8).reshape(RECORDS, RECORD_BYTES).copy())
    images = (records[:, 1:].reshape(-1, 3, 32, 32).double() / 255 - 0.5) / 0.5
    return images, records[:, 0].long()


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=WEIGHT_DECAY)


def muon_as_adamw(model):
    return muon.Muon(model.parameters(), lr=RATE, weight_decay=WEIGHT_DECAY, momentum=0.95, eps=1e-8)


def groups_without_decay(model, *others):
    return param_groups_weight_decay(model, WEIGHT_DECAY, no_weight_decay_list=("cls_token", "pos_embed"),
                                     fallback_list=others)


def muon_original(model):
    return muon.Muon(groups_without_decay(model, "head.*"), lr=RATE, momentum=0.9, nesterov=True, eps=1e-8,
                     adjust_lr_fn="original")


def lion_(model):
    return lion.Lion(model.parameters(), lr=RATE / 10, weight_decay=10 * WEIGHT_DECAY)


def lamb_(model):
    """Clips the gradient's norm by its own option."""
    return lamb.Lamb(groups_without_decay(model), lr=3 * RATE, max_grad_norm=CLIP_NORM)


def lambc(model):
    return lamb.Lamb(groups_without_decay(model), lr=RATE, betas=(0.8, 0.95), eps=1e-4, trust_clip=True,
                     always_adapt=True, max_grad_norm=None)


def lars_(model):
    return lars.Lars(model.parameters(), lr=1.0, momentum=0.9, weight_decay=WEIGHT_DECAY)


def nlarc(model):
    return lars.Lars(groups_without_decay(model), lr=0.1, momentum=0.8, nesterov=True, trust_clip=True,
                     trust_coeff=0.02, eps=1e-3)


# The file's name, the optimizer, steps.
RUNS = (("trajectory", adamw, 50), ("trajectory_muon", muon_as_adamw, 20), ("trajectory_nmuon", muon_original, 20),
        ("trajectory_lion", lion_, 20), ("trajectory_lamb", lamb_, 20), ("trajectory_lambc", lambc, 20),
        ("trajectory_lars", lars_, 20), ("trajectory_nlarc", nlarc, 20))


def rate_at(rate, step, steps):
    if step < WARMUP:
        return rate * (step + 1) / WARMUP
    return rate * (1 + math.cos(math.pi * (step - WARMUP) / (steps - WARMUP))) / 2


def train(model, make_optimizer, steps, images, labels):
    """The losses, and how many of the gradients were longer than CLIP_NORM."""
    iteration = functools.partial(zeropower, dtype=images.dtype)
    muon.zeropower_via_newtonschulz = iteration
    optimizer = make_optimizer(model)
    losses, clipped = [], 0
    steps_per_epoch = -(-RECORDS // BATCH)
    for step in range(steps):
        begin = step % steps_per_epoch * BATCH
        batch = slice(begin, min(begin + BATCH, RECORDS))
        for group in optimizer.param_groups:
            group["lr"] = rate_at(optimizer.defaults["lr"], step, steps)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images[batch]), labels[batch], label_smoothing=SMOOTHING)
        loss.backward()
        limit = math.inf if optimizer.defaults.get("max_grad_norm") else CLIP_NORM
        clipped += torch.nn.utils.clip_grad_norm_(model.parameters(), limit).item() > CLIP_NORM
        optimizer.step()
        losses.append(loss.item())
    return losses, clipped


def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = timm_model(**SHAPE)
    randomize(model)
    images, labels = read_records()
    save_file({name: tensor.detach().contiguous() for name, tensor in model.state_dict().items()},
              "trajectory.safetensors")
    for name, make_optimizer, steps in RUNS:
        losses, clipped = train(copy.deepcopy(model).double(), make_optimizer, steps, images, labels)
        single, _ = train(copy.deepcopy(model), make_optimizer, steps, images.float(), labels)
        gap = max(abs(a - b) / b for a, b in zip(single, losses))
        print(f"{name}: loss {losses[0]:.6f} to {losses[-1]:.6f}, {clipped} of {steps} gradients clipped; "
              f"PyTorch's own losses in single precision are {gap:.1e} off at most")
        assert 0 < clipped < steps
        assert gap < 3e-6, "rounding grows: choose a tamer model"
        with open(f"{name}.txt", "w") as file:
            file.writelines(f"{step + 1} {loss:.9g}\n" for step, loss in enumerate(losses))


if __name__ == "__main__":
    main()
