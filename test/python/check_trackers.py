# SPDX-License-Identifier: BSD-3-Clause
"""Runs the scripts of docs/trackers.md on a run, and compares what the clients stored with metrics.csv, deck.ini and
result.json.

    check_trackers.py RUN_FOLDER FOLDER      (FOLDER: made, and used as the working directory)
"""
import json
import os
import pathlib
import struct
import sys

import mlflow
import wandb
from wandb.proto import wandb_internal_pb2

from support import options_of, python_of, table


def expected_of(folder):
    """Return {metric: [(step, value)]} and the options."""
    metrics = {}
    for row in table(f"{folder}/metrics.csv"):
        for key in row.keys() - {"step", "split", "output"}:
            name = f"{row['split']}/{key}" + (f"/{row['output']}" if row["output"] else "")
            if row[key]:
                metrics.setdefault(name, []).append((int(row["step"]), float(row[key])))
    return metrics, options_of(folder)


def check_mlflow(metrics, options, tags):
    client = mlflow.MlflowClient()
    (run,) = client.search_runs([client.get_experiment_by_name("vittrain").experiment_id])
    assert run.data.params == options, run.data.params.items() ^ options.items()
    assert set(tags) <= run.data.tags.keys(), run.data.tags
    for name, points in metrics.items():
        found = [(metric.step, metric.value) for metric in client.get_metric_history(run.info.run_id, name)]
        assert sorted(found) == points, (name, found, points)


def records(path):
    """Records of wandb's file: fragments in blocks of 32 KiB with headers of 7 bytes. Kinds: 1 whole; 2, 3, 4 first to last."""
    data, at, whole = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        room = 32768 - at % 32768
        if room < 7:
            at += room
            continue
        _, length, kind = struct.unpack("<IHB", data[at:at + 7])
        whole += data[at + 7:at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            whole = b""
            yield record


def check_wandb(metrics, options):
    (path,) = pathlib.Path("wandb").glob("offline-run-*/*.wandb")
    found, config = {}, {}
    for record in records(path):
        for item in record.history.item:
            name = item.key or "/".join(item.nested_key)
            if not name.startswith("_"):
                found.setdefault(name, []).append((record.history.step.num, float(json.loads(item.value_json))))
        for item in record.run.config.update:
            config[item.key or ".".join(item.nested_key)] = json.loads(item.value_json)
    assert found == metrics, found.keys() ^ metrics.keys()
    assert config.items() >= options.items(), options.keys() - config.keys()


def main():
    folder, work = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
    (work / "runs").mkdir(parents=True)
    os.chdir(work)
    (work / "runs/tracked").symlink_to(folder)
    for script in python_of("trackers.md"):
        exec(compile(script, "docs/trackers.md", "exec"), {})
    wandb.teardown()  # finish() may return before the file is complete
    metrics, options = expected_of(folder)
    with open(folder / "result.json") as file:
        tags = json.load(file)["tags"]
    check_mlflow(metrics, options, tags)
    check_wandb(metrics, options)
    print(f"{len(metrics)} metrics, {len(options)} options")


if __name__ == "__main__":
    main()
