#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Draw one forecast: the input, the target, the prediction and its error, with one colour scale.

    python3 plot_forecast.py FILE.nc FORECAST.nc [--variable vorticity] [--lead 2] [--sample 0] [--output forecast.png]

FORECAST.nc is the output of `vittrain predict` for FILE.nc. Prints the RMSE of all its forecasts and of persistence.
"""
import argparse

import h5py
import matplotlib
import numpy

matplotlib.use("Agg")
from matplotlib import pyplot

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("file")
parser.add_argument("forecast")
parser.add_argument("--variable", default="vorticity")
parser.add_argument("--lead", type=int, default=2, help="K of data.y=VARIABLE@+K")
parser.add_argument("--sample", type=int, default=0)
parser.add_argument("--output", default="forecast.png")
args = parser.parse_args()

with h5py.File(args.file) as file, h5py.File(args.forecast) as forecast:
    values, predicted = file[args.variable][:], forecast[args.variable][:]
inputs, targets = values[: -args.lead], values[args.lead :]
for name, error in (("persistence", inputs - targets), ("model", predicted - targets)):
    print(f"RMSE of {name}: {numpy.sqrt(numpy.mean(error**2)):.3f}")

shown = {"input": inputs, "target": targets, "prediction": predicted, "error": predicted - targets}
largest = abs(targets[args.sample]).max()
figure, axes = pyplot.subplots(1, 4, figsize=(10, 2.8), layout="constrained")
for axis, (title, fields) in zip(axes, shown.items()):
    image = axis.imshow(fields[args.sample], cmap="RdBu_r", vmin=-largest, vmax=largest, origin="lower")
    axis.set(title=title, xticks=[], yticks=[])
figure.colorbar(image, ax=axes, label=args.variable)
figure.savefig(args.output, dpi=100)
