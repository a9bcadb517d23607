# SPDX-License-Identifier: BSD-3-Clause
"""Samples per second, and per second of CPU time, of a data set in h5py, or of a Zarr store in xarray, and DataLoader: each
worker opens the file and reads sample after sample in random order. Prints rows of the benchmarks' CSV, for comparison with bench_input.
With --make: writes the files of arrays.sh instead."""

import argparse
import os

from bench_common import print_row
from pytorch_input import endless, measure

LAYOUTS = {"contiguous": {}, "chunks of 1 + deflate": dict(chunk=1), "chunks of 16 + deflate": dict(chunk=16),
           "chunks of 16 + shuffle + deflate": dict(chunk=16, shuffle=True),
           "chunks of 16 + blosc-lz4": dict(chunk=16, blosc=True), "zarr chunks of 16 + blosc-lz4": dict(chunk=16, zarr=True)}


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", help="a file with /x [N, C, H, W] and /y [N]; with --make: a folder")
    parser.add_argument("--make", type=int, default=0, metavar="SAMPLES")
    parser.add_argument("--name", default="", help="of the layout")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3)
    return parser.parse_args()


def fields(count):
    """Smooth fields with noise in the lower bits, as simulations write them: deflate saves about a quarter."""
    import numpy
    generator = numpy.random.default_rng(1)
    rows, columns = numpy.mgrid[0:128, 0:128] * (2 * numpy.pi / 128)
    for n in range(0, count, 16):
        waves = generator.normal(size=(16, 8, 4, 1, 1))
        smooth = waves[:, :, 0] * numpy.sin(rows + waves[:, :, 1]) + waves[:, :, 2] * numpy.cos(2 * columns + waves[:, :, 3])
        noise = 1e-3 * generator.normal(size=smooth.shape)
        yield n, (smooth + noise).astype("f4")[:count - n]


def make_zarr(path, count, chunks):
    import numpy
    import xarray
    import zarr
    x = numpy.concatenate([part for _, part in fields(count)])
    data = xarray.Dataset({"x": (("n", "c", "h", "w"), x), "y": ("n", numpy.arange(count) % 10)})
    lz4 = zarr.codecs.BloscCodec(cname="lz4", clevel=5, shuffle="shuffle")
    data.to_zarr(path, encoding={"x": {"chunks": chunks, "compressors": [lz4]}}, zarr_format=3, consolidated=False)


def make(folder, count):
    import h5py
    import numpy
    for number, (name, layout) in enumerate(LAYOUTS.items()):
        chunks = (layout.get("chunk"), 8, 128, 128)
        path = os.path.join(folder, f"{number}.{'zarr' if 'zarr' in layout else 'h5'}")
        print(path, name, layout.get("chunk", 0), sep="\t")
        if "zarr" in layout:
            make_zarr(path, count, chunks)
            continue
        options = {}
        if "blosc" in layout:
            import hdf5plugin
            options = dict(chunks=chunks, **hdf5plugin.Blosc(cname="lz4", clevel=5, shuffle=hdf5plugin.Blosc.SHUFFLE))
        elif "chunk" in layout:
            options = dict(chunks=chunks, compression="gzip", compression_opts=4, shuffle=layout.get("shuffle", False))
        with h5py.File(path, "w") as file:
            x = file.create_dataset("x", (count, 8, 128, 128), "f4", **options)
            for n, part in fields(count):
                x[n:n + 16] = part
            file["y"] = numpy.arange(count) % 10


def open_arrays(path):
    if path.endswith(".zarr"):
        import xarray
        return xarray.open_zarr(path, chunks=None, consolidated=False)
    import h5py
    try:
        import hdf5plugin  # noqa: F401, registers blosc
    except ImportError:
        pass
    return h5py.File(path)


class Arrays:
    """A map-style data set. The file is opened by the first read, in the worker."""

    def __init__(self, path):
        self.path, self.file = path, None
        with open_arrays(path) as file:
            self.count = len(file["y"])

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        import numpy
        import torch
        if self.file is None:
            self.file = open_arrays(self.path)
        return torch.from_numpy(numpy.asarray(self.file["x"][index])), int(self.file["y"][index])


def main():
    options = parse()
    if options.make:
        make(options.file, options.make)
        return
    library = __import__("xarray" if options.file.endswith(".zarr") else "h5py")
    import torch
    from torch.utils.data import DataLoader
    torch.set_num_threads(1)
    data = Arrays(options.file)
    loader = DataLoader(data, options.batch, sampler=endless(len(data)), num_workers=options.workers,
                        multiprocessing_context="spawn")
    for of, value in measure(loader, options).items():
        print_row(framework=library.__name__, version=library.__version__, work="arrays", model=options.name, batch=options.batch,
                  precision="fp32", strategy="none", ranks=1, threads=options.workers,
                  metric=f"loader ({options.workers} workers){of}", value=f"{value:.0f}", unit="images/s")


if __name__ == "__main__":
    main()
