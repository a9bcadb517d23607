#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Vectors for the tests of device operations that have a truth outside: the optimizers of PyTorch and timm,
cross-entropy, Pillow's resizing. Run in this folder; needs torch, pillow, numpy and
safetensors. The tests have tables of their own with the same names and settings."""
import numpy
import torch
from PIL import Image
from safetensors.numpy import save_file
from timm.optim.lamb import Lamb
from timm.optim.lars import Lars
from timm.optim.lion import Lion

random = numpy.random.default_rng(20240611)

# name: optimizer, its arguments. Two groups of parameters: the second has no decay and half the
# rate. max_norm 0: no clipping.
UPDATES = {
    "sgd": (torch.optim.SGD, dict(lr=0.1), 0),
    "sgd_decay": (torch.optim.SGD, dict(lr=0.1, weight_decay=0.05), 0),
    "sgd_momentum": (torch.optim.SGD, dict(lr=0.05, momentum=0.9, weight_decay=0.01), 0),
    "sgd_nesterov": (torch.optim.SGD, dict(lr=0.05, momentum=0.8, nesterov=True, weight_decay=0.01), 1.5),
    "adam": (torch.optim.Adam, dict(lr=0.01), 0),
    "adam_decay": (torch.optim.Adam, dict(lr=0.02, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1), 2.0),
    "adamw": (torch.optim.AdamW, dict(lr=0.01, weight_decay=0.05), 1.0),
    "adamw_other": (torch.optim.AdamW, dict(lr=0.1, betas=(0.5, 0.9), eps=1e-6, weight_decay=0.3), 0),
    "rmsprop": (torch.optim.RMSprop, dict(lr=0.01), 0),
    "rmsprop_momentum": (torch.optim.RMSprop,
                         dict(lr=0.01, alpha=0.9, eps=1e-5, momentum=0.9, weight_decay=0.1), 3.0),
    "lion": (Lion, dict(lr=0.01), 0),
    "lion_decay": (Lion, dict(lr=0.02, betas=(0.8, 0.95), weight_decay=0.3), 2.0),
    "lamb": (Lamb, dict(lr=0.02, weight_decay=0.1, max_grad_norm=None), 0),
    "lamb_clip": (Lamb, dict(lr=0.1, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.3, trust_clip=True, always_adapt=True,
                             max_grad_norm=None), 2.0),
    "lars": (Lars, dict(lr=0.5, weight_decay=0.1), 0),
    "lars_momentum": (Lars, dict(lr=5.0, momentum=0.9, weight_decay=0.05, trust_coeff=0.01), 1.5),
    "lars_clip": (Lars, dict(lr=0.05, momentum=0.8, nesterov=True, weight_decay=0.1, trust_coeff=0.03, eps=1e-2,
                             trust_clip=True, always_adapt=True), 0),
}
STEPS, FIRST, COUNT = 5, 21, 45


def updates():
    start = random.standard_normal(COUNT).astype(numpy.float32)
    gradients = random.standard_normal((STEPS, COUNT)).astype(numpy.float32)
    tensors = {"start": start, "gradients": gradients}
    for name, (optimizer_type, settings, max_norm) in UPDATES.items():
        first = torch.tensor(start[:FIRST], dtype=torch.float64, requires_grad=True)
        second = torch.tensor(start[FIRST:], dtype=torch.float64, requires_grad=True)
        optimizer = optimizer_type(
            [{"params": [first]},
             {"params": [second], "lr": settings["lr"] / 2, "weight_decay": 0}], **settings)
        after = []
        for step in range(STEPS):
            first.grad = torch.tensor(gradients[step, :FIRST], dtype=torch.float64)
            second.grad = torch.tensor(gradients[step, FIRST:], dtype=torch.float64)
            if max_norm > 0:
                torch.nn.utils.clip_grad_norm_([first, second], max_norm)
            optimizer.step()
            after.append(torch.cat([first, second]).detach().numpy().copy())
        tensors[name] = numpy.stack(after)
    save_file(tensors, "device_update.safetensors")


def loss_case(tensors, name, logits, target, smoothing):
    logits = torch.tensor(logits, dtype=torch.float64, requires_grad=True)
    losses = torch.nn.functional.cross_entropy(logits, target, label_smoothing=smoothing,
                                               reduction="none")
    losses.sum().backward()
    tensors[name + ".losses"] = losses.detach().numpy()
    tensors[name + ".gradient"] = logits.grad.numpy()


def binary_case(tensors, name, logits, target, smoothing, reduction):
    logits = torch.tensor(logits, dtype=torch.float64, requires_grad=True)
    classes = logits.shape[1]
    if target.dtype == torch.int64:  # as timm.loss.BinaryCrossEntropy
        target = torch.nn.functional.one_hot(target, classes).double() * (1 - smoothing) + smoothing / classes
    losses = torch.nn.functional.binary_cross_entropy_with_logits(logits, target, reduction="none")
    losses = losses.mean(dim=1) if reduction == "mean" else losses.sum(dim=1)
    losses.sum().backward()
    tensors[name + ".losses"] = losses.detach().numpy()
    tensors[name + ".gradient"] = logits.grad.numpy()


def losses():
    batch, classes = 9, 13
    logits = (4 * random.standard_normal((batch, classes))).astype(numpy.float32)
    labels = random.integers(0, classes, batch).astype(numpy.int32)
    targets = random.dirichlet(numpy.ones(classes), batch).astype(numpy.float32)
    targets[0] = 0
    targets[0, 3] = 1
    tensors = {"logits": logits, "labels": labels, "targets": targets}
    labels = torch.tensor(labels, dtype=torch.int64)
    loss_case(tensors, "labels", logits, labels, 0.0)
    loss_case(tensors, "smooth", logits, labels, 0.1)
    loss_case(tensors, "targets", logits, torch.tensor(targets, dtype=torch.float64), 0.0)
    binary_case(tensors, "binary", logits, labels, 0.1, "mean")
    binary_case(tensors, "binary_sum", logits, torch.tensor(targets, dtype=torch.float64), 0.0, "sum")
    save_file(tensors, "device_loss.safetensors")


# (source height, width) -> (height, width). None gets much less high than wide: there Pillow 13 does
# the vertical pass first, where all versions before, and the program, begin with the horizontal one.
RESIZES = [((32, 32), (224, 224)), ((224, 224), (32, 32)), ((37, 29), (50, 61)), ((50, 61), (37, 29)),
           ((20, 16), (20, 40)), ((20, 16), (7, 16)), ((1, 1), (3, 5)), ((19, 23), (1, 1)),
           ((9, 100), (70, 13))]


def resizes():
    tensors = {}
    for i, (source_size, size) in enumerate(RESIZES):
        source = random.integers(0, 256, source_size).astype(numpy.uint8)
        source[random.random(source_size) < 0.2] = 255
        resized = Image.fromarray(source).resize(size[::-1], Image.BILINEAR)
        tensors[f"source{i}"] = source
        tensors[f"expected{i}"] = numpy.asarray(resized)
    save_file(tensors, "device_resize.safetensors")


updates()
losses()
resizes()
