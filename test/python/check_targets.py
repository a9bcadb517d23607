# SPDX-License-Identifier: BSD-3-Clause
"""Trains on arrays with targets that are not one class per image, with the program and with PyTorch in double
precision, from the same weights: the losses of eight steps must agree to 1e-4. Each case is one task and loss, with a
Vision Transformer, and some with a ResNet.

    check_targets.py VITTRAIN FOLDER [CASE ...]
"""
import os
import sys

import h5py
import numpy
import torch
import torchvision
from torch.nn import functional

from support import EXACT, losses_of, run, save_weights
import make_convnets
import make_models

STEPS, BATCH, CHANNELS, HEIGHT, WIDTH = 8, 8, 2, 32, 64
SAMPLES, IGNORED = STEPS * BATCH, 9
# Rates of SGD. At a higher rate, rounding errors in the batch norms of a ResNet grow from step to step.
RATES = {"vit_tiny_patch16_224": 1e-2, "resnet18": 1e-4}
VIT = dict(channels=CHANNELS, patch=8, dim=24, depth=2, heads=3, image=HEIGHT, image_width=WIDTH)


def make_arrays():
    """The data sets by their names."""
    random = numpy.random.default_rng(7)
    x = random.standard_normal((SAMPLES, CHANNELS, HEIGHT, WIDTH))
    waves = numpy.cumsum(random.standard_normal((SAMPLES + 3, HEIGHT, WIDTH)), axis=0)
    means = x.mean(axis=(2, 3))
    noise = random.standard_normal((SAMPLES, 3))
    arrays = {
        "x": x + 5,
        "labels": (means[:, :1] + 0.1 * noise > 0).astype("i4"),
        "numbers": 1000 + 50 * noise + 300 * means[:, :1],
        "one": means[:, 0] * 3,
        "other": means[:, 1] - 2,
        "classes": (x[:, 0] > 0).astype("i4") + (x[:, 1] > 0.5),
        "planes": numpy.stack([30 * x[:, 0] + 280, x.sum(axis=1) ** 3], axis=1),
        "wave": waves,
    }
    for name, share in ("x", 0.02), ("numbers", 0.1), ("planes", 0.2):
        arrays[name][random.random(arrays[name].shape) < share] = numpy.nan
    arrays["planes"][3] = numpy.nan
    arrays["classes"][random.random(arrays["classes"].shape) < 0.1] = IGNORED
    return {name: values if values.dtype == "i4" else values.astype("f4") for name, values in arrays.items()}


def normalised(values):
    """Values of shape [samples, outputs, ...], each output with its mean and standard deviation."""
    axes = (0, *range(2, values.ndim))
    mean, std = numpy.nanmean(values, axis=axes, keepdims=True), numpy.nanstd(values, axis=axes, keepdims=True)
    return torch.from_numpy((values - mean) / std)


LOSSES = {
    "squared": functional.mse_loss,
    "absolute": functional.l1_loss,
    "huber": functional.huber_loss,
    "bce": functional.binary_cross_entropy_with_logits,
    "cross_entropy": functional.cross_entropy,
}


def sample_loss(loss, output, target, weights, rows):
    """The weighted mean over the targets of a sample that are not missing; None if there is none."""
    if loss == "cross_entropy":
        known = target != IGNORED
        elements = functional.cross_entropy(output[None], target[None].long().where(known, 0), reduction="none")[0]
        share = torch.ones_like(elements) if weights is None else weights[target.long().where(known, 0)]
    else:
        known = ~target.isnan()
        elements = LOSSES[loss](output, target.nan_to_num(), reduction="none")
        share = torch.ones_like(elements)
        if weights is not None:
            share = share * weights.reshape(-1, *[1] * (target.ndim - 1))
    if rows:
        cosine = torch.cos((torch.arange(HEIGHT) + 0.5 - HEIGHT / 2) * numpy.pi / HEIGHT).double()
        share = share * cosine[:, None]
    share = share * known
    return (share * elements).sum() / share.sum() if known.any() else None


class DenseResNet(make_convnets.DenseResNet):
    """torchvision's ResNet with the forward pass of a dense head."""

    def __init__(self, classes):
        torchvision.models.ResNet.__init__(self, torchvision.models.resnet.BasicBlock, (2, 2, 2, 2))
        self.dense = torch.nn.Conv2d(self.fc.in_features, classes, 1)
        del self.fc, self.avgpool


def make_model(name, outputs, dense):
    torch.manual_seed(3)
    if name == "resnet18":
        model = DenseResNet(outputs) if dense else torchvision.models.resnet18(num_classes=outputs)
        model.conv1 = torch.nn.Conv2d(CHANNELS, 64, 7, 2, 3, bias=False)
        return model
    make = make_models.dense_model if dense else make_models.timm_model
    model = make(hidden=96, classes=outputs, qkv_bias=True, class_token=True, pool_mean=False, norm_epsilon=1e-6, **VIT)
    make_models.randomize(model)
    return model


