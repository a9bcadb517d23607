#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Folders of .npy files and Zarr stores of versions 2 and 3, for test_array: array_folders.tar.gz. The values of the array
STORE/NAME, as NumPy and zarr read them, are the float64 numbers of the file expected/STORE/NAME. Needs numpy, zarr 3, numcodecs.
    make_array_folders.py FOLDER"""
import gzip
import io
import json
import os
import pathlib
import shutil
import sys
import tarfile
import tempfile
import warnings

import numcodecs
import numcodecs.zarr3
import numpy as np
import zarr
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec, TransposeCodec, ZstdCodec

warnings.simplefilter("ignore")
random = np.random.default_rng(1)
SHAPE = (5, 3, 5, 4)
TYPES = "i1 u1 <i2 >i2 <u2 >u2 <i4 >i4 <u4 >u4 <i8 >i8 <u8 >u8 <f2 >f2 <f4 >f4 <f8 >f8".split()
top = pathlib.Path(tempfile.mkdtemp())


def numbers(dtype, shape=SHAPE):
    kind = np.dtype(dtype)
    if kind.kind == "f":
        values = random.integers(-1000, 1000, shape) / 8
        values.flat[:4] = [np.inf, -np.inf, 0.0, 6e-8]
        return values.astype(dtype)
    limits = np.iinfo(kind)
    values = random.integers(limits.min, limits.max, shape, kind.newbyteorder("="), endpoint=True)
    values.flat[20:] %= 50
    return values.astype(dtype)


def title(dtype):
    return dtype.replace("<", "little_").replace(">", "big_")


def expect(store, name, values):
    path = top / "expected" / store / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(np.asarray(values).astype("<f8").tobytes())


def npy():
    (top / "npy").mkdir()

    def add(name, data, version=None):
        with open(top / "npy" / (name + ".npy"), "wb") as file:
            np.lib.format.write_array(file, data, version=version)
        expect("npy", name, data)

    for dtype in TYPES:
        add("type_" + title(dtype), numbers(dtype))
    add("boolean", random.integers(0, 2, SHAPE).astype(bool))
    add("line", numbers("<f4", (7,)))
    add("scalar", np.array(2.5, "f4"))
    add("version2", numbers("<f4"), (2, 0))
    add("version3", numbers("<f4"), (3, 0))
    refused = top / "npy_refused"
    refused.mkdir()
    np.save(refused / "fortran.npy", np.asfortranarray(numbers("<f4")))
    np.save(refused / "complex.npy", np.zeros(3, "c8"))
    np.save(refused / "records.npy", np.zeros(3, [("a", "f4"), ("b", "i4")]))
    np.save(refused / "text.npy", np.array(["a", "bc"]))
    np.save(refused / "empty.npy", np.zeros((0, 3), "f4"))
    np.savez(refused / "archive.npz", np.zeros(3))


def create(store, name, data, version, written=None, **how):
    how = {"chunks": (2, 2, 3, 3), "shape": data.shape, "dtype": data.dtype, "fill_value": 0, "zarr_format": version, **how}
    where = str(top / store) if name is None else str(top / store / name)
    array = zarr.create(store=where, overwrite=True, **how)
    if written is None:
        array[...] = data
    else:
        array[written] = data[written]
    if "refused" not in store:
        expect(store, name if name is not None else "array", zarr.open_array(where, mode="r")[...])


COMPRESSORS = {
    "zlib": numcodecs.Zlib(), "gzip": numcodecs.GZip(), "zstd": numcodecs.Zstd(), "zstd_checksum": numcodecs.Zstd(checksum=True),
    "lz4": numcodecs.LZ4(), "blosc_lz4": numcodecs.Blosc("lz4", shuffle=1), "blosc_zstd": numcodecs.Blosc("zstd", shuffle=1),
    "blosc_zlib": numcodecs.Blosc("zlib", shuffle=1), "blosc_plain": numcodecs.Blosc("lz4", shuffle=0),
    "blosc_bits": numcodecs.Blosc("lz4", shuffle=2),
}
PART = (slice(1, 3), slice(None), slice(2, 4))


def attributes(store, name, file, **values):
    """Also values that are not JSON, as Python writes them."""
    path = top / store / name / file
    text = json.loads(path.read_text()) if path.exists() else {}
    (text["attributes"] if file == "zarr.json" else text).update(values)
    path.write_text(json.dumps(text))


def version2():
    zarr.create_group(str(top / "v2"), zarr_format=2)
    for dtype in TYPES:
        create("v2", "type_" + title(dtype), numbers(dtype), 2, compressor=None)
    create("v2", "boolean", random.integers(0, 2, SHAPE).astype(bool), 2, fill_value=False, compressor=None)
    for name, compressor in COMPRESSORS.items():
        create("v2", name, numbers("<i2"), 2, compressor=compressor, chunks=(1, 3, 5, 4))
        create("v2", name + "_edges", numbers("<f4"), 2, compressor=compressor)
    create("v2", "shuffle", numbers("<f4"), 2, filters=[numcodecs.Shuffle(4)], compressor=numcodecs.Zlib())
    create("v2", "shuffle_alone", numbers(">i2"), 2, filters=[numcodecs.Shuffle(2)], compressor=None)
    create("v2", "folders", numbers("<f4"), 2, dimension_separator="/", compressor=numcodecs.Zlib())
    create("v2", "missing", numbers("<f4"), 2, PART, fill_value=-1.5, compressor=numcodecs.Zlib())
    create("v2", "missing_nan", numbers(">f8"), 2, PART, fill_value=float("nan"), compressor=None)
    create("v2", "missing_infinity", numbers("<f4"), 2, PART, fill_value=float("-inf"), compressor=None)
    create("v2", "group/inner", numbers("<i4"), 2)
    create("v2", "scalar", np.array(2.5, "f4"), 2, chunks=(), compressor=None)
    create("v2_array", None, numbers("<f4"), 2)
    # The conventions of xarray: fill_value is _FillValue.
    data = random.integers(-100, 100, SHAPE).astype("i2")
    data[0, 0, :3] = -99
    create("v2", "packed", data, 2, PART, fill_value=-99)
    attributes("v2", "packed", ".zattrs", _ARRAY_DIMENSIONS=list("tcyx"), scale_factor=0.25, add_offset=273.0, note=float("nan"))
    written = np.full(SHAPE, -99, "i2")
    written[PART] = data[PART]
    expect("v2", "packed", np.where(written == -99, np.nan, written * 0.25 + 273.0))
    create("v2", "range", data, 2)
    attributes("v2", "range", ".zattrs", valid_range=[-50, 50], missing_value=[5, float("nan")])
    expect("v2", "range", np.where((data < -50) | (data > 50) | (data == 5), np.nan, data))
    refused = "v2_refused"
    create(refused, "fortran", numbers("<f4"), 2, order="F")
    create(refused, "delta", numbers("<i4"), 2, filters=[numcodecs.Delta("<i4")])
    create(refused, "bzip2", numbers("<i4"), 2, compressor=numcodecs.BZ2())
    create(refused, "complex", np.zeros(3, "c8"), 2, chunks=(3,))
    create(refused, "empty", np.zeros((0, 3), "f4"), 2, chunks=(1, 3))


def version3():
    zarr.create_group(str(top / "v3"), zarr_format=3)
    little, big = BytesCodec(endian="little"), BytesCodec(endian="big")

    def add(name, data, codecs, written=None, **how):
        create(how.pop("store", "v3"), name, data, 3, written, codecs=codecs, **how)

    for dtype in TYPES:
        if dtype[0] != ">":
            add("type_" + title(dtype), numbers(dtype), [little if len(dtype) > 2 else BytesCodec(endian=None)])
    add("boolean", random.integers(0, 2, SHAPE).astype(bool), [BytesCodec(endian=None)], fill_value=False)
    for dtype in ("<i2", "<f4", "<f8"):
        add("big_" + title(dtype), numbers(dtype), [big])
    codecs = {
        "gzip": [GzipCodec()], "zstd": [ZstdCodec()], "zstd_checksum": [ZstdCodec(checksum=True)], "crc32c": [Crc32cCodec()],
        "gzip_crc32c": [GzipCodec(), Crc32cCodec()],
        "numcodecs_lz4": [numcodecs.zarr3.LZ4()], "numcodecs_shuffle": [numcodecs.zarr3.Shuffle(elementsize=4), numcodecs.zarr3.Zlib()],
        "blosc": [BloscCodec(typesize=4, cname="lz4", shuffle="shuffle")], "blosc_bits": [BloscCodec(typesize=4, cname="zstd")],
    }
    for name, chain in codecs.items():
        add(name, numbers("<f4"), [little, *chain])
        for location in ("start", "end"):
            add(f"shards_{name}_{location}", numbers("<f4"), [ShardingCodec(
                chunk_shape=(1, 2, 3, 2), codecs=[little, *chain], index_location=location)], chunks=(2, 4, 3, 6))
    shards = {"shards_plain": {}, "shards_unchecked": {"index_codecs": [little]}}
    for name, how in shards.items():
        add(name, numbers("<f4"), [ShardingCodec(chunk_shape=(1, 2, 3, 2), codecs=[big], **how)], chunks=(2, 4, 3, 6))
    add("shards_missing", numbers("<f4"), [ShardingCodec(chunk_shape=(1, 1, 2, 2), codecs=[little])], PART, chunks=(3, 3, 4, 4), fill_value=2)
    add("missing", numbers("<f4"), [little, GzipCodec()], PART, fill_value=-1.5)
    add("missing_nan", numbers("<f8"), [little], PART, fill_value=float("nan"))
    add("missing_bits", numbers("<f4"), [little], PART, fill_value=3.0)
    path = top / "v3" / "missing_bits" / "zarr.json"
    path.write_text(path.read_text().replace('"fill_value": 3.0', '"fill_value": "0x40400000"'))
    assert "0x40400000" in path.read_text()
    add("points", numbers("<f4"), [little], chunk_key_encoding=("default", "."))
    add("names2", numbers("<f4"), [little], chunk_key_encoding=("v2", "/"))
    add("group/inner", numbers("<i4"), [little, ZstdCodec()])
    add("scalar", np.array(2.5, "f4"), [little], chunks=())
    add(None, numbers("<f4"), [little], store="v3_array")
    data = random.integers(-100, 100, SHAPE).astype("f4")
    data[0, 0, :3] = -99
    add("packed", data, [little])
    # xarray writes _FillValue of floats as base64 of a float64.
    attributes("v3", "packed", "zarr.json", _FillValue="AAAAAADAWMA=", scale_factor=0.25)
    expect("v3", "packed", np.where(data == -99, np.nan, data * 0.25))
    refused = "v3_refused"
    add("transposed", numbers("<f4"), [TransposeCodec(order=(3, 2, 1, 0)), little], store=refused)
    add("nested", numbers("<f4"), [ShardingCodec(chunk_shape=(2, 2, 2, 2), codecs=[ShardingCodec(
        chunk_shape=(1, 1, 2, 2), codecs=[little])])], chunks=(4, 4, 4, 4), store=refused)
    add("complex", np.zeros(3, "c8"), [little], store=refused, chunks=(3,))


npy()
version2()
version3()
content = io.BytesIO()
with tarfile.open(fileobj=content, mode="w") as tar:
    for folder, folders, files in os.walk(top):
        folders.sort()
        for file in sorted(files):
            path = os.path.join(folder, file)
            member = tarfile.TarInfo(os.path.relpath(path, top))
            member.size = os.path.getsize(path)
            with open(path, "rb") as data:
                tar.addfile(member, data)
with open(sys.argv[1] + "/array_folders.tar.gz", "wb") as file:
    file.write(gzip.compress(content.getvalue(), 9, mtime=0))
shutil.rmtree(top)
