# SPDX-License-Identifier: BSD-3-Clause
"""Predictions for NetCDF-4 files in HDF5 files: xarray reads them with the coordinates of the targets, the values are in physical
units, and the loss computed from them is that of the evaluation.

    check_predict_arrays.py VITTRAIN FOLDER
"""
import re

import h5py
import numpy
import xarray

from support import ARRAYS, program_in_folder

run = program_in_folder()
SAMPLES, HEIGHT, WIDTH, AHEAD = 40, 8, 12, 6
MODEL = [*ARRAYS, *"train.epochs=2 train.global_batch=8 data.val=0.25 data.val_from=end".split()]


def write(path, first, units=None):
    random = numpy.random.default_rng(first)
    time = numpy.datetime64("2020-01-01", "ns") + (first + numpy.arange(SAMPLES)) * numpy.timedelta64(6, "h")
    shape = ("time", "lat", "lon")
    u = random.normal(250, 20, (SAMPLES, HEIGHT, WIDTH)).astype("f4")
    v = random.normal(0, 1e-4, (SAMPLES, HEIGHT, WIDTH)).astype("f4")
    data = xarray.Dataset(
        {"u": (shape, u, {"units": "K", "long_name": "temperature"}), "v": (shape, v, {"units": "1"})},
        coords={"time": time, "lat": ("lat", numpy.linspace(70, -70, HEIGHT), {"units": "degrees_north"}),
                "lon": ("lon", numpy.arange(WIDTH) * 30.0, {"units": "degrees_east"})})
    data.to_netcdf(path, encoding={"time": {"units": units}} if units else None)
    return data


def check(path, sources, variables, dimensions=("time", "lat", "lon"), beyond=True):
    """Compares the coordinates with those of the targets in the files."""
    for engine in "netcdf4", "h5netcdf":
        with xarray.open_dataset(path, engine=engine) as file:
            output = file.load()
        assert sorted(set(output.data_vars) - {"record", "file", "file_sample"}) == variables, output
        assert output[variables[0]].dims == dimensions, output
        expected = numpy.concatenate([source.time.values[AHEAD:] for source in sources])
        if beyond:  # the last samples have no targets in the file
            last, step = expected[-1], expected[1] - expected[0]
            expected = numpy.concatenate([expected, last + step * numpy.arange(1, AHEAD + 1)])
        assert (output.time.values == expected[len(expected) - len(output.time):]).all()
        assert (output.lat.values == sources[0].lat.values).all() and output.lat.attrs["units"] == "degrees_north"
        assert (output.lon.values == sources[0].lon.values).all()
    return output


first, second = write("a_train.nc", 0), write("b_test.nc", 100, "hours since 2020-01-01")
y = f"data.y=u@+{AHEAD},v@+{AHEAD}"
run(*MODEL, "data.root=a_train.nc", "data.x=u,v", y, "data.task=regression", "model.head=dense", "run.dir=forecast")
held_out = run("predict", "forecast/checkpoints/last.h5", "predict.output=held_out.nc")
loss = float(re.search("loss ([0-9.]+)", run("eval", "forecast/checkpoints/last.h5"))[1])
output = check("held_out.nc", [first], ["u", "v"], beyond=False)
assert output.u.attrs == {"units": "K", "long_name": "temperature"} and output.u.dtype == "f4"
assert (first.time.values[output.file_sample.values + AHEAD] == output.time.values).all()
assert (output.record == output.file_sample).all() and (output.file == 0).all() and output.file.file_names == "a_train.nc"
count = len(output.time)
train = first.isel(time=slice(AHEAD, SAMPLES - count - AHEAD))  # the others share values with held-out samples
errors = [(output[name].values - first[name].values[-count:]) / train[name].values.std(dtype="f8") for name in "uv"]
mine = numpy.mean(numpy.square(errors))
assert abs(mine - loss) < 1e-3 * loss, f"loss {loss}, from the predictions {mine}"

# The size of the fields is no multiple of the windows': predictions are whole fields, and eval prints their RMSE.
run(*MODEL, "data.root=a_train.nc", "data.x=u,v", y, "data.task=regression", "model.head=dense", "augment.crop=random",
    "model.image=4", "model.image_width=8", "augment.flip=0.5", "run.dir=windows")
