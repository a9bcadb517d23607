# SPDX-License-Identifier: BSD-3-Clause
"""Trains convolutional models with the program and with PyTorch (torchvision's modules, and the obvious
ones), from the same weights on the same images: losses, weights and running statistics after some steps, and
the loss of an evaluation, must be those of PyTorch in double precision. Losses may differ by five times
as much as those of PyTorch in fp32, or from weights perturbed by the rounding of fp32.

    check_convnets.py VITTRAIN SAMPLE FOLDER
"""
import copy
import os
import statistics
import sys

import torch
import torchvision
from safetensors.torch import load_file
from torch.nn import functional

from support import EXACT, NOT_AUGMENTED, cifar_part, losses_of, run, save_weights
import reference_cnn

TRAINING, TESTS, BATCH = 40, 20, 10
PERTURBED = 3  # trainings in PyTorch from weights that differ by the rounding of fp32
RATE, MOMENTUM, DECAY = 1e-3, 0.9, 1e-2
CASES = {
    "cnn_a": lambda: reference_cnn.CnnA(),
    "cnn_a_lenet": lambda: reference_cnn.CnnALeNet(),
    "cnn_b": lambda: reference_cnn.CnnB(),
    "resnet18": lambda: torchvision.models.resnet18(num_classes=10),
    "resnet50": lambda: torchvision.models.resnet50(num_classes=10),
}


def randomize(model):
    """Change running statistics and norms' weights from their defaults, so that errors are detected."""
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.normal_(module.weight, 1, 0.2)
            torch.nn.init.normal_(module.bias, 0, 0.2)
            torch.nn.init.normal_(module.running_mean, 0, 0.5)
            torch.nn.init.uniform_(module.running_var, 0.5, 2)


def steps_of(name):
    """With images of 32 pixels the last stage of a deep ResNet normalises ten values per channel: a rounding error in the
    weights changes the second loss of ResNet-50 by 0.3."""
    return 1 if name.startswith("resnet") else 4


def perturb(model, seed):
    """Multiply the weights by random factors as far from 1 as fp32 rounds."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1 + 1.2e-7 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    return model


def train(model, images, labels, steps):
    losses = []
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM, weight_decay=DECAY)
    model.train()
    for step in range(steps):
        part = slice(step * BATCH, (step + 1) * BATCH)
        loss = functional.cross_entropy(model(images[part]), labels[part])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def tensors(model):
    return {name: tensor.detach().clone().contiguous() for name, tensor in model.state_dict().items()}


def run_program(vittrain, folder, name, data):
    where = os.path.join(folder, name)
    run(vittrain, *EXACT, *NOT_AUGMENTED, f"model.name={name}", "model.image=32",
        f"data.root={data}", f"model.init={folder}/{name}.safetensors", "augment.mean=0.5", "augment.std=0.5", f"train.batch={BATCH}",
        f"train.steps={steps_of(name)}", f"optim.lr={RATE}", f"optim.momentum={MOMENTUM}",
        f"optim.weight_decay={DECAY}", f"run.dir={where}")
    return losses_of(where), losses_of(where, "val")[-1], load_file(os.path.join(where, "weights.safetensors"))


def test_loss_of(model, images, labels):
    model.eval()
    with torch.no_grad():
        return functional.cross_entropy(model(images), labels).item()


def error_of(found, expected, start):
    """Return the relative error, in the 2-norm, of the change of a tensor since the start."""
    rounding = 1e-6 * expected.norm()
    return ((found.double() - expected).norm() / ((expected - start).norm() + rounding)).item()


def check(vittrain, folder, name, sets, data):
    torch.manual_seed(sum(map(ord, name)))
    model = CASES[name]().to(memory_format=torch.channels_last)
    randomize(model)
    start = tensors(model)
    save_weights(model, os.path.join(folder, f"{name}.safetensors"))
    # Training and test losses and weights in double precision, in fp32, and in double precision from perturbed weights.
    results = []
    for kind in range(2 + PERTURBED):
        double = kind != 1
        trained = copy.deepcopy(model).double() if double else copy.deepcopy(model)
        if kind > 1:
            perturb(trained, kind)
        training, tests = [(images if double else images.float(), labels) for images, labels in sets]
        losses = train(trained, *training, steps_of(name))
        results.append((losses + [test_loss_of(trained, *tests)], tensors(trained)))
    (expected_losses, expected), others = results[0], results[1:]
    losses, test_loss, weights = run_program(vittrain, folder, name, data)
    for n, (found, wanted) in enumerate(zip(losses + [test_loss], expected_losses, strict=True)):
        usual = max(abs(other[n] - wanted) for other, _ in others)
        assert abs(found - wanted) < 2e-5 * wanted + 5 * usual, (name, n, found, [result[0][n] for result in results])
    names = {key for key in expected if not key.endswith("num_batches_tracked")}
    assert set(weights) == names, set(weights) ^ names
    changes = [{key: error_of(result[key], expected[key], start[key].double()) for key in names}
               for result in [weights] + [other for _, other in others]]
    wrong, usual = changes[0], {key: max(change[key] for change in changes[1:]) for key in names}
    # A rounding error that changes the sign of an input of a ReLU changes the gradients of some channels.
    for key in names:
        assert wrong[key] < 0.2 + 5 * usual[key], (name, key, wrong[key], usual[key])
    median = statistics.median(wrong.values())
    assert median < 1e-2 + 5 * statistics.median(usual.values()), (name, median, wrong)
    print(f"{name}: losses {losses}, expected {expected_losses}, "
          f"changes wrong by {median:.1e}, at most {max(wrong.values()):.1e}")


def main():
    vittrain, sample, folder = sys.argv[1:4]
    torch.set_num_threads(1)
    data = os.path.join(folder, "cifar10")
    sets = [((torch.from_numpy(images).double() / 255 - 0.5) / 0.5, torch.from_numpy(labels))
            for images, labels in cifar_part(sample, data, {"data_batch_1.bin": TRAINING, "test_batch.bin": TESTS})]
    for name in sys.argv[4:] or CASES:
        check(vittrain, folder, name, sets, data)


main()
