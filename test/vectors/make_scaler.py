#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A run of gradients, some of which are not finite, under PyTorch's GradScaler, clipping and AdamW: what
test/device/test_update.c compares with. Run in this folder; needs torch, numpy and safetensors."""
import numpy
import torch
from safetensors.numpy import save_file

WEIGHTS, TURNS, STEPS, EVERY = 7, 11, 5100, 10
random = numpy.random.default_rng(20261121)

start = random.standard_normal(WEIGHTS).astype(numpy.float32)
gradients = (0.5 * random.standard_normal((TURNS, WEIGHTS))).astype(numpy.float32)
# 0: all finite; else the element that is not, infinite where the number is odd, else NaN.
bad = numpy.zeros(STEPS, numpy.int32)
for step in [0, 1, 2, 7, 8, 30, 1000, 3000, 5001, 5003]:
    bad[step] = 1 + step % WEIGHTS

weights = torch.tensor(start, dtype=torch.float64, requires_grad=True)
optimizer = torch.optim.AdamW([weights], lr=0.01, weight_decay=0.05)
scaler = torch.amp.GradScaler("cpu")
scales, after = [], []
for step in range(STEPS):
    optimizer.zero_grad()
    gradient = torch.tensor(gradients[step % TURNS], dtype=torch.float64)
    if bad[step] > 0:
        gradient[bad[step] % WEIGHTS] = torch.inf if bad[step] % 2 else torch.nan
    scaler.scale((weights * gradient).sum()).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_([weights], 1.0)
    scaler.step(optimizer)
    scaler.update()
    scales.append(scaler.get_scale())
    if (step + 1) % EVERY == 0:
        after.append(weights.detach().numpy().copy())

save_file({"start": start, "gradients": gradients, "bad": bad,
           "scales": numpy.array(scales, numpy.float32), "weights": numpy.stack(after)},
          "device_scaler.safetensors")
