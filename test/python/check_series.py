# SPDX-License-Identifier: BSD-3-Clause
"""Series of NetCDF-4 files: data.transform and data.residual against NumPy, data.join against one
file, and the weights of latitudes against xarray.

    check_series.py VITTRAIN FOLDER
"""
import os
import re

import h5py
import numpy
import xarray

from support import ARRAYS, program_in_folder, table

run = program_in_folder()
SAMPLES, HEIGHT, WIDTH = 40, 8, 12
DIMENSIONS = ("time", "lat", "lon")
MODEL = [*ARRAYS, *"train.epochs=2 train.global_batch=8 data.val=0.25 data.val_from=end data.task=regression "
         "model.head=dense".split()]


def near(one, other, tolerance=2e-5):
    assert numpy.allclose(one, other, rtol=tolerance, atol=0), f"{numpy.ravel(one)[:4]}, expected {numpy.ravel(other)[:4]}"


def statistics(log, what):
    """The means and standard deviations that the log prints."""
    found = re.search(what + ".*: mean ([^;]*); standard deviation (.*)", log)
    return [[float(number) for number in text.split(",")] for text in found.groups()]


def outputs(run_folder):
    """The last metrics of each output."""
    return {row["output"]: row for row in table(f"{run_folder}/metrics.csv") if row["output"]}


random = numpy.random.default_rng(5)
time = numpy.datetime64("2020-01-01", "ns") + numpy.arange(SAMPLES) * numpy.timedelta64(6, "h")
rain = random.gamma(0.3, 20, (SAMPLES, HEIGHT, WIDTH)).astype("f4")
rain[random.random(rain.shape) < 0.02] = -3  # not in the domain of log1p: missing
wind = random.normal(5, 2, rain.shape).astype("f4")
level = random.lognormal(0, 2, rain.shape).astype("f4")
series = xarray.Dataset(
    {"rain": (DIMENSIONS, rain, {"units": "mm"}), "wind": (DIMENSIONS, wind), "level": (DIMENSIONS, level)},
    coords={"time": time, "lat": ("lat", numpy.linspace(70, -70, HEIGHT), {"units": "degrees_north"}),
            "lon": ("lon", numpy.arange(WIDTH) * 30.0)})
series.to_netcdf("series.nc")


def check_transform():
    options = [*MODEL, "data.x=rain,wind,level", "data.y=rain@+1,level@+1", "data.transform=log1p:rain,log10:level"]
    log = run(*options, "data.root=series.nc", "run.dir=transform")
    held_out = round((SAMPLES - 1) * 0.25)
    trained = SAMPLES - 1 - held_out - 1  # the last one shares values with those held out
    with numpy.errstate(invalid="ignore"):
        changed = [numpy.log1p(rain), wind, numpy.log10(level)]
    mean, std = statistics(log, "statistics of [0-9]* training")
    near(mean, [numpy.nanmean(values[:trained], dtype="f8") for values in changed])
    near(std, [numpy.nanstd(values[:trained], dtype="f8") for values in changed])
    mean, std = statistics(log, "statistics of their targets")
    near(mean, [numpy.nanmean(values[1:trained + 1], dtype="f8") for values in changed[::2]])
    run("predict", "transform/weights.safetensors", "series.nc", "train.precision=fp32", "predict.output=transform.nc")
    with xarray.open_dataset("transform.nc") as file:
        predicted = file.load()
    metrics = outputs("transform")
    for name in "rain", "level":
        expected = series[name].values.astype("f8")
        expected[expected < -1] = numpy.nan
        last, before = expected[-held_out:], expected[-held_out - 1:-1]
        error = predicted[name].sel(time=time[-held_out:]).values - last
        row = metrics[f"{name}@+1"]
        near(float(row["rmse"]), numpy.sqrt(numpy.nanmean(error ** 2)))
        near(float(row["mae"]), numpy.nanmean(abs(error)))
        near(float(row["persistence_rmse"]), numpy.sqrt(numpy.nanmean((before - last) ** 2)))
        near(float(row["r2"]), 1 - numpy.nanmean(error ** 2) / numpy.nanvar(last), 1e-3)
    run(*MODEL, "data.root=series.nc", "data.x=wind", "data.y=level", "data.transform=log10:level", "run.dir=unlabelled")
    series[["wind"]].to_netcdf("wind.nc")
    run("predict", "unlabelled/weights.safetensors", "series.nc", "train.precision=fp32", "predict.output=with.nc")
    run("predict", "unlabelled/weights.safetensors", "wind.nc", "train.precision=fp32", "predict.output=without.nc")
    with xarray.open_dataset("with.nc") as one, xarray.open_dataset("without.nc") as other:
        near(one.level.values, other.level.values)
        assert one.level.values.min() > 0
    for wrong in "log1p:snow", "log2:rain", "rain":
        assert "data.transform=" in run(*options, f"data.transform={wrong}", "data.root=series.nc", "run.dir=wrong", status=2)


