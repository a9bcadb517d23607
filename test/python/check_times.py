# SPDX-License-Identifier: BSD-3-Clause
"""Times and grids of NetCDF-4 files and Zarr stores against xarray: pairs over gaps, months and calendars, splits, the
coordinates of predictions, and grids that differ.

    check_times.py VITTRAIN FOLDER
"""
import os
import re

import numpy
import xarray

from support import ARRAYS, program_in_folder

run = program_in_folder()
MODEL = [*ARRAYS, *"train.global_batch=4 train.steps=1 data.task=regression model.head=dense".split()]
LAT, LON = numpy.linspace(70, -70, 8), numpy.arange(8) * 45.0


def field(times, name="u", **attributes):
    """A field whose values are the number of its time in `times`."""
    values = numpy.zeros((len(times), 8, 8), "f4") + numpy.arange(len(times), dtype="f4")[:, None, None]
    return xarray.Dataset({name: (("time", "lat", "lon"), values, attributes)},
                          {"time": times, "lat": ("lat", LAT, {"units": "degrees_north"}),
                           "lon": ("lon", LON, {"units": "degrees_east"})})


def statistics(log):
    return float(re.search(r"statistics of \d+ training samples.*: mean ([^;]*);", log)[1])


def check_calendars():
    """The samples of u@+2 months, by calendar: their mean is that of the samples that xarray selects."""
    for calendar in "standard", "julian", "noleap", "360_day":
        times = xarray.date_range("1999-01-01", periods=60, freq="MS", calendar=calendar, use_cftime=True)
        kept = numpy.r_[0:20, 21:60]  # a month is missing
        data = field(times).isel(time=kept)
        data.to_netcdf("months.nc", encoding={"time": {"units": "days since 1850-01-01"}})
        shown = [n for n in kept if n + 2 in kept]
        log = run(*MODEL, "data.root=months.nc", "data.x=u", "data.y=u@+2", "data.val=none", "run.dir=months-" + calendar)
        assert f"statistics of {len(shown)} training samples" in log, log
        assert abs(statistics(log) - numpy.mean(shown)) < 1e-4, log
        assert f"{len(kept) - len(shown)} of {len(kept)} samples are left out, 2 of them at the ends of series" in log, log
        run("predict", "months-" + calendar, "months.nc", "predict.output=months-out.nc")
        with xarray.open_dataset("months-out.nc", decode_times=xarray.coders.CFDatetimeCoder(use_cftime=True)) as out:
            whole = xarray.date_range("1999-01-01", periods=64, freq="MS", calendar=calendar, use_cftime=True)
            assert list(out.time.values) == [whole[n + 2] for n in kept], (calendar, out.time.values)


def check_members():
    """Members have the same times: each is a series, and the last times of all are held out."""
    os.makedirs("members", exist_ok=True)
    times = xarray.date_range("2001-01-01", periods=20, freq="6h")
    for member in range(3):
        field(times).to_netcdf(f"members/m{member}.nc")
    log = run(*MODEL, "data.root=members", "data.x=u", "data.y=u@+1", "data.val=0.25", "data.val_from=end", "run.dir=members-run")
    # 57 pairs, 14 of which are to be held out: those of the last five times, of which the first use time 14.
    assert "data: arrays, 39 training and 15 validation samples" in log, log
    assert abs(statistics(log) - numpy.mean(numpy.arange(13))) < 1e-4, log
    log = run(*MODEL, "data.root=members", "data.x=u", "data.y=u@+1", "data.val=0.25", "run.dir=random-run")
    assert "data.val_from=end holds out the last ones" in log, log


def check_periods():
    """The samples of data.val=PERIODS are those that xarray selects, and no training sample has their values."""
    for calendar in "standard", "noleap", "360_day":
        times = xarray.date_range("2019-12-01", periods=800, freq="6h", calendar=calendar, use_cftime=True)
        data = field(times)
        for part in range(2):
            os.makedirs(f"periods-{calendar}", exist_ok=True)
            data.isel(time=slice(400 * part, 400 * part + 400)).to_netcdf(f"periods-{calendar}/f{part}.nc")
        number = xarray.DataArray(numpy.arange(800), {"time": times}, ("time",))
        for n, periods in enumerate(("2019", "2020-02", "2020-02-28..2020-03-01", "2020-03-05..", "..2019-12-29T06,2020-03-30T06")):
            held = set()
            for item in periods.split(","):
                begin, dots, end = item.partition("..")
                held |= set(number.sel(time=slice(begin or None, (end if dots else begin) or None)).values)
            held = {h for h in held if 0 < h < 798}  # u@-6h and u@+12h exist
            kept = [k for k in range(1, 798) if k not in held and not held & set(range(k - 3, k + 4))]
            log = run(*MODEL, f"data.root=periods-{calendar}", "data.join=on", "data.x=u@-6h,u", "data.y=u@+12h", f"data.val={periods}",
                      f"run.dir=periods-{calendar}-{n}")
            assert f"{len(kept)} training and {len(held)} validation samples" in log, (periods, len(kept), len(held), log)
            found = re.search(r"statistics of \d+ training samples.*: mean ([^;]*);", log)[1].split(", ")
            assert abs(float(found[1]) - numpy.mean(kept)) < 1e-3 * numpy.mean(kept), (found, numpy.mean(kept))
            run("predict", f"periods-{calendar}-{n}", "predict.split=val", "predict.output=period.nc")
            with xarray.open_dataset("period.nc", decode_times=xarray.coders.CFDatetimeCoder(use_cftime=True)) as out:
                assert list(out.time.values) == [times[h + 2] for h in sorted(held)], out.time