def pytorch_losses(model, rate, x, y, loss, weights, rows):
    model = model.double().train()
    weights = None if weights is None else torch.tensor(weights).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    losses = []
    for step in range(STEPS):
        first = step * BATCH % len(x)
        outputs = model(x[first:first + BATCH])
        terms = [sample_loss(loss, o, t, weights, rows) for o, t in zip(outputs, y[first:first + BATCH], strict=True)]
        mean = torch.stack([term for term in terms if term is not None]).mean()
        optimizer.zero_grad()
        mean.backward()
        optimizer.step()
        losses.append(mean.item())
    return losses


def program_losses(vittrain, where, file, model, init, options):
    shape = [f"model.{key}={VIT[key]}" for key in ("patch", "dim", "depth", "heads")] if model != "resnet18" else []
    run(vittrain, *EXACT, f"model.name={model}", f"model.init={init}", f"model.image={HEIGHT}",
        f"model.image_width={WIDTH}", *shape, "data.format=arrays", f"data.root={file}", "data.val=none",
        f"train.batch={BATCH}", f"train.steps={STEPS}", f"optim.lr={RATES[model]}", "optim.momentum=0",
        "optim.weight_decay=0", "checkpoint.monitor=none", f"run.dir={where}", *options)
    return losses_of(where)


CASES = {
    "labels": ("labels", "bce", None, False),
    "labels_weights": ("labels", "bce", [0.5, 2, 1], False),
    "numbers": ("numbers", "squared", None, False),
    "numbers_absolute": ("numbers", "absolute", [3, 1, 0.25], False),
    "numbers_huber": ("numbers", "huber", None, False),
    "list": ("one,other", "squared", None, False),
    "classes": ("classes", "cross_entropy", None, False),
    "classes_weights": ("classes", "cross_entropy", [0.3, 1, 2.5], True),
    "planes": ("planes", "squared", None, True),
    "planes_absolute": ("planes", "absolute", [1, 4], False),
    "planes_huber": ("planes", "huber", [0.5, 1], True),
    "later": ("wave@+2", "squared", None, True),
}


# Losses do not depend on the model; a ResNet has each kind of head.
RESNET_CASES = "labels", "numbers_huber", "classes_weights", "later"


def file_of(folder, y):
    """The path of the file with a data set. The wave has more samples than the others."""
    return os.path.join(folder, "wave.h5" if y.startswith("wave") else "arrays.h5")


def case_data(arrays, y):
    """The images and targets of all samples, normalised as the program does it, and data.x."""
    if "@" in y:
        wave = arrays["wave"].astype("f8")
        last = len(wave) - 3
        return (normalised(numpy.stack([wave[:last], wave[1:last + 1]], axis=1)).nan_to_num(),
                normalised(wave[3:, None]), "wave@-1,wave")
    x = normalised(arrays["x"].astype("f8")).nan_to_num()
    if y in ("labels", "classes"):
        return x, torch.from_numpy(arrays[y]).double(), "x"
    parts = [arrays[name].astype("f8") for name in y.split(",")]
    return x, normalised(numpy.stack(parts, axis=1) if len(parts) > 1 else parts[0]), "x"


def check(vittrain, folder, arrays, case, model_name):
    y, loss, weights, rows = CASES[case]
    images, targets, x = case_data(arrays, y)
    dense = targets.ndim > 2
    outputs = 3 if y == "classes" else targets.shape[1]
    model = make_model(model_name, outputs, dense)
    where = os.path.join(folder, f"{case}-{model_name}")
    save_weights(model, f"{where}.safetensors")
    options = [f"data.x={x}", f"data.y={y}", f"train.loss={loss}", f"model.classes={outputs}"]
    options += [f"model.head={'dense' if dense else 'class'}"]
    options += [f"data.task={'classes' if y in ('labels', 'classes') else 'regression'}"]
    if y == "classes":
        options.append(f"train.ignore_label={IGNORED}")
    if weights is not None:
        options.append("train.weights=" + ",".join(map(str, weights)))
    if rows:
        options.append("train.row_weight=latitude")
    expected = pytorch_losses(model, RATES[model_name], images, targets, loss, weights, rows)
    found = program_losses(vittrain, where, file_of(folder, y), model_name, f"{where}.safetensors", options)
    wrong = max(abs(a - b) / b for a, b in zip(found, expected, strict=True))
    print(f"{case} {model_name}: losses differ by {wrong:.1e}; {expected[0]:.6g} to {expected[-1]:.6g}", flush=True)
    assert wrong < 1e-4, (case, found, expected)


def main():
    vittrain, folder = sys.argv[1:3]
    torch.set_num_threads(1)
    os.makedirs(folder, exist_ok=True)
    arrays = make_arrays()
    for name, values in arrays.items():
        with h5py.File(file_of(folder, name), "a") as file:
            file[name] = values
    for case in sys.argv[3:] or CASES:
        for model in RATES:
            if model != "resnet18" or case in RESNET_CASES:
                check(vittrain, folder, arrays, case, model)


main()