def check_residual():
    """Differences of transformed, missing and nearly constant values; weights of zero predict the mean difference."""
    steps = numpy.cumsum(random.normal(1e-4, 1e-3, rain.shape), axis=0)
    base = xarray.Dataset({"rain": series.rain, "wind": series.wind, "sea": (DIMENSIONS, 290 + wind[:1] + steps)}, series.coords)
    base.to_netcdf("residual.nc")
    options = [*MODEL, "data.root=residual.nc", "data.x=rain@-1,rain,wind@-1,sea", "data.y=rain@+1,wind,sea@+2", "data.transform=log1p:rain"]
    log = run(*options, "data.residual=on", "run.dir=residual")
    count = SAMPLES - 3
    held_out = round(count * 0.25)
    trained = count - held_out - 3  # those before share values with the held out ones
    with numpy.errstate(invalid="ignore"):
        values = {"rain": numpy.log1p(rain.astype("f8")), "wind": wind.astype("f8"), "sea": base.sea.values}
    times = {"rain": (1, 0), "wind": (0, -1), "sea": (2, 0)}
    last = {name: values[name][1 + x:][:count] for name, (_, x) in times.items()}
    change = {name: values[name][1 + y:][:count] - last[name] for name, (y, _) in times.items()}
    mean, std = statistics(log, "statistics of target - last input")
    near(mean, [numpy.nanmean(change[name][:trained]) for name in times], 1e-3)
    near(std, [numpy.nanstd(change[name][:trained]) for name in times])
    metrics = outputs("residual")
    run("predict", "residual", "predict.output=residual-out.nc", "train.precision=fp32")
    with open("residual/weights.safetensors", "rb") as file:
        weights = file.read()
    header = 8 + int.from_bytes(weights[:8], "little")
    with open("zeros.safetensors", "wb") as file:
        file.write(weights[:header] + bytes(len(weights) - header))
    run("predict", "zeros.safetensors", "residual.nc", "predict.output=zeros.nc")
    undo = {"rain": numpy.expm1, "wind": numpy.array, "sea": numpy.array}
    with xarray.open_dataset("residual-out.nc") as file, xarray.open_dataset("zeros.nc") as zeros:
        assert file.sea.dtype == "f8" and file.wind.dtype == "f4", file
        for n, (name, (y, x)) in enumerate(times.items()):
            target, before = (undo[name](now)[-held_out:] for now in (last[name] + change[name], last[name]))
            error = file[name].values.astype("f8") - target
            assert (numpy.isnan(file[name].values) == numpy.isnan(before)).all()
            row = metrics[f"{name}@+{y}" if y else name]
            near(float(row["rmse"]), numpy.nanmean(error ** 2) ** 0.5, 1e-3 if name == "sea" else 2e-5)
            near(float(row["persistence_rmse"]), numpy.nanmean((before - target) ** 2) ** 0.5, 1e-3 if name == "sea" else 2e-5)
            near(float(row["r2"]), 1 - numpy.nanmean(error ** 2) / numpy.nanvar(target[~numpy.isnan(error)]), 1e-3)
            expected, found = undo[name](last[name] + mean[n]), zeros[name].values[:count]
            assert numpy.allclose(found, expected, rtol=1e-7 if name == "sea" else 1e-5, atol=1e-5 if name == "rain" else 0, equal_nan=True)
    refused = run("predict", "residual", "residual.nc", "predict.output=off.nc", "data.residual=off", status=2)
    assert "data.residual=off: " in refused, refused