def check_grids():
    """Grids and units that differ from those of the first file, and of the weights."""
    times = xarray.date_range("2001-01-01", periods=12, freq="h")
    good = field(times, units="K").assign(v=(("time", "lat", "lon"), numpy.ones((12, 8, 8), "f4"), {"units": "m s-1"}))
    turned = good.isel(lat=slice(None, None, -1))
    wrong = {"lat": turned, "lon": good.assign_coords(lon=good.lon + 22.5),
             "units": good.assign(u=good.u.assign_attrs(units="degC")), "order": good.transpose("time", "lon", "lat")}
    same = {"spelling": good.assign(u=good.u.assign_attrs(units="kelvin"), v=good.v.assign_attrs(units="m/s")),
            "unknown": good.assign(u=good.u.assign_attrs(units="")),
            "east": good.assign_coords(lon=("lon", (good.lon.values + 180) % 360 - 180, {"units": "degrees_east"})),
            "rounded": good.assign_coords(lat=good.lat.astype("f4"))}
    options = [*MODEL, "data.x=u,v", "data.y=u@+1", "data.val=val"]
    for name, data in {**same, **wrong}.items():
        os.makedirs(f"grids-{name}", exist_ok=True)
        good.to_netcdf(f"grids-{name}/train.nc")
        data.to_netcdf(f"grids-{name}/val.nc")
        if name in same:
            run(*options, f"data.root=grids-{name}", f"run.dir=on-{name}")
            continue
        refused = run(*options, f"data.root=grids-{name}", f"run.dir=on-{name}", status=3)
        expected = {"lat": "coordinate 0 is -70 instead of 70", "lon": "coordinate 0 is 22.5 instead of 0",
                    "units": "'degC'", "order": "dimensions (time, lon, lat) instead of ("}[name]
        assert expected in refused and f"grids-{name}/val.nc" in refused and f"grids-{name}/train.nc" in refused, refused
        log = run(*options, f"data.root=grids-{name}", f"run.dir=on-{name}", "data.coordinates=ignore")
        assert "data.coordinates=ignore" in log, log
        for weights in "on-spelling/weights.safetensors", "on-spelling/checkpoints/last.h5":
            refused = run("predict", weights, f"grids-{name}/val.nc", "predict.output=out.nc", status=3)
            assert expected in refused and "on-spelling/" in refused, refused
    xarray.merge([good[["u"]], good[["v"]].transpose("time", "lon", "lat")]).to_netcdf("beside.nc")
    refused = run(*options[:-1], "data.root=beside.nc", "data.val=none", "run.dir=beside", status=3)
    assert "dimensions (time, lon, lat) instead of (time, lat, lon)" in refused, refused
    good.transpose("lat", "lon", "time").to_netcdf("last.nc")
    refused = run(*options[:-1], "data.root=last.nc", "data.val=none", "run.dir=last", status=3)
    assert "(lat, lon, time): the first must have the samples" in refused, refused
    field(times[::2]).to_netcdf("slow.nc")
    good.to_netcdf("hours.nc")
    run(*MODEL, "data.root=hours.nc", "data.x=u", "data.y=u@+1", "data.val=none", "run.dir=hours")
    refused = run("eval", "hours", "data.root=slow.nc", "data.val=0.5", "data.val_from=end", status=3)
    assert "a step of 2 hours" in refused and "of 1 hour" in refused, refused


def check_levels():
    """Names of dimensions decide about channels, and predictions have the level, also in Zarr."""
    times = xarray.date_range("2001-01-01", periods=12, freq="h")
    random = numpy.random.default_rng(1)
    values = random.normal(0, 1, (12, 16, 12, 8)).astype("f4")
    level = ("level", numpy.linspace(1000, 10, 16), {"units": "hPa"})
    data = xarray.Dataset({"z": (("time", "level", "lat", "lon"), values)},
                          {"time": times, "level": level, "lat": numpy.linspace(70, -70, 12), "lon": LON},
                          {"title": "a test", "history": "written"})
    data.to_netcdf("level.nc")
    data.to_zarr("level.zarr", mode="w")
    for root in "level.nc", "level.zarr":
        log = run(*MODEL, f"data.root={root}", "data.x=z", "data.y=z@+1", "data.val=none", f"run.dir=run-{root}")
        assert "data.x=z: 16 channels of 12x8, order chw" in log, log
        run("predict", f"run-{root}", root, f"predict.output={root}-out.nc")
        with xarray.open_dataset(f"{root}-out.nc") as out:
            assert (out.z - data.z).dims == ("time", "level", "lat", "lon"), out
            assert (out.level.values == data.level.values).all() and out.level.units == "hPa", out
            assert out.title == "a test" and re.fullmatch("vittrain .*\nwritten", out.history), out.attrs
        refused = run(*MODEL, f"data.root={root}", "data.x=z", "data.y=z@+1", "data.order=hwc", "run.dir=wrong", status=3)
        assert "channels are first, and data.order=hwc" in refused, refused


