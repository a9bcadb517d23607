# SPDX-License-Identifier: BSD-3-Clause
"""Writes range_test.txt: the curve of the learning-rate range test as PyTorch makes it, for test_find_lr.sh.

The loop is the one that fastai's author published with his explanation of it (and the reference notebook copied):
exponential rates, the loss smoothed with a correction of its start, an end where that is more than STOP times the
lowest. Model, images and weights are those of make_trajectory.py, the losses computed in double precision; in single
precision PyTorch must come out near enough for the comparison to be one of programs and not of rounding.

Each line: step, rate, loss, smoothed loss; the last line: "end" and the rate at which the test ended.

Needs torch, timm, safetensors. Run it in this directory after make_trajectory.py.
"""

import copy

import torch
from make_models import timm_model
from make_trajectory import BATCH, RECORDS, SHAPE, read_records
from safetensors.torch import load_file
from torch import nn

FIRST, LAST, STEPS, BETA, STOP = 1e-5, 10.0, 60, 0.9, 1.5


def range_test(model, images, labels):
    optimizer = torch.optim.SGD(model.parameters(), lr=FIRST, momentum=0.9)
    factor = (LAST / FIRST) ** (1 / (STEPS - 1))
    average, best, rate, curve = 0.0, 0.0, FIRST, []
    steps_per_epoch = -(-RECORDS // BATCH)
    for step in range(1, STEPS + 1):
        begin = (step - 1) % steps_per_epoch * BATCH
        batch = slice(begin, min(begin + BATCH, RECORDS))
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
        average = BETA * average + (1 - BETA) * loss.item()
        smoothed = average / (1 - BETA**step)
        if step > 1 and smoothed > STOP * best:
            break
        if smoothed < best or step == 1:
            best = smoothed
        curve.append((step, rate, loss.item(), smoothed))
        loss.backward()
        optimizer.step()
        rate *= factor
    return curve, rate


def main():
    torch.set_num_threads(1)
    model = timm_model(**SHAPE)
    model.load_state_dict(load_file("trajectory.safetensors"))
    images, labels = read_records()
    curve, end = range_test(copy.deepcopy(model).double(), images, labels)
    single, _ = range_test(copy.deepcopy(model), images.float(), labels)
    gap = max(abs(a[2] - b[2]) / b[2] for a, b in zip(single, curve))
    print(f"{len(curve)} points, loss {curve[0][2]:.4f} to {curve[-1][2]:.4f}, ended at {end:.3g}; "
          f"PyTorch's own losses in single precision are {gap:.1e} off at most")
    assert len(curve) == len(single) < STEPS
    assert gap < 3e-6, "rounding grows: choose an earlier end"
    with open("range_test.txt", "w") as file:
        file.writelines(f"{step} {rate:.9g} {loss:.9g} {smoothed:.9g}\n" for step, rate, loss, smoothed in curve)
        file.write(f"end {end:.9g}\n")


if __name__ == "__main__":
    main()
