"""What uploads cost: rows of the CSV (see README.md). The store is test/s3_endpoint.py on this machine.

    upload.py fault GB SHARE     a run's folder with a checkpoint of GB gigabytes, sent while such a share of all requests
                                 fails (500, 503, broken or lost connections, cut answers): seconds; is every byte there?
    upload.py step PAIRS         the step of the CIFAR ViT on one core, with and without an upload of 200 MB beside
                                 it, in turn; the store has the other core

The program is ../vittrain, or VITTRAIN.
"""
import csv
import filecmp
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from bench_common import print_row

here = pathlib.Path(__file__).resolve().parent
program = os.environ.get("VITTRAIN", str(here.parent / "vittrain"))
version = subprocess.run([program, "--version"], capture_output=True, text=True).stdout.split("\n")[0].replace(",", " ")
common = dict(framework="vittrain", version=version, strategy="none", ranks=1, threads=1, precision="fp32")


class Store:
    def __init__(self, folder, prefix=()):
        self.folder = folder
        (folder / "bucket").mkdir(parents=True)
        command = [*prefix, sys.executable, str(here.parent / "test" / "s3_endpoint.py"), str(folder)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        port = int(self.process.stdout.readline())
        self.environment = dict(os.environ, AWS_ACCESS_KEY_ID="AKTEST", AWS_SECRET_ACCESS_KEY="sec/ret+1",
                                AWS_EC2_METADATA_DISABLED="true", AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}",
                                AWS_CONFIG_FILE="/dev/null", AWS_SHARED_CREDENTIALS_FILE="/dev/null")

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def write_noise(path, size):
    with open(path, "wb") as file:
        for _ in range(size // 1000000):
            file.write(os.urandom(1000000))


def fault(work, gigabytes, share):
    checkpoints = work / "run" / "checkpoints"
    checkpoints.mkdir(parents=True)
    write_noise(checkpoints / "step-00000001.h5", int(gigabytes * 1e9))
    for link in ("last.h5", "best.h5"):
        (checkpoints / link).symlink_to("step-00000001.h5")
    for number in range(20):
        (work / "run" / f"table-{number}.csv").write_text(f"{number}\n")
    store = Store(work / "store")
    (store.folder / "faults").write_text(json.dumps({"share": share}))
    begin = time.monotonic()
    process = subprocess.Popen([program, "upload", str(work / "run"), "s3://bucket/run"], env=store.environment,
                               stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - begin
    store.close()
    sent = store.folder / "bucket" / "run%2Fcheckpoints%2Fstep-00000001.h5"
    whole = status == 0 and filecmp.cmp(sent, checkpoints / "step-00000001.h5", shallow=False)
    lines = (store.folder / "requests").read_text().splitlines()
    failed = sum(line.rsplit(" ", 1)[1] in ("500", "503", "cut") for line in lines)
    fields = dict(common, work=f"upload with {share:.0%} failing requests", model=f"{gigabytes:g} GB", batch="-")
    for metric, value, unit in (("seconds", f"{seconds:.1f}", "s"), ("rate", f"{gigabytes * 1e3 / seconds:.0f}", "MB/s"),
                                ("processor time", f"{usage.ru_utime + usage.ru_stime:.2f}", "s"),
                                ("most memory", f"{usage.ru_maxrss / 1024:.0f}", "MiB"),
                                ("requests", len(lines), "1"), ("failed requests", failed, "1"),
                                ("whole and equal", int(whole), "1")):
        print_row(**fields, metric=metric, value=value, unit=unit)


def train(work, name, store):
    folder = work / name
    folder.mkdir()
    command = ["taskset", "-c", "0", program, f"run.dir={folder}", "output.logbook=", "model.name=vit_cifar", "data.format=synthetic",
               "train.precision=fp32", "train.batch=16", "train.steps=30", "run.threads=1", "output.log_every=1",
               "output.weights=off", "data.val=none", "checkpoint.every=0", "output.upload_wait=0"]
    if store is not None:
        os.link(work / "large", folder / "large")
        command += ["output.upload=s3://bucket/" + name]
    done = subprocess.run(command, env=store.environment if store else None, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    with open(folder / "metrics.csv") as file:
        steps = [float(row["step_seconds"]) for row in csv.DictReader(file) if row["split"] == "train"]
    return statistics.median(steps[5:])


def step(work, pairs):
    write_noise(work / "large", 200000000)
    store = Store(work / "store", ["taskset", "-c", "1"])
    seconds = {"alone": [], "beside an upload": []}
    for pair in range(pairs):
        seconds["alone"].append(train(work, f"alone-{pair}", None))
        seconds["beside an upload"].append(train(work, f"beside-{pair}", store))
    parts = sum("PUT" in line and "partNumber" in line for line in (store.folder / "requests").read_text().splitlines())
    store.close()
    fields = dict(common, model="vit_cifar", batch=16)
    for name, values in seconds.items():
        print_row(**fields, work=f"training step {name}", metric="step", value=f"{statistics.median(values):.5f}", unit="s")
    ratios = sorted(b / a for a, b in zip(seconds["alone"], seconds["beside an upload"]))
    for metric, value in (("median", statistics.median(ratios)), ("least", ratios[0]), ("most", ratios[-1])):
        print_row(**fields, work="training step beside an upload over alone", metric=f"{metric} of {pairs} pairs",
                  value=f"{value:.3f}", unit="1")
    print_row(**fields, work="training step beside an upload", metric="parts of 16 MiB sent meanwhile", value=parts, unit="1")


with tempfile.TemporaryDirectory() as name:
    if sys.argv[1:2] == ["fault"] and len(sys.argv) == 4:
        fault(pathlib.Path(name), float(sys.argv[2]), float(sys.argv[3]))
    elif sys.argv[1:2] == ["step"] and len(sys.argv) == 3:
        step(pathlib.Path(name), int(sys.argv[2]))
    else:
        sys.exit(__doc__)