def check_axes():
    """Which coordinate has the times: not one of another dimension; auxiliary ones; two of one file."""
    times = xarray.date_range("2001-01-01", periods=12, freq="D")
    data = field(times)
    data["w"] = (("member", "lat", "lon"), data.u.values)
    data["member"] = ("member", numpy.arange(12)[::-1])
    data.to_netcdf("members.nc")
    options = [*MODEL, "data.val=none"]
    refused = run(*options, "data.root=members.nc", "data.x=w", "data.y=w@+1", "run.dir=wrong", status=3)
    assert "'member' decreases at sample 1: 11 is followed by 10" in refused, refused
    for units in "days since 1950-01-01", "hours since 2001-01-02":
        two = field(times)
        two["v"] = (("time2", "lat", "lon"), two.u.values)
        two["time2"] = ("time2", numpy.arange(12.0), {"units": units})
        two.to_netcdf("two.nc", encoding={"time": {"units": "hours since 2001-01-01"}})
        refused = run(*options, "data.root=two.nc", "data.x=u", "data.y=v", "run.dir=wrong", status=3)
        assert "dimension 'time2' of v differs from 'time' of u" in refused, refused
    two["time2"] = ("time2", numpy.arange(12.0), {"units": "days since 2001-01-01"})  # the same times
    two.to_netcdf("two.nc", encoding={"time": {"units": "hours since 2001-01-01"}})
    run(*options, "data.root=two.nc", "data.x=u", "data.y=v", "run.dir=same-times")
    wrf = xarray.Dataset({"u": (("Time", "y", "x"), data.u.values)}, {"XTIME": ("Time", numpy.r_[0:6, 9:15] * 60.0)})
    wrf.XTIME.attrs["units"] = "minutes since 2000-01-01"
    wide = xarray.concat([wrf] * 4, "Time").assign_coords(XTIME=("Time", numpy.r_[0:16, 22:38, 44:60] * 60.0, wrf.XTIME.attrs))
    wide.to_netcdf("wrf.nc", unlimited_dims="Time")
    log = run(*options, "data.root=wrf.nc", "data.x=u", "data.y=u@+1", "run.dir=wrf")
    assert "steps of 1 hour in 'Time': 3 of 48 samples are left out, 2 of them at gaps" in log, log


def check_steps_of_weights():
    """A model without offsets of data.x predicts from any times; a resumed run compares grid and step."""
    times = xarray.date_range("2001-01-01", periods=40, freq="6h")
    data = field(times)
    data.to_netcdf("steps.nc")
    options = [*MODEL, "data.root=steps.nc", "data.x=u", "data.y=u@+1", "data.val=none", "run.dir=steps"]
    run(*options)
    for kept in (slice(None, None, 2), [0, 1, 2, 7, 19, 20], [5]):
        data.isel(time=kept).to_netcdf("sparse.nc")
        run("predict", "steps", "sparse.nc", "predict.output=sparse-out.nc")
        with xarray.open_dataset("sparse-out.nc") as out:
            assert (out.time.values == numpy.atleast_1d(times[kept]) + numpy.timedelta64(6, "h")).all(), out.time
    data.isel(lat=slice(None, None, -1)).to_netcdf("steps.nc")
    refused = run(*[word.replace("train.steps=1", "train.steps=2") for word in options], status=2)
    assert "cannot resume" in refused and "coordinate 0 is -70 instead of 70" in refused, refused


def check_spellings():
    times = xarray.date_range("2001-01-01", periods=8, freq="h")
    lon = numpy.arange(3500, 3508) / 10
    pairs = (("J kg-1 K-1", "J/(kg K)"), ("kg m-2 s-1", "kg/(m2 s)"), ("m s-1", "s-1 m"), ("kg kg-1", "1"), ("W m-2", "W/m^2"),
             ("m s**-1", "m/s"), ("degC", "celsius"))
    os.makedirs("spelled", exist_ok=True)
    for one, other in pairs:
        field(times, units=one).assign_coords(lon=lon).to_netcdf("spelled/train.nc")
        field(times, units=other).assign_coords(lon=lon.astype("f4")).to_netcdf("spelled/val.nc")
        run(*MODEL, "data.root=spelled", "data.x=u", "data.y=u@+1", "data.val=val", f"run.dir=spelled-{pairs.index((one, other))}")


for check in check_axes, check_steps_of_weights, check_spellings, check_calendars, check_members, check_periods, check_grids, check_levels:
    check()
    print("ok", check.__name__)
