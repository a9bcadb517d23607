# SPDX-License-Identifier: BSD-3-Clause
"""Imports a run into Weights & Biases offline, as docs/outputs.md shows, and checks the data that wandb would
send: each step of metrics.csv occurs once.

    python check_wandb.py RUN_FOLDER
"""

import csv
import glob
import os
import struct
import sys
import tempfile

import wandb
from tensorboard.backend.event_processing import event_accumulator
from wandb.proto import wandb_internal_pb2


def bring(folder, **settings):
    """All points of all attempts of the run; TensorBoard's reader drops points that a later attempt replaced."""
    events = event_accumulator.EventAccumulator(folder, size_guidance={event_accumulator.SCALARS: 0})
    events.Reload()
    rows = {}
    for tag in events.Tags()["scalars"]:
        for point in events.Scalars(tag):
            rows.setdefault(point.step, {})[tag] = point.value
    run = wandb.init(project="vittrain", name=os.path.basename(folder), **settings)
    for step in sorted(rows):
        run.log(rows[step], step=step)
    run.finish()


def records(path):
    """Records of wandb's file: fragments in blocks of 32 KiB with headers of 7 bytes; kinds 1: whole, 2, 3, 4: first to last."""
    with open(path, "rb") as file:
        data = file.read()
    at, whole = 7, b""
    while at + 7 <= len(data):
        room = 32768 - at % 32768
        if room < 7:
            at += room
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            whole = b""
            yield record


def main():
    folder = os.path.abspath(sys.argv[1])
    with open(os.path.join(folder, "metrics.csv"), newline="") as file:
        expected = [int(row["step"]) for row in csv.DictReader(file) if row["split"] == "train"]
    with tempfile.TemporaryDirectory() as scratch:
        bring(folder, mode="offline", dir=scratch)
        wandb.teardown()  # finish() may return before the file is complete
        (path,) = glob.glob(os.path.join(scratch, "wandb", "offline-run-*", "*.wandb"))
        steps = []
        for record in records(path):
            keys = {item.key or "/".join(item.nested_key) for item in record.history.item}
            if "train/loss" in keys:
                steps.append(record.history.step.num)
    if steps != expected:
        sys.exit(f"{folder}: wandb has the losses of steps {steps}, metrics.csv of {expected}")
    print(f"{len(steps)} steps")


if __name__ == "__main__":
    main()
