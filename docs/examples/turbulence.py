#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Simulate two-dimensional decaying turbulence and write one NetCDF-4 file per run: FOLDER/train/*.nc and FOLDER/val/*.nc.

    python3 turbulence.py [FOLDER]

The vorticity w of an incompressible flow in a periodic square is advected by its own velocity (u, v) and diffuses:
    dw/dt + u dw/dx + v dw/dy = nu (d2w/dx2 + d2w/dy2),  u = -dp/dy, v = dp/dx, where p solves d2p/dx2 + d2p/dy2 = w
Method: pseudo-spectral, 2/3 dealiasing, fourth-order Runge-Kutta. The side of the square is 2 pi; the root mean square of
the initial velocity is 1. Each variable is float32 [time, y, x], with shuffle and deflate.
"""
import argparse
import os

import h5py
import numpy

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("folder", nargs="?", default="turbulence")
parser.add_argument("--size", type=int, default=64, help="grid points along each side")
parser.add_argument("--runs", type=int, default=80, help="training runs")
parser.add_argument("--held-out", type=int, default=8, help="validation runs")
parser.add_argument("--times", type=int, default=21, help="written times of each run")
parser.add_argument("--interval", type=float, default=0.5, help="time between two written fields")
parser.add_argument("--viscosity", type=float, default=4e-3)
parser.add_argument("--step", type=float, default=0.025, help="largest time step")
args = parser.parse_args()

size = args.size
kx = numpy.arange(size // 2 + 1, dtype="f4")
ky = numpy.fft.fftfreq(size, 1 / size).astype("f4")[:, None]
k2 = kx**2 + ky**2
inverse_k2 = numpy.where(k2 > 0, 1 / numpy.maximum(k2, 1), 0)
resolved = (kx < size / 3) & (abs(ky) < size / 3) & (k2 > 0)


def to_grid(spectrum):
    return numpy.fft.irfft2(spectrum, (size, size))


def velocity(vorticity):
    return to_grid(1j * ky * inverse_k2 * vorticity), to_grid(-1j * kx * inverse_k2 * vorticity)


def tendency(vorticity):
    (u, v), w = velocity(vorticity), to_grid(vorticity)
    advection = 1j * kx * numpy.fft.rfft2(u * w) + 1j * ky * numpy.fft.rfft2(v * w)
    return resolved * (-advection - args.viscosity * k2 * vorticity)


def runge_kutta(w, dt):
    a = tendency(w)
    b = tendency(w + dt / 2 * a)
    c = tendency(w + dt / 2 * b)
    return w + dt / 6 * (a + 2 * b + 2 * c + tendency(w + dt * c))


def initial(random):
    """Vorticity with random phases and energy around wave number 3."""
    w = resolved * numpy.fft.rfft2(random.standard_normal((size, size), dtype="f4")) * k2 * numpy.exp(-k2 / 8)
    return w / numpy.sqrt(sum(numpy.mean(x**2) for x in velocity(w)))


def write(path, fields):
    grid = numpy.arange(size) * 2 * numpy.pi / size
    scales = {"time": numpy.arange(args.times) * args.interval, "y": grid, "x": grid}
    with h5py.File(path, "w") as file:
        for name, values in scales.items():
            file[name] = values
            file[name].make_scale(name)
        for name, values in fields.items():
            variable = file.create_dataset(name, data=values, chunks=(1, size, size), shuffle=True, compression="gzip")
            for dimension, scale in zip(variable.dims, scales):
                dimension.attach_scale(file[scale])


random = numpy.random.default_rng(1)
for split, runs in (("train", args.runs), ("val", args.held_out)):
    os.makedirs(f"{args.folder}/{split}", exist_ok=True)
    for number in range(runs):
        w, steps, fields = initial(random), int(numpy.ceil(args.interval / args.step)), {"vorticity": [], "u": [], "v": []}
        for _ in range(args.times):
            for name, values in zip(fields, (to_grid(w), *velocity(w))):
                fields[name].append(values.astype("f4"))
            for _ in range(steps):
                w = runge_kutta(w, args.interval / steps)
        write(f"{args.folder}/{split}/run{number:02d}.nc", fields)
