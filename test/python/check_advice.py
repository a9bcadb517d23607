# SPDX-License-Identifier: BSD-3-Clause
"""Runs the lines of docs/arrays.md for data sets with a filter, or a layout, that cannot be read, and compares the rewritten data
set with the old one. Plug-in filters need hdf5plugin.

    check_advice.py PROGRAM FOLDER
"""
import pathlib
import shutil
import subprocess
import sys

import h5py
import numpy

from support import python_of, run

try:
    import hdf5plugin
except ImportError:
    hdf5plugin = None

code = next(block for block in python_of("arrays.md") if block.startswith("import h5py\n\nf = "))
program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
folder.mkdir()
values = numpy.arange(4 * 6 * 8, dtype="i4").reshape(4, 6, 8)


def dataset(file, name, kind, how):
    if kind == "virtual":
        layout = h5py.VirtualLayout(values.shape, "i4")
        layout[:] = h5py.VirtualSource("source.h5", "x", values.shape)
        return file.create_virtual_dataset(name, layout)
    if kind == "external":
        how = {"external": [(str(folder / "external.bin"), 0, values.nbytes)]}
    return file.create_dataset(name, data=values, **how)


def describe(path):
    return next(line for line in run(program, "data", "describe", path).splitlines() if line.startswith("  /group/x "))


with h5py.File(folder / "source.h5", "w") as file:
    file["x"] = values
cases = {"lzf": {"compression": "lzf"}, "scaleoffset": {"scaleoffset": 0}, "virtual": {}, "external": {}}
if hdf5plugin is not None:
    cases.update(bitshuffle=hdf5plugin.Bitshuffle(), blosc2=hdf5plugin.Blosc2(), bzip2=hdf5plugin.BZip2(),
                 zfp=hdf5plugin.Zfp(reversible=True))
for kind, how in cases.items():
    path = folder / (kind + ".h5")
    if kind not in ("virtual", "external"):
        how = {"chunks": (1, 6, 8), **how}
    with h5py.File(path, "w") as file:
        x = dataset(file, "group/x", kind, how)
        x.attrs["units"], x.attrs["class_names"] = "K", ["calm", "storm"]
        file["time"] = numpy.arange(4)
        file["time"].make_scale("time")
        x.dims[0].attach_scale(file["time"])
    line = describe(path)
    assert "docs/arrays.md" in line, line
    shutil.copy(path, folder / "COPY.h5")
    imports = "import hdf5plugin\n" if hdf5plugin is not None else ""
    subprocess.run([sys.executable, "-c", imports + code.replace("NAME", "group/x")], check=True, cwd=folder)
    line = describe(folder / "COPY.h5")
    assert "cannot be read" not in line and "units=K; class_names=calm" in line, line
    assert ("chunks [1, 6, 8], deflate" in line) == ("chunks" in how), line
    with h5py.File(folder / "COPY.h5") as file:
        assert (file["group/x"][()] == values).all() and list(file["time"]) == [0, 1, 2, 3], kind
        assert file["group/x"].dims[0][0].name == "/time", kind
    print(kind, "is rewritten")
