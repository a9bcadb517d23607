# SPDX-License-Identifier: BSD-3-Clause
"""The files of a run folder of format 1 or 2 (docs/outputs.md)."""

import csv
import fcntl
import functools
import glob
import io
import json
import math
import os
import re
import shutil
import subprocess

from report_values import NAN, Row, array, get, highest, known, mean, num, ratio
from report_values import record, records, show, stamp_seconds, text

FORMAT = 2  # of the run folder, docs/outputs.md


class Failure(Exception):
    """An error with one line for the user."""

    def __init__(self, code, line):
        super().__init__(line)
        self.code = code


def read_text(path):
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(0, "not a file")
    with open(path, encoding="utf-8", errors="replace", newline="") as file:
        return file.read().replace("\0", "\ufffd")


def write_file(path, content):
    """Write a text or bytes under a temporary name, then rename the file."""
    part = "%s.%d.part" % (path, os.getpid())
    try:
        with open(part, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as why:
        if os.path.exists(part):
            os.remove(part)
        raise Failure(5, "cannot write %s: %s; choose another path" % (path, why.strerror))


# Lines of the log that the page shows; equal lines are counted.
TROUBLE = re.compile(
    r"warning: |vittrain: error: |stopped at step |stopped before |resuming from |mesh\.elastic: "
    r"|.*(gradients overflowed in fp16|before its results were written"
    r"|is left to the next attempt)"
)
STAMP = re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\d\d:\d\d | \d\d:\d\d:\d\d,\d{3} - )")


@functools.lru_cache(maxsize=None)
def printed(option):
    """What `vittrain OPTION` prints; empty without the program."""
    here = os.path.dirname(os.path.abspath(__file__))
    folders = [here + "/..", here + "/../../../bin", os.environ.get("PATH", "")]
    program = os.environ.get("VITTRAIN") or shutil.which("vittrain", path=":".join(folders))
    try:
        output = subprocess.run([program, option], stdout=subprocess.PIPE, timeout=60).stdout
    except (OSError, TypeError, subprocess.SubprocessError):
        return ""
    return output.decode("utf-8", "replace")


@functools.lru_cache(maxsize=None)
def defaults():
    """The defaults of all options, times in seconds as in deck.ini."""
    seconds = lambda match: f"= {int(match[1]) * {'s': 1, 'm': 60, 'h': 3600}[match[2]]}"
    words = re.sub(r"= (\d+)([smh])$", seconds, printed("--help"), flags=re.M)
    found = re.findall(r"^  (\w+\.\w+) = (.*)$", words, re.M)
    return {key: "" if value == "(empty)" else value for key, value in found}


# How the values of all ranks become one curve
SENSOR_KINDS = {"mean": mean, "lowest": lambda values: -highest(-v for v in values)}
SENSOR_KINDS["highest"] = highest
OUTPUT = "output "  # of the keys of rows of one output
TEXTS = ("split", "output", "unit", "host", "device", "time")  # columns of tables


