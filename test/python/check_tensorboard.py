# SPDX-License-Identifier: BSD-3-Clause
"""Reads a run's TensorBoard events with the real TensorBoard and compares them with metrics.csv.

Every tag must have exactly the steps and (as 32-bit floats) the values of its column; with --parts N
there must be N event files, of a run that was resumed N - 1 times. The entries of the HPARAMS tab must be
the options of deck.ini. --server: also compare what TensorBoard's server sends to a browser, with both of its
readers; the HPARAMS tab must have one row, with the last metrics.

    python check_tensorboard.py RUN_FOLDER [--parts N] [--server]
"""

import argparse
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
    """Describe the first error in the points of a tag; empty if they are right."""
    steps = [step for step, _ in expected]
    if steps != sorted(set(steps)):
        return f"metrics.csv has steps twice or out of order: {steps}"
    if [point.step for point in scalars] != steps:
        return f"steps {[point.step for point in scalars]}, but metrics.csv has {steps}"
    got = numpy.array([point.value for point in scalars])
    want = numpy.array([value for _, value in expected])
    if not numpy.allclose(got, want, rtol=1e-6, atol=0):
        return f"values {got}, but metrics.csv has {want}"
    return ""


SECTIONS = ("model", "data", "augment", "eval", "train", "optim", "schedule", "mesh")
METRICS = ["val/loss", "val/acc", "val/acc_top5", "test/loss", "test/acc", "test/acc_top5"]


def shown_options(folder):
    """Return {option: value} of the HPARAMS tab by the deck, all as texts."""
    return {name: value for name, value in options_of(folder).items()
            if name.split(".")[0] in SECTIONS or name == "run.seed"}


def as_text(value):
    """Return a hyperparameter as a deck writes it."""
    if value.HasField("bool_value"):
        return "on" if value.bool_value else "off"
    return value.string_value if value.HasField("string_value") else value.number_value


def hparams_problems(folder, events):
    """Compare the entries of the HPARAMS tab with deck.ini and result.json."""
    contents = events.PluginTagToContent("hparams")
    start = metadata.parse_session_start_info_plugin_data(contents[metadata.SESSION_START_INFO_TAG])
    experiment = metadata.parse_experiment_plugin_data(contents[metadata.EXPERIMENT_TAG])
    expected = shown_options(folder)
    found = {name: as_text(value) for name, value in start.hparams.items()}
    problems = [f"hparams lack {name}" for name in expected.keys() - found.keys()]
    problems += [f"hparams have {name}" for name in found.keys() - expected.keys()]
    for name, value in found.items():
        want = expected.get(name, "")
        if value != (want if isinstance(value, str) or want == "" else float(want)):
            problems.append(f"hparams: {name}={value}, but deck.ini has {want}")
    types = {info.name: info.type for info in experiment.hparam_infos}
    if types.keys() != expected.keys() or types["optim.lr"] != api_pb2.DATA_TYPE_FLOAT64 or \
            types["model.dim"] != api_pb2.DATA_TYPE_STRING or types["data.drop_last"] != api_pb2.DATA_TYPE_BOOL:
        problems.append(f"types of hparams: {types}")
    if [info.name.tag for info in experiment.metric_infos] != METRICS:
        problems.append(f"metrics of hparams: {experiment.metric_infos}")
    with open(os.path.join(folder, "result.json")) as file:
        finished = json.load(file)["finished"]
    if (metadata.SESSION_END_INFO_TAG in contents) != finished:
        problems.append(f"hparams: an end, although finished is {finished}" if not finished else "hparams: no end")
    if finished and metadata.parse_session_end_info_plugin_data(
            contents[metadata.SESSION_END_INFO_TAG]).status != api_pb2.STATUS_SUCCESS:
        problems.append("hparams: the end is not a success")
    return problems


def post(port, what, request):
    """Return the answer of the hparams plugin of a server."""
    return json.load(urllib.request.urlopen(urllib.request.Request(
        f"http://127.0.0.1:{port}/data/plugin/hparams/{what}", json.dumps(request).encode(),
        {"Content-Type": "application/json"})))


def groups_problems(port, expected):
    """Compare the rows of the HPARAMS tab with the last metrics."""
    statuses = ["STATUS_SUCCESS", "STATUS_RUNNING", "STATUS_UNKNOWN", "STATUS_FAILURE"]
    groups = post(port, "session_groups", {"experimentName": "", "allowedStatuses": statuses, "startIndex": 0,
                                           "sliceSize": 100})["sessionGroups"]
    if len(groups) != 1 or len(groups[0]["sessions"]) != 1:
        return [f"{len(groups)} rows in the HPARAMS tab"]
    found = {item["name"]["tag"]: item["value"] for item in groups[0]["metricValues"]}
    last = {tag: expected[tag][-1][1] for tag in METRICS if tag in expected}
    good = found.keys() == last.keys() and numpy.allclose([found[tag] for tag in last], list(last.values()), rtol=1e-6)
    return [] if good else [f"metrics in the HPARAMS tab: {found}, but metrics.csv has {last}"]


def served(folder, fast, expected):
    """Return the steps of train/loss from a TensorBoard server, as a browser gets them, and problems of hparams."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "tensorboard.main", "--logdir", folder, "--host", "127.0.0.1", "--port", str(port),
         f"--load_fast={fast}", "--samples_per_plugin=scalars=1000000"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    steps, before, problems = [], None, []
    try:
        for _ in range(120):
            time.sleep(0.5)
            try:
                with urllib.request.urlopen(
                        f"http://127.0.0.1:{port}/data/plugin/scalars/scalars?tag=train/loss&run=.") as answer:
                    steps = [point[1] for point in json.load(answer)]
            except OSError:
                continue
            if steps and steps == before:
                problems = groups_problems(port, expected)
                break
            before = steps
    finally:
        server.terminate()
        server.wait()
    return steps, problems


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--server", action="store_true")
    arguments = parser.parse_args()
    problems = []
    files = glob.glob(os.path.join(arguments.folder, "events.out.tfevents.*"))
    if len(files) != arguments.parts:
        problems.append(f"{len(files)} event files, not {arguments.parts}")
    events = event_accumulator.EventAccumulator(
        arguments.folder, size_guidance={event_accumulator.SCALARS: 0})
    events.Reload()
    expected = expected_series(arguments.folder)
    for tag in ("train/loss", "train/acc", "train/acc_top5", "val/loss", "lr", "time/data"):
        if tag not in expected:
            problems.append(f"metrics.csv has nothing for {tag}")
    # Values of sensors are in monitor.csv.
    tags = {tag for tag in events.Tags()["scalars"] if not tag.startswith("sensors/")}
    if len(tags) == len(events.Tags()["scalars"]):
        problems.append("no tags of the sensors")
    if tags != set(expected):
        problems.append(f"tags {sorted(tags)}, not {sorted(expected)}")
    else:
        for tag, points in expected.items():
            problem = compare(tag, points, events.Scalars(tag))
            if problem:
                problems.append(f"{tag}: {problem}")
    problems += hparams_problems(arguments.folder, events)
    for fast in ("true", "false") if arguments.server else ():
        steps, more = served(arguments.folder, fast, expected)
        problems += more
        if steps != [step for step, _ in expected["train/loss"]]:
            problems.append(f"the server with --load_fast={fast} has train/loss of steps {steps}")
    for problem in problems:
        print(f"{arguments.folder}: {problem}", file=sys.stderr)
    if not problems:
        print(f"{len(expected)} tags, {sum(map(len, expected.values()))} points")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