run("predict", "windows/checkpoints/last.h5", "predict.output=tiles.nc")
output = check("tiles.nc", [first], ["u", "v"], beyond=False)
rmse = float(re.search("RMSE u@[+]6 ([0-9.]+)", run("eval", "windows/checkpoints/last.h5"))[1])
mine = numpy.sqrt(numpy.mean(numpy.square(output.u.values - first.u.values[-len(output.time):], dtype="f8")))
assert abs(mine - rmse) < 1e-3 * rmse, f"RMSE {rmse}, from the predictions {mine}"

run("predict", "forecast", "b_test.nc", "predict.output=one.h5")
check("one.h5", [second], ["u", "v"])
run("predict", "forecast", "a_train.nc", "b_test.nc", "predict.output=two.h5")

both = xarray.Dataset({"x": first.u, "y": (("time", "level", "lat", "lon"), numpy.stack([first.u, first.v], 1), {"units": "K"})})
both.to_netcdf("planes.nc")
run(*MODEL, "data.root=planes.nc", "data.x=x", f"data.y=y@+{AHEAD}", "data.order=chw", "data.task=regression", "model.head=dense",
    "run.dir=planes")
run("predict", "planes", "planes.nc", "predict.output=planes.h5")
check("planes.h5", [first], ["y"], ("time", "level", "lat", "lon"))

# Runs, levels and members, of which a part is predicted: RMSE and coordinates are those of xarray's selection.
z = xarray.DataArray(numpy.random.default_rng(5).normal(size=(2, SAMPLES, 3, 2, HEIGHT, WIDTH)).astype("f4"), name="z",
                     dims=("trajectory", "time", "level", "number", "lat", "lon"),
                     coords={"time": first.time, "level": [1000., 850., 500.], "number": [0, 1], "lat": first.lat, "lon": first.lon})
z.to_netcdf("runs.nc")
described = run("data", "describe", "runs.nc")
assert "data.y=/z@+1 data.task=regression model.head=dense data.val=0.1" in described and "(6 channels, order chw" in described, described
run(*MODEL, "data.root=runs.nc", "data.x=z", "data.y=z@+1", "data.levels=500,850", "data.rows=-31..30", "data.columns=330..60",
    "data.task=regression", "model.head=dense", "run.dir=runs", "model.patch=1")
run("predict", "runs", "predict.output=runs_val.nc")
part = z.sel(level=[500, 850], lat=slice(30, -31), lon=[330, 0, 30, 60])
with xarray.open_dataset("runs_val.nc") as output:
    assert output.z.dims == z.dims[1:] and all((output[name].values == part[name].values).all() for name in z.dims[2:])
    sample = output.file_sample.values
    assert (output.time.values == z.time.values[sample % SAMPLES + 1]).all() and len(sample) == 20 and sample[10] >= SAMPLES
    error = output.z.values - part.values[sample // SAMPLES, sample % SAMPLES + 1]
log = run("eval", "runs/checkpoints/last.h5")
rmse = [float(value) for value in re.findall(r"RMSE z@\+1 500 number 0 ([0-9.]+)", log)]
mine = numpy.sqrt(numpy.mean(numpy.square(error[:, 0, 0], dtype="f8")))
assert len(rmse) == 1 and abs(mine - rmse[0]) < 1e-3 * mine, f"{log}, from the predictions {mine}"

with h5py.File("two.h5") as file:
    assert file["u"].shape == (2 * SAMPLES, HEIGHT, WIDTH)
    assert list(file["file"].attrs["file_names"]) == ["a_train.nc", "b_test.nc"]
    numbers = numpy.arange(2 * SAMPLES)
    assert (file["record"][:] == numbers).all() and (file["file"][:] == numbers // SAMPLES).all()
    assert (file["file_sample"][:] == numbers % SAMPLES).all()
    assert "lat" in file and file["u"].dims[1]["lat"] == file["lat"] and file["lat"].is_scale
with h5py.File("one.h5") as one, h5py.File("two.h5") as two:
    assert numpy.abs(one["v"][:] - two["v"][SAMPLES:]).max() <= 1e-6 * numpy.abs(one["v"][:]).max()