def check_join():
    edges = 0, 17, 19, SAMPLES - 1, SAMPLES
    os.makedirs("parts", exist_ok=True)
    numbers = series.assign(number=("time", series.wind.mean(("lat", "lon")).values))
    numbers.to_netcdf("whole.nc", encoding={"time": {"units": "hours since 2020-01-01"}})
    # The second and the last of four files are shorter than the offsets. The order of their names is not that of their times, which
    # count from different days.
    for part, name in enumerate(("f1", "f2", "f10", "f11")):
        numbers.isel(time=slice(edges[part], edges[part + 1])).to_netcdf(
            f"parts/{name}.nc", encoding={"time": {"units": f"hours since 2020-01-0{part + 1}"}})
    for name, targets in (("planes", ["data.y=wind@+4,level@-2"]), ("numbers", ["data.y=number@+4", "model.head=class"]),
                          ("past", ["data.y=level@-2"])):
        same = [*MODEL, "data.x=wind@-1,level", *targets, "output.receipt=1", "train.exact=layout", "train.grain=8"]
        logs = [run(*same, "data.root=whole.nc", f"run.dir={name}-whole"),
                run(*same, "data.root=parts", "data.join=on", f"run.dir={name}-parts")]
        lines = [re.findall("(?:statistics of|data: arrays|val: ).*", re.sub(r" \([0-9.]+ s\)", "", log)) for log in logs]
        assert lines[0] == lines[1] and len(lines[0]) >= 4, lines
        receipts = []
        for side in "whole", "parts":
            with open(f"{name}-{side}/receipt.csv") as file:
                receipts.append([line.split(",")[:3] for line in file])
        assert receipts[0] == receipts[1] and len(receipts[0]) > 2, receipts
    log = run("predict", "planes-parts", "whole.nc", "predict.output=whole-out.nc")
    assert "has the times of wind@+4; the values of level@-2 are 6 steps earlier" in log, log
    run("predict", "planes-parts", "parts", "predict.output=parts-out.nc")
    run("predict", "planes-parts", "predict.output=held-out.nc")
    with xarray.open_dataset("whole-out.nc") as one, xarray.open_dataset("parts-out.nc") as other:
        assert one.identical(other.drop_vars(["record", "file", "file_sample"])), other
        with xarray.open_dataset("held-out.nc") as last:
            near(last.wind.values, one.wind.sel(time=last.time).values)
            assert last.time.values[-1] == time[-1]
        # The last samples have no target in the files; x has no sample before the first, and y has none before the second.
        assert (one.time.values == time[2] + numpy.arange(4, SAMPLES + 2) * (time[1] - time[0])).all(), one.time
        assert numpy.isfinite(one.wind.values).all()
    for root in "whole.nc", "parts":
        run("predict", "past-parts", root, f"predict.output=past-{root.removesuffix('.nc')}-out.nc")
    with xarray.open_dataset("past-whole-out.nc") as one, xarray.open_dataset("past-parts-out.nc") as other:
        assert one.identical(other.drop_vars(["record", "file", "file_sample"])) and "time" in one.coords, other
    with xarray.open_dataset("whole.nc") as whole:
        whole.isel(time=slice(30, None)).to_netcdf("tail.nc")
    run("predict", "numbers-whole", "tail.nc", "predict.output=tail-out.nc")
    with xarray.open_dataset("tail-out.nc") as tail:
        assert len(tail.time) == SAMPLES - 31 and tail.time.values[-1] == time[-1] + 4 * (time[1] - time[0]), tail
        assert numpy.isfinite(tail.number.values).all()
    refused = run(*MODEL, "data.x=wind", "data.y=wind@+4", "data.root=parts", "run.dir=refused", status=3)
    assert "data.join=on" in refused, refused


