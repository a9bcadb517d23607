# SPDX-License-Identifier: BSD-3-Clause
"""Samples per second, and per second of CPU time, of a data set in h5py and DataLoader: each worker opens the file and
reads sample after sample in random order. Prints rows of the benchmarks' CSV, for comparison with bench_input.
With --make: writes the files of arrays.sh instead."""

import argparse
import os

from bench_common import print_row
from pytorch_input import endless, measure

LAYOUTS = {"contiguous": {}, "chunks of 1 + deflate": dict(chunk=1), "chunks of 16 + deflate": dict(chunk=16),
           "chunks of 16 + shuffle + deflate": dict(chunk=16, shuffle=True)}


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", help="a file with /x [N, C, H, W] and /y [N]; with --make: a folder")
    parser.add_argument("--make", type=int, default=0, metavar="SAMPLES")
    parser.add_argument("--name", default="", help="of the layout")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3)
    return parser.parse_args()


def make(folder, count):
    """Smooth fields with noise in the lower bits, as simulations write them: deflate saves about a quarter."""
    import h5py
    import numpy
    generator = numpy.random.default_rng(1)
    rows, columns = numpy.mgrid[0:128, 0:128] * (2 * numpy.pi / 128)
    for number, (name, layout) in enumerate(LAYOUTS.items()):
        with h5py.File(os.path.join(folder, f"{number}.h5"), "w") as file:
            options = {}
            if "chunk" in layout:
                options = dict(chunks=(layout["chunk"], 8, 128, 128), compression="gzip", compression_opts=4,
                               shuffle=layout.get("shuffle", False))
            x = file.create_dataset("x", (count, 8, 128, 128), "f4", **options)
            for n in range(0, count, 16):
                waves = generator.normal(size=(16, 8, 4, 1, 1))
                fields = (waves[:, :, 0] * numpy.sin(rows + waves[:, :, 1]) +
                          waves[:, :, 2] * numpy.cos(2 * columns + waves[:, :, 3]))
                fields += 1e-3 * generator.normal(size=fields.shape)
                x[n:n + 16] = fields[:count - n]
            file["y"] = numpy.arange(count) % 10
        print(number, name, sep="\t")


class Arrays:
    """A map-style data set. The file is opened by the first read, in the worker."""

    def __init__(self, path):
        import h5py
        self.path, self.file = path, None
        with h5py.File(path) as file:
            self.count = len(file["y"])

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        import h5py
        import torch
        if self.file is None:
            self.file = h5py.File(self.path)
        return torch.from_numpy(self.file["x"][index]), int(self.file["y"][index])


def main():
    options = parse()
    if options.make:
        make(options.file, options.make)
        return
    import h5py
    import torch
    from torch.utils.data import DataLoader
    torch.set_num_threads(1)
    data = Arrays(options.file)
    loader = DataLoader(data, options.batch, sampler=endless(len(data)), num_workers=options.workers,
                        multiprocessing_context="spawn")
    for of, value in measure(loader, options).items():
        print_row(framework="h5py", version=h5py.__version__, work="arrays", model=options.name, batch=options.batch,
                  precision="fp32", strategy="none", ranks=1, threads=options.workers,
                  metric=f"loader ({options.workers} workers){of}", value=f"{value:.0f}", unit="images/s")


if __name__ == "__main__":
    main()