class Run:
    """All files of a run folder."""

    def __init__(self, folder):
        self.path = folder.rstrip("/") or "/"
        self.name = os.path.basename(os.path.abspath(self.path))
        self.missing, self.trouble, self.deck = [], [], {}
        names = "deck.ini run.json result.json metrics.csv train.log epochs.csv".split()
        if not any(os.path.exists(self.file(name)) for name in names):
            line = "is not a run folder: it has no deck.ini, metrics.csv or result.json"
            raise Failure(5, f"{self.path} {line}")
        self.read_results()
        self.read_deck()
        self.read_metrics()
        self.read_monitors()
        self.read_log()
        self.misclassified = self.read_json("misclassified.json")
        self.planes = self.read_json("planes.json")

    def file(self, name):
        return os.path.join(self.path, name)

    # -- files

    def read(self, name, needed=False):
        """Return the text of a file, None if it cannot be read."""
        try:
            return read_text(self.file(name))
        except FileNotFoundError:
            if needed:
                self.missing.append(f"{name}: missing")
        except OSError as why:
            self.missing.append("%s: cannot be read: %s" % (name, why.strerror))
        return None

    def read_json(self, name, needed=False):
        content = self.read(name, needed)
        try:
            value = {} if content is None else json.loads(content)
            if isinstance(value, dict):
                return value
            why = "not a JSON object"
        except (ValueError, RecursionError) as error:
            why = error
        self.missing.append("%s: cannot be read (%s)" % (name, why))
        return {}

    def read_table(self, name, key, needed=False):
        """Return the rows of a CSV file."""
        content = self.read(name, needed)
        if content is None:
            return []
        if content and not content.endswith("\n"):
            content = content[: content.rfind("\n") + 1]
            self.missing.append(f"{name}: the incomplete last line is skipped")
        try:
            names, *rows = [row for row in csv.reader(io.StringIO(content, newline="")) if row]
            names.index(key)
        except (csv.Error, ValueError) as why:
            why = why if isinstance(why, csv.Error) else "no column " + key
            self.missing.append(f"{name}: cannot be read ({why})")
            return []
        bad = sum(len(row) > len(names) for row in rows)
        if bad:
            self.missing.append(f"{name}: damaged: {bad} rows with too many cells")
        value = lambda name, cell: cell if name in TEXTS else num(cell)
        return [Row((n, value(n, c)) for n, c in zip(names, row) if c != "") for row in rows]

    def read_results(self):
        """Read result.json, and what format 1 has in other files."""
        self.result = record(self.read_json("result.json", True))
        self.has_result = "total_seconds" in self.result
        self.metrics = self.read_table("metrics.csv", "step", True)
        old = self.read_json("run.json")
        self.format = int(known(self.number("format"), num(old.get("format")), 1))
        if self.format > FORMAT:
            line = "cannot read %s: it has format %d, this program reads %d; use a newer version"
            raise Failure(5, line % (self.path, self.format, FORMAT))
        self.attempts = records(self.result.get("attempts"))
        self.units = records(self.result.get("units"))
        self.ranks = records(self.result.get("ranks"))
        if old or self.format == 1:
            self.read_format_1(old)

    def read_format_1(self, old):
        """Convert files of format 1. A resumed run has them, too, for the time before."""
        needed = self.format == 1
        epochs = self.read_table("epochs.csv", "epoch", needed)
        outputs = self.read_table("outputs.csv", "output")
        self.units = self.units or self.read_table("units.csv", "unit", needed)
        ranks = self.read_table("ranks.csv", "rank", needed)
        self.ranks = [Row(attempt=row.pop("part", NAN), **row) for row in ranks] + self.ranks
        starts = [attempt["started"] for attempt in self.attempts]
        parts = records(old.get("parts"))
        self.attempts = [part for part in parts if part["started"] not in starts] + self.attempts
        count = get(self.attempts[-1:], "0.ranks")
        count = known(count, self.result["ranks"], old.get("ranks"))
        self.result = record(dict({"world_size": count}, **dict(old, **self.result)))
        for one in array(self.result.get("classes")):
            if isinstance(one, dict) and "accuracy" in one:
                one["one_vs_rest_accuracy"] = one["accuracy"]
        for row in epochs:
            row.update((name, row["train_" + name]) for name in ("loss", "top1", "top5"))
            row["split"] = "epoch"
        new = [row["step"] for row in self.metrics if row["split"] == "epoch"]
        rows = [row for row in epochs + outputs if row["step"] < min(new, default=1e30)]
        self.metrics = rows + self.metrics

    def read_deck(self):
        content, section = self.read("deck.ini", True), ""
        for line in (content or "").splitlines():
            if line.startswith("["):
                section = line[1:].partition("]")[0]
            elif "=" in line and line[0] not in ";#":
                key, _, value = line.partition("=")
                more = key.endswith("+")
                key = "%s.%s" % (section, key.rstrip("+ "))
                self.deck[key] = (self.deck.get(key, "") if more else "") + value.lstrip(" ")
        if content is not None and not self.deck:
            self.missing.append("deck.ini: empty")

    def read_metrics(self):
        """Sort the rows of metrics.csv by their split; those of outputs are apart."""
        self.rows = {"train": [], "val": [], "test": [], "epoch": []}
        self.epochs, before = self.rows["epoch"], 0
        for row in self.metrics:
            kind = row.get("split", "") + " of outputs" * ("output" in row)
            self.rows.setdefault(kind, []).append(row)
            if kind == "val of outputs":
                self.rows.setdefault(OUTPUT + row["output"], []).append(row)
        for row in self.rows["train"]:
            row["count"] = max(0, row["step"] - before)
            row["seconds"] = row["count"] * row["step_seconds"]
            before = max(before, row["step"])
        evaluations = {row["step"]: row for row in reversed(self.rows["val"])}
        for row in self.epochs:
            row["val"] = evaluations.get(row["step"], Row())
            row["count"] = (row["step"] - 1) % (self.number("steps_per_epoch") or NAN) + 1

    def read_monitors(self):
        """Read the sensors of all ranks; a row has the mean, lowest or highest of their values."""
        rows = self.read_table("monitor.csv", "time")
        for path in sorted(glob.glob(glob.escape(self.file("")) + "monitor-[0-9]*.csv")):
            rows += self.read_table(os.path.basename(path), "time")
        for row in rows:
            row["elapsed_seconds"] = stamp_seconds(row["time"])
        rows = [row for row in rows if not math.isnan(row["elapsed_seconds"])]
        rows.sort(key=lambda row: row["elapsed_seconds"])
        ranks = len({known(row["rank"], 0.0) for row in rows})
        for kind, find in SENSOR_KINDS.items():
            self.rows[kind] = []
            for first in range(0, len(rows), ranks or 1):
                readings = rows[first : first + ranks]  # about one of each rank
                names = {name for row in readings for name in row if name not in TEXTS}
                values = Row((name, find(row[name] for row in readings)) for name in names)
                values["elapsed_seconds"] -= rows[0]["elapsed_seconds"]
                self.rows[kind].append(values)

    def read_log(self):
        counts = {}
        for line in (self.read("train.log", True) or "").splitlines():
            stamp = STAMP.match(line)
            if stamp and TROUBLE.match(line[stamp.end() :]):
                counts.setdefault(line[stamp.end() :], [line, 0])[1] += 1
        for line, times in counts.values():
            self.trouble.append(f"{line} ({times} times)" if times > 1 else line)

    # -- the state

    def status(self):
        last = self.attempts[-1] if self.attempts else {}
        if last.get("error"):
            return "failed"
        if self.has_result and (not last or last.get("ended")):
            return "stopped" if self.result["finished"] is False else "finished"
        try:
            with open(self.file(".lock")) as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return "still running"
        except OSError:
            return "interrupted or still running"
        return "interrupted"

    def reason(self):
        error = get(self.attempts[-1:], "0.error")
        return text(error) or text(self.result.get("stop_reason"))

    def resume_text(self):
        """How to resume an unfinished run; empty without a checkpoint."""
        files = glob.glob(glob.escape(self.file("checkpoints")) + "/step-[0-9]*.h5")
        if not files or self.status() in ("finished", "still running"):
            return ""
        name = os.path.basename(max(files))
        return f"Newest checkpoint: {name}. Resume with run.dir={self.path} checkpoint.resume=auto."

    def number(self, path):
        return num(get(self.result, path))

    def option(self, key):
        return self.deck.get(key, "")

    # -- values of metrics.csv

    def last(self, name, split=None):
        """The last number in a column of metrics.csv."""
        rows = self.metrics if split is None else self.rows[split]
        return next((row[name] for row in reversed(rows) if row[name] == row[name]), NAN)

    def step_mean(self, name, weight="count"):
        """Mean of a column over the training steps, or over their seconds."""
        pairs = [(row[name], row[weight]) for row in self.rows["train"] if row["count"] > 0]
        pairs = [pair for pair in pairs if not math.isnan(pair[0] * pair[1])]
        return ratio(sum(v * w for v, w in pairs), sum(w for _, w in pairs))

    # -- quality: which weights a figure belongs to

    @functools.lru_cache(maxsize=None)
    def last_step(self):
        return known(self.number("steps"), self.last("step"))

    @functools.lru_cache(maxsize=None)
    def used(self):
        """Kind and step of the weights that predict uses: the best ones if they exist."""
        link = self.file("checkpoints/best.h5")
        if not os.path.lexists(link) and not os.path.exists(self.file("best.safetensors")):
            if get(self.result, "test.weights") != "best":
                return "last", self.last_step()
        match = re.search(r"step-0*(\d+)\.h5", os.readlink(link) if os.path.islink(link) else "")
        step = num(match.group(1)) if match else NAN
        return "best", known(self.number("best.step"), self.number("test.step"), step)

    def weights_text(self, step):
        kind, used = self.used()
        at, names = f"step {show('count', step)}", []
        if kind == "best" and step == used:
            metric = text(get(self.result, "best.monitor")) or self.option("checkpoint.monitor")
            names.append("best weights" + f" by val {metric}" * bool(metric))
            at += ", chosen on the test set" * (self.result["chosen_on_test"] is True)
        names += ["last weights"] if step == self.last_step() else []
        return f"{' and '.join(names)}, {at}" if names else f"weights of {at}"

    @functools.lru_cache(maxsize=None)
    def evaluations(self, split):
        """All evaluations of a split by step, as in result.json with `step`, the newest last."""
        found = {row["step"]: Row(row) for row in self.rows[split]}
        for row in self.rows.get(split + " of outputs", []):
            evaluation = found.setdefault(row["step"], Row())
            evaluation.setdefault("outputs", []).append(dict(row, name=row["output"]))
        if self.result["split"] == split and "loss" in self.result:
            found[max(found, default=self.last_step())] = Row(self.result)
        test = self.result["test"]
        if split == "test" and isinstance(test, dict):
            found = {num(test.get("step")): record(test)}  # in metrics.csv it has the last step
        for step, evaluation in found.items():
            outputs = evaluation["outputs"] = records(evaluation["outputs"])
            means = {name: mean(output[name] for output in outputs) for name in ("rmse", "r2")}
            evaluation.update(means, step=step, persistence=mean(map(persistence, outputs)))
        return [found[step] for step in sorted(found)]

    @functools.lru_cache(maxsize=None)
    def evaluation(self, split):
        """The evaluation with the weights that are used, else the newest."""
        found = self.evaluations(split)
        of_used = [e for e in found if e["step"] == self.used()[1]]
        return (of_used or found or [Row(outputs=[])])[-1]

    @functools.lru_cache(maxsize=None)
    def detailed(self):
        """The evaluation with metrics of each class: of the test split, else of the newest."""
        for split in ("test", "val"):
            for evaluation in reversed(self.evaluations(split)):
                if array(evaluation.get("classes")):
                    return Row(evaluation, split=split)
        return Row()

    def metric(self, split, name):
        """A metric of the evaluation. RMSE of several outputs: a list of those that are known."""
        evaluation = self.evaluation(split)
        outputs = evaluation["outputs"]
        if name == "rmse" and len(outputs) > 1:
            shown = [f"{one['name']} {show('number', num(one['rmse']))}" for one in outputs[:3]]
            return "; ".join(shown + ["..."] * (len(outputs) > 3))
        return num(evaluation[name])

    def top1_name(self):
        """Top-1 is the pixel accuracy of a segmentation, or of all labels together."""
        found = self.evaluation("test"), self.evaluation("val")
        for key, name in ("miou", "pixel accuracy"), ("map", "all labels right"):
            if any(evaluation[key] == evaluation[key] for evaluation in found):
                return name
        return "top-1"

    def model(self):
        """The model's name, and its dimensions that the deck sets."""
        name = text(self.result.get("model")) or self.option("model.name")
        keys = ("dim", "depth", "heads", "patch", "width")
        values = [(key, num(self.option("model." + key))) for key in keys]
        return ", ".join([name] + ["%s %g" % pair for pair in values if pair[1] > 0])


def persistence(output):
    """RMSE relative to that of persistence."""
    return ratio(num(output["rmse"]), num(output["persistence_rmse"]))