def check_latitudes():
    region = series.assign_coords(lat=("lat", numpy.linspace(10, 80, HEIGHT)[::-1], {"standard_name": "latitude"}))
    region.to_netcdf("region.nc")
    region.rename(lat="row").assign_coords(row=numpy.arange(HEIGHT)).to_netcdf("rows.nc")
    options = [*MODEL, "data.x=wind,level", "data.y=wind@+1", "train.row_weight=latitude"]
    log = run(*options, "data.root=region.nc", "run.dir=region")
    assert "8 rows with the latitudes 'lat' from 80 to 10" in log, log
    run("predict", "region/checkpoints/last.h5", "predict.output=region-out.nc")
    with xarray.open_dataset("region-out.nc") as file:
        error = file.wind.astype("f8") - region.wind.sel(time=file.time)
    metrics = outputs("region")["wind@+1"]
    near(float(metrics["rmse"]), (error ** 2).weighted(numpy.cos(numpy.deg2rad(region.lat))).mean() ** 0.5)
    near(float(metrics["bias"]), error.weighted(numpy.cos(numpy.deg2rad(region.lat))).mean(), 1e-3)
    losses = [re.search("loss .* samples", run("eval", "region/weights.safetensors", f"data.root={file}", "data.val=0.25",
                                               "data.val_from=end", "data.coordinates=ignore", "train.precision=fp32"))[0]
              for file in ("region.nc", "rows.nc")]
    assert losses[0] == losses[1], losses  # the weights contain the latitudes
    # The metrics of a run have the weights of its loss: those of the training file.
    os.makedirs("split", exist_ok=True)
    region.to_netcdf("split/train.nc")
    region.assign_coords(lat=region.lat.values * 10).to_netcdf("split/val.nc")  # those are not read
    split = [option for option in options if not option.startswith("data.val")] + ["data.coordinates=ignore"]
    log = run(*split, "data.root=split", "data.val=val", "run.dir=split-run")
    final = re.search("RMSE [^)]*", log[log.index("final:"):])[0]
    assert final in run("eval", "split-run", "train.precision=fp32"), final
    refused = run(*options, "data.root=region.nc", "augment.vflip=0.5", "run.dir=refused", status=2)
    assert "augment.vflip moves rows" in refused, refused
    with h5py.File("unnamed.h5", "w") as file:
        file["wind"], file["level"] = region.wind.values, region.level.values
    log = run(*options, "data.root=unnamed.h5", "run.dir=rows")
    assert "8 equally spaced rows from pole to pole are assumed" in log, log


def check_unusable_latitudes():
    def refuses(file, reason):
        log = run(*MODEL, "data.x=wind", "data.y=wind@+1", "train.row_weight=latitude", f"data.root={file}", "run.dir=refused",
                  status=3)
        assert re.search(reason, log), log

    def with_latitudes(values, **attributes):
        return series[["wind"]].assign_coords(lat=("lat", values, attributes))

    degrees = numpy.linspace(10, 80, HEIGHT)
    curved = series[["wind"]].drop_vars(["lat", "lon"]).rename(lat="y", lon="x")
    curved = curved.assign_coords(nav_lat=(("y", "x"), numpy.zeros((HEIGHT, WIDTH)), {"standard_name": "latitude"}))
    for name, data, reason in (
        ("radians", with_latitudes(numpy.deg2rad(degrees), units="radians"),
         "radians.nc: .* cannot use the rows 'lat' of data.x: it is not a latitude in degrees; make it a coordinate"),
        ("nan", with_latitudes(numpy.where(degrees > 70, numpy.nan, degrees)), "its value nan of row 7 is not in"),
        ("range", with_latitudes(degrees + 20), "its value 100 of row 7 is not in"),
        ("curved", curved, "the rows 'y' of data.x: it is not a latitude"),
        ("columns", with_latitudes(degrees).transpose("time", "lon", "lat"), "the rows 'lon' of data.x: it is not a latitude"),
    ):
        data.to_netcdf(f"{name}.nc")
        refuses(f"{name}.nc", reason)
    with h5py.File("longer.h5", "w") as file:
        file["wind"] = wind
        file["lat"] = numpy.linspace(10, 80, HEIGHT + 2)
        file["lat"].make_scale("lat")
        file["wind"].dims[1].attach_scale(file["lat"])
    refuses("longer.h5", "'lat' of data.x: it does not have one number for each of the 8 rows")


check_transform()
check_residual()
check_join()
check_latitudes()
check_unusable_latitudes()
