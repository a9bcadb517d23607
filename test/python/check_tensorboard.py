# SPDX-License-Identifier: BSD-3-Clause
"""Reads a run's TensorBoard events with the real TensorBoard and compares them with metrics.csv.

Every tag must have exactly the steps and (as 32-bit floats) the values of its column. There must be
PARTS event files, of a run that was resumed PARTS - 1 times. The entries of the HPARAMS tab must be
the options of deck.ini. With `server`, what TensorBoard's server sends to a browser is compared,
too, with both of its readers; the HPARAMS tab must have one row, with the last metrics.

    check_tensorboard.py RUN_FOLDER PARTS [server]
"""

import glob
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request

import numpy
from tensorboard.backend.event_processing import event_accumulator
from tensorboard.plugins.hparams import api_pb2, metadata

from support import options_of, table

# tag: (split, column); the tags of a split are SPLIT/NAME
SPLIT_TAGS = {"loss": "loss", "acc": "top1", "acc_top5": "top5"}
TRAIN_TAGS = {
    "lr": "lr",
    "grad_norm": "grad_norm",
    "images_per_second": "images_per_second",
    "peak_share": "peak_share",
    "loss_scale": "loss_scale",
    "skipped_steps": "skipped_steps",
    "time/data": "data_seconds",
    "time/compute": "compute_seconds",
    "time/comm": "comm_seconds",
    "time/exposed_comm": "exposed_comm_seconds",
}
SECTIONS = ("model", "data", "augment", "eval", "train", "optim", "schedule", "mesh")
METRICS = ["val/loss", "val/acc", "val/acc_top5", "test/loss", "test/acc", "test/acc_top5"]


def expected_series(folder):
    """Return {tag: [(step, value)]} from metrics.csv."""
    series = {}
    for row in table(os.path.join(folder, "metrics.csv")):
        if row["split"] == "epoch":
            continue
        tags = {f"{row['split']}/{name}": column for name, column in SPLIT_TAGS.items()}
        if row["split"] == "train":
            tags.update(TRAIN_TAGS)
        for tag, column in tags.items():
            if row[column] != "":
                series.setdefault(tag, []).append((int(row["step"]), float(row[column])))
    return series


def compare(tag, expected, scalars):
    steps = [step for step, _ in expected]
    assert steps == sorted(set(steps)), f"metrics.csv has steps twice or out of order: {steps}"
    assert [point.step for point in scalars] == steps, (tag, steps, scalars)
    got = numpy.array([point.value for point in scalars])
    want = numpy.array([value for _, value in expected])
    assert numpy.allclose(got, want, rtol=1e-6, atol=0), (tag, got, want)


def as_text(value):
    """Return a hyperparameter as a deck writes it."""
    if value.HasField("bool_value"):
        return "on" if value.bool_value else "off"
    return value.string_value if value.HasField("string_value") else value.number_value


def check_hparams(folder, events):
    """Compare the entries of the HPARAMS tab with deck.ini and result.json."""
    contents = events.PluginTagToContent("hparams")
    start = metadata.parse_session_start_info_plugin_data(contents[metadata.SESSION_START_INFO_TAG])
    experiment = metadata.parse_experiment_plugin_data(contents[metadata.EXPERIMENT_TAG])
    expected = {
        name: value
        for name, value in options_of(folder).items()
        if name.split(".")[0] in SECTIONS or name == "run.seed"
    }
    found = {name: as_text(value) for name, value in start.hparams.items()}
    assert found.keys() == expected.keys(), found.keys() ^ expected.keys()
    for name, value in found.items():
        want = expected[name]
        want = want if isinstance(value, str) or want == "" else float(want)
        assert value == want, (name, value, want)
    types = {info.name: info.type for info in experiment.hparam_infos}
    assert types.keys() == expected.keys(), types
    assert types["optim.lr"] == api_pb2.DATA_TYPE_FLOAT64, types
    assert types["model.dim"] == api_pb2.DATA_TYPE_STRING, types
    assert types["data.drop_last"] == api_pb2.DATA_TYPE_BOOL, types
    assert [info.name.tag for info in experiment.metric_infos] == METRICS
    with open(os.path.join(folder, "result.json")) as file:
        finished = json.load(file)["finished"]
    end = contents.get(metadata.SESSION_END_INFO_TAG)
    assert (end is not None) == finished, end
    if finished:
        status = metadata.parse_session_end_info_plugin_data(end).status
        assert status == api_pb2.STATUS_SUCCESS, status


def get(port, path, request=None):
    """Return the answer of a server to a browser."""
    data = None if request is None else json.dumps(request).encode()
    headers = {"Content-Type": "application/json"}
    url = f"http://127.0.0.1:{port}/data/plugin/{path}"
    return json.load(urllib.request.urlopen(urllib.request.Request(url, data, headers)))


def check_groups(port, expected):
    """Compare the rows of the HPARAMS tab with the last metrics."""
    request = {
        "experimentName": "",
        "allowedStatuses": [f"STATUS_{s}" for s in ("SUCCESS", "RUNNING", "UNKNOWN", "FAILURE")],
        "startIndex": 0,
        "sliceSize": 100,
    }
    (group,) = get(port, "hparams/session_groups", request)["sessionGroups"]
    assert len(group["sessions"]) == 1, group
    found = {item["name"]["tag"]: item["value"] for item in group["metricValues"]}
    last = {tag: expected[tag][-1][1] for tag in METRICS if tag in expected}
    assert found.keys() == last.keys(), (found, last)
    assert numpy.allclose([found[tag] for tag in last], list(last.values()), rtol=1e-6), found


def check_server(folder, fast, expected):
    """Compare the steps of train/loss, when all are read, and the HPARAMS tab."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = ["--logdir", folder, "--host", "127.0.0.1", "--port", str(port)]
    words += [f"--load_fast={fast}", "--samples_per_plugin=scalars=1000000"]
    server = subprocess.Popen(
        [sys.executable, "-m", "tensorboard.main", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    steps, before = [], None
    try:
        for _ in range(120):
            time.sleep(0.5)
            try:
                points = get(port, "scalars/scalars?tag=train/loss&run=.")
            except OSError:
                continue
            steps = [point[1] for point in points]
            if steps and steps == before:
                break
            before = steps
        assert steps == [step for step, _ in expected["train/loss"]], (fast, steps)
        check_groups(port, expected)
    finally:
        server.terminate()
        server.wait()


def main(folder, parts, *server):
    files = glob.glob(os.path.join(folder, "events.out.tfevents.*"))
    assert len(files) == int(parts), files
    events = event_accumulator.EventAccumulator(
        folder, size_guidance={event_accumulator.SCALARS: 0}
    )
    events.Reload()
    expected = expected_series(folder)
    common = {"train/loss", "train/acc", "train/acc_top5", "val/loss", "lr", "time/data"}
    assert common <= expected.keys(), expected.keys()
    scalars = set(events.Tags()["scalars"])
    tags = {tag for tag in scalars if not tag.startswith("sensors/")}  # those are in monitor.csv
    assert tags == expected.keys() and tags != scalars, scalars ^ expected.keys()
    for tag, points in expected.items():
        compare(tag, points, events.Scalars(tag))
    check_hparams(folder, events)
    for fast in ("true", "false") if server else ():
        check_server(folder, fast, expected)
    print(f"{len(expected)} tags, {sum(map(len, expected.values()))} points")


main(*sys.argv[1:])
