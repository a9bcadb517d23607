# SPDX-License-Identifier: BSD-3-Clause
"""Writes target_loss.safetensors for test_target_loss.c: losses of PyTorch in double precision with float targets.
The loss of a sample is PyTorch's loss of that sample alone with reduction="mean"; missing targets, which are NaN, are
left out before. cross_entropy leaves out the targets that are ignore_index, and its mean is weighted by class.

Needs torch, numpy and safetensors. Run it in this folder.
"""
import numpy
import torch
from safetensors.numpy import save_file
from torch.nn import functional

BATCH, OUTPUTS, HEIGHT, WIDTH = 3, 4, 5, 7
IGNORED = 255

KINDS = {
    "squared": functional.mse_loss,
    "absolute": functional.l1_loss,
    "huber": functional.huber_loss,
    "binary": functional.binary_cross_entropy_with_logits,
}


def sample_loss(name, prediction, target, weights):
    """The loss of a sample; prediction and target are [outputs, height, width], those of classes [height, width]."""
    if name == "cross_entropy":
        labels = torch.where(target.isnan(), IGNORED, target).long()
        return functional.cross_entropy(prediction[None], labels[None], weight=weights, ignore_index=IGNORED)
    known = ~target.isnan()
    if weights is None:
        return KINDS[name](prediction[known], target[known])
    losses = KINDS[name](prediction[known], target[known], reduction="none")
    shares = weights[:, None, None].expand_as(target)[known]
    return (shares * losses).sum() / shares.sum()


def add_case(tensors, name, targets, weights):
    predictions = torch.tensor(tensors["predictions"], dtype=torch.float64, requires_grad=True)
    losses = torch.stack([sample_loss(name, p, t, weights) for p, t in zip(predictions, torch.tensor(targets).double())])
    losses.sum().backward()
    key = name + ("_weights" if weights is not None else "")
    tensors[key + ".losses"] = losses.detach().numpy()
    tensors[key + ".gradient"] = predictions.grad.numpy()


def main():
    random = numpy.random.default_rng(20240617)
    shape = BATCH, OUTPUTS, HEIGHT, WIDTH
    targets = (2 * random.standard_normal(shape)).astype(numpy.float32)
    classes = random.integers(0, OUTPUTS, (BATCH, HEIGHT, WIDTH)).astype(numpy.float32)
    targets[random.random(shape) < 0.2] = numpy.nan
    classes[random.random(classes.shape) < 0.2] = numpy.nan
    tensors = {"predictions": (2 * random.standard_normal(shape)).astype(numpy.float32), "targets": targets,
               "classes": classes, "weights": random.uniform(0.2, 3, OUTPUTS).astype(numpy.float32)}
    for weights in None, torch.tensor(tensors["weights"]).double():
        for name in KINDS:
            add_case(tensors, name, targets, weights)
        add_case(tensors, "cross_entropy", classes, weights)
    save_file(tensors, "target_loss.safetensors")


if __name__ == "__main__":
    main()
