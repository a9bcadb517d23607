"""Reads a run's TensorBoard events with the real TensorBoard and compares them with metrics.csv.

Every tag must have exactly the steps and (as 32-bit floats) the values of its column; with --parts N
there must be N event files, of a run that was resumed N - 1 times. --server: also compare what TensorBoard's
server sends to a browser, with both of its readers.

    python check_tensorboard.py RUN_FOLDER [--parts N] [--server]
"""

import argparse
import csv
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
    with open(os.path.join(folder, "metrics.csv"), newline="") as file:
        for row in csv.DictReader(file):
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


def served(folder, fast):
    """Return the steps of train/loss from a TensorBoard server, as a browser gets them."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "tensorboard.main", "--logdir", folder, "--host", "127.0.0.1", "--port", str(port),
         f"--load_fast={fast}", "--samples_per_plugin=scalars=1000000"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    steps, before = [], None
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
                break
            before = steps
    finally:
        server.terminate()
        server.wait()
    return steps


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
    for fast in ("true", "false") if arguments.server else ():
        steps = served(arguments.folder, fast)
        if steps != [step for step, _ in expected["train/loss"]]:
            problems.append(f"the server with --load_fast={fast} has train/loss of steps {steps}")
    for problem in problems:
        print(f"{arguments.folder}: {problem}", file=sys.stderr)
    if not problems:
        print(f"{len(expected)} tags, {sum(map(len, expected.values()))} points")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
