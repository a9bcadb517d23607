#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""HDF5 and NetCDF-4 files of all layouts, filters and types, for test_array: arrays*.h5 and arrays.nc. Beside each data set
/NAME is the data set /expected/NAME: contiguous float64, the values that h5py and NetCDF4 read. Needs h5py, hdf5plugin, netCDF4,
numpy.
    make_arrays.py FOLDER"""
import sys

import h5py
import hdf5plugin
import netCDF4
import numpy as np

random = np.random.default_rng(1)
SHAPE = (5, 3, 5, 4)


def numbers(dtype, shape=SHAPE):
    kind = np.dtype(dtype)
    if kind.kind == "f":
        values = random.normal(0, 100, shape)
        values.flat[:4] = [np.inf, -np.inf, 0.0, 6e-8]
        return values.astype(dtype)
    limits = np.iinfo(kind)
    values = random.integers(limits.min, limits.max, shape, kind.newbyteorder("="), endpoint=True)
    return values.astype(dtype)


def add(file, name, data, **how):
    file.create_dataset(name, data=data, **how)
    file["expected/" + name] = file[name][...].astype("f8")


def add_partly_written(file, name, **how):
    """Only one part is written; the rest are chunks that do not exist."""
    dataset = file.create_dataset(name, SHAPE, **how)
    dataset[1:3, :, 2:4] = numbers(dataset.dtype)[1:3, :, 2:4]
    file["expected/" + name] = dataset[...].astype("f8")


def hdf5(path):
    with h5py.File(path, "w", userblock_size=512) as file:
        for dtype in "i1 u1 <i2 >i2 <u2 >u2 <i4 >i4 <u4 >u4 <i8 >i8 <u8 >u8 <f2 >f2 <f4 >f4 <f8 >f8".split():
            add(file, "type" + dtype.replace("<", "_little_").replace(">", "_big_"), numbers(dtype))
        add(file, "boolean", random.integers(0, 2, SHAPE).astype(bool))
        for number, chunks in enumerate([(1, 3, 5, 4), (2, 3, 5, 4), (5, 1, 5, 4), (2, 2, 3, 3), (1, 1, 2, 1), SHAPE]):
            add(file, f"plain{number}", numbers("<f4"), chunks=chunks)
            add(file, f"deflate{number}", numbers("<i2"), chunks=chunks, compression="gzip")
            add(file, f"all{number}", numbers(">f8"), chunks=chunks, compression="gzip", shuffle=True, fletcher32=True)
        add(file, "shuffle", numbers("<i4"), chunks=(2, 2, 3, 3), shuffle=True)
        add(file, "fletcher", numbers("u1"), chunks=(2, 3, 5, 3), fletcher32=True)
        add(file, "zeros", np.zeros(SHAPE, "f4"), chunks=(2, 3, 5, 4), compression="gzip", compression_opts=9)
        add(file, "half", numbers("<f2"), chunks=(2, 2, 3, 3), compression="gzip", shuffle=True)
        add(file, "growing", numbers("<f4"), maxshape=(None, 3, None, 4), chunks=(2, 2, 3, 3), compression="gzip")
        add_partly_written(file, "missing", dtype="<f4", chunks=(2, 2, 3, 3), fillvalue=-1.5)
        add_partly_written(file, "missing_deflate", dtype=">i2", chunks=(1, 3, 5, 4), fillvalue=7, compression="gzip")
        file.create_dataset("unwritten", SHAPE, "f4", fillvalue=3)
        file["expected/unwritten"] = np.full(SHAPE, 3.0)
        # The filter is skipped for a chunk.
        dataset = file.create_dataset("skipped", (4, 6), "<f4", chunks=(2, 6), compression="gzip")
        data = numbers("<f4", (4, 6))
        dataset[:2] = data[:2]
        dataset.id.write_direct_chunk((2, 0), data[2:].tobytes(), filter_mask=1)
        file["expected/skipped"] = data.astype("f8")
        # The earliest indexes of chunks are B-trees.
        add(file, "many", numbers("<i2", (200, 4)), chunks=(1, 3), maxshape=(None, None))
        for name, how in {"lzf": {"compression": "lzf"}, "offset": {"scaleoffset": 4}}.items():
            file.create_dataset("refused/" + name, data=numbers("<i2"), chunks=SHAPE, **how)
        creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        creation.set_layout(h5py.h5d.COMPACT)
        data = numbers(">i4")
        space = h5py.h5s.create_simple(SHAPE)
        dataset = h5py.h5d.create(file.id, b"refused/compact", h5py.h5t.STD_I32BE, space, creation)
        dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, np.ascontiguousarray(data))
        file["refused/compound"] = np.zeros(3, [("a", "f4"), ("b", "i4")])
        file["refused/complex"] = np.zeros(3, "c8")
        file["refused/text"] = ["a", "b"]
        layout = h5py.VirtualLayout(SHAPE, "f4")
        layout[:] = h5py.VirtualSource(".", "zeros", SHAPE)
        file.create_virtual_dataset("refused/virtual", layout)
        file.create_dataset("refused/external", SHAPE, "f4", external=[("arrays.bin", 0, 4096)])
        file.create_dataset("refused/empty", (0, 3), "f4")
        file["refused/link"] = h5py.SoftLink("/zeros")


def latest(path):
    """The other kinds of index: fixed and extensible arrays, B-trees of version 2, one chunk, implicit."""
    with h5py.File(path, "w", libver=("v110", "v110")) as file:
        shapes = {"fixed": None, "extensible": (None, 3, 5, 4), "tree": (None, 3, None, 4)}
        for name, most in shapes.items():
            add(file, name, numbers("<f4"), chunks=(2, 2, 3, 3), maxshape=most)
            add(file, name + "_deflate", numbers("<f4"), chunks=(2, 2, 3, 3), maxshape=most, compression="gzip", shuffle=True)
        add(file, "single", numbers("<f4"), chunks=SHAPE)
        add(file, "single_deflate", numbers("<f4"), chunks=SHAPE, compression="gzip")
        creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        creation.set_chunk((2, 2, 3, 3))
        creation.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        dataset = h5py.h5d.create(file.id, b"implicit", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple(SHAPE), creation)
        data = numbers("<f4")
        dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, data)
        file["expected/implicit"] = data.astype("f8")


def plugins(path):
    """Filters that are plug-ins of HDF5."""
    blosc = {f"blosc_{name}": hdf5plugin.Blosc(cname=name, shuffle=1) for name in ("lz4", "zstd", "zlib")}
    with h5py.File(path, "w", libver=("v110", "v110")) as file:
        for name, how in {
            "zstd": hdf5plugin.Zstd(), "lz4": hdf5plugin.LZ4(), "lz4_blocks": hdf5plugin.LZ4(nbytes=64), **blosc,
            "blosc_plain": hdf5plugin.Blosc(cname="lz4", shuffle=0), "blosc_bits": hdf5plugin.Blosc(cname="lz4", shuffle=2),
        }.items():
            add(file, name, numbers("<i2") % 4, chunks=(3, 3, 5, 4), **how)
        add(file, "zstd_shuffle", numbers("<f4"), chunks=(2, 3, 5, 4), shuffle=True, fletcher32=True, **hdf5plugin.Zstd())


def netcdf(path):
    with netCDF4.Dataset(path, "w") as file:
        expected = file.createGroup("expected")
        for name, size in zip(("time", "level", "lat", "lon"), (None, *SHAPE[1:])):
            file.createDimension(name, size)

        def add(name, dtype, data, attributes={}, written=slice(0, 5), **how):
            variable = file.createVariable(name, dtype, ("time", "level", "lat", "lon"), **how)
            for key, value in attributes.items():
                variable.setncattr(key, value)
            variable.set_auto_maskandscale(False)
            variable[written] = data[written]
            variable.set_auto_maskandscale(True)
            read = np.ma.filled(variable[:].astype("f8"), np.nan)
            expected.createVariable(name, "f8", ("time", "level", "lat", "lon"))[:] = read

        packed = random.integers(-100, 100, SHAPE).astype("i2")
        packed[0, 0, :3] = -99
        add("packed", "i2", packed, {"scale_factor": 0.25, "add_offset": 273.0}, fill_value=-99, zlib=True)
        add("range", "i2", packed, {"valid_range": np.array([-50, 50], "i2")}, chunksizes=(2, 2, 3, 3), zlib=True, shuffle=False)
        add("least", "i2", packed, {"valid_min": np.int16(-20), "missing_value": np.int16(5)})
        real = random.normal(0, 1, SHAPE).astype("f4")
        real[1, 1] = 1e20
        add("missing", "f4", real, {"missing_value": np.float32(1e20)}, zlib=True, fletcher32=True)
        add("default_fill", "f4", real, written=(slice(0, 5), slice(0, 2)), chunksizes=(1, 1, 5, 4))
        add("byte", "u1", random.integers(0, 255, SHAPE).astype("u1"), {"scale_factor": np.float32(0.5)})


hdf5(sys.argv[1] + "/arrays.h5")
latest(sys.argv[1] + "/arrays_latest.h5")
netcdf(sys.argv[1] + "/arrays.nc")
plugins(sys.argv[1] + "/arrays_plugins.h5")
