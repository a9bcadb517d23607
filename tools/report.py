#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Write an HTML page about one run, or about several side by side.

    report.py RUN... [report.output=FILE] [report.csv=FILE] [report.format=FORMAT]
              [output.logbook=FOLDER]
    report.py FIND_LR.csv [report.output=FILE.svg]

RUN is a run folder of format 1 or 2 (docs/outputs.md), also of a run that failed, was interrupted
or is still running. The page is RUN/report.html, or report.html in the working directory for
several runs, or report.output. report.csv is a table with one row per run. report.format=course,
imagenet or lightning also writes log lines and files of another program to each run folder. The
pages of the runs in their log book are updated. The second form draws the curve of
`vittrain find lr`.
Exit codes: 2 wrong arguments, 5 a file cannot be read or written.
"""

import bisect
import calendar
import csv
import fcntl
import functools
import html
import io
import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
from typing import NamedTuple

import export

NAN = float("nan")
FORMAT = 2  # of the run folder, docs/outputs.md


class Failure(Exception):
    """An error with one line for the user."""

    def __init__(self, code, line):
        super().__init__(line)
        self.code = code


# ---- values that may be missing or damaged


def num(value):
    """Return a number, NaN if the value is none."""
    if value is None or isinstance(value, (bool, list, dict)):
        return NAN
    try:
        return float(value)
    except (ValueError, OverflowError):
        return NAN


def known(*values):
    return next((value for value in values if not math.isnan(value)), NAN)


def get(value, path):
    """Return the value at a path such as parts.0.started, None if there is none."""
    for key in path.split("."):
        if isinstance(value, (list, tuple)) and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
        elif isinstance(value, dict):
            value = value.get(key)
        else:
            return None
    return value


def text(value):
    return value if isinstance(value, str) else ""


def array(value):
    return value if isinstance(value, list) else []


def records(value):
    """The JSON objects in a list."""
    return [item for item in array(value) if isinstance(item, dict)]


def mean(values):
    values = [value for value in values if not math.isnan(value)]
    return sum(values) / len(values) if values else NAN


def highest(values):
    return max((value for value in values if not math.isnan(value)), default=NAN)


def ratio(one, other):
    return one / other if other else NAN


# ---- formats


def short(value, digits, unit=""):
    """Three or four significant digits; the integer part is not rounded."""
    size = abs(value)
    if size and (size < 0.001 or size >= 1e7):
        mantissa, _, power = ("%.*e" % (digits - 1, value)).partition("e")
        mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
        return "%se%d%s" % (mantissa, int(power), unit)
    decimals, limit = 3, 1 if digits == 3 else 10
    while decimals > 0 and size >= limit:
        decimals -= 1
        limit *= 10
    return "%.*f%s" % (decimals, value, unit)


def grouped(value, unit=""):
    return short(value, 4, unit) if abs(value) >= 1e18 else "{:,.0f}{}".format(value + 0.0, unit)


def seconds_text(value):
    if value == 0:
        return "0 s"
    if abs(value) < 0.9995:
        return short(value * 1000, 3, " ms")
    if abs(value) < 99.95:
        return short(value, 3, " s")
    if value < 0 or value >= 1e12:
        return grouped(value, " s")
    whole = int(value + 0.5)
    if whole < 3600:
        return "%d min %02d s" % (whole // 60, whole % 60)
    return "%d h %02d min" % (whole // 3600, whole // 60 % 60)


def scaled(value, step, units):
    for unit in units[:-1]:
        if abs(value) < step - 0.5:
            break
        value /= step
    else:
        unit = units[-1]
    return "%.0f B" % value if unit == " B" else short(value, 3, unit)


def show(kind, value):
    """Format a value; NaN is an empty text."""
    if isinstance(value, str):
        return value
    if math.isnan(value):
        return ""
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if kind == "count" or kind in ("rate", "number") and 999.5 <= abs(value) < 1e7:
        return grouped(value)
    if kind == "share":
        return "%.2f %%" % (100 * value)
    if kind == "seconds":
        return seconds_text(value)
    if kind == "bytes":
        return scaled(value, 1024, [" B", " KiB", " MiB", " GiB", " TiB", " PiB"])
    if kind == "flops":
        return scaled(value, 1000, [" flop", " kflop", " Mflop", " Gflop", " Tflop"])
    if kind == "number":
        return short(value, 4)
    return short(value, 3, {"ratio": "x", "W": " W", "Wh": " Wh"}.get(kind, ""))


def stamp_seconds(stamp):
    """Seconds since 1970 of a time stamp such as 2026-11-21T04:05:06.789Z."""
    match = re.match(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d(?:\.\d*)?)", text(stamp))
    if not match:
        return NAN
    return calendar.timegm(tuple(map(int, match.groups()[:5])) + (0,)) + float(match.group(6))


def stamp_text(stamp):
    seconds = stamp_seconds(stamp)
    if math.isnan(seconds):
        return text(stamp)
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(seconds))


CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def esc(value):
    return html.escape(CONTROL.sub("\ufffd", str(value)))


def letters(run):
    """A to Z, AA to AZ, BA, ..."""
    return (letters(run // 26 - 1) if run >= 26 else "") + chr(65 + run % 26)


# ---- files


def read_text(path):
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(0, "not a file")
    with open(path, encoding="utf-8", errors="replace", newline="") as file:
        return file.read().replace("\0", "\ufffd")


def write_file(path, content):
    """Write a file under a temporary name, then rename it."""
    part = "%s.%d.part" % (path, os.getpid())
    try:
        with open(part, "w", encoding="utf-8", newline="") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as why:
        if os.path.exists(part):
            os.remove(part)
        raise Failure(5, "cannot write %s: %s; choose another path" % (path, why.strerror))


class Table:
    """A CSV file: the cells of a column as texts or numbers."""

    def __init__(self, rows=(), names=None):
        self.rows, self.cache = list(rows), {}
        self.names = names or list(self.rows[0] if self.rows else ())

    def __len__(self):
        return len(self.rows)

    @functools.lru_cache(maxsize=None)
    def texts(self, name):
        cells = [row.get(name) for row in self.rows]
        return ["" if cell is None else str(cell) for cell in cells]

    def numbers(self, name):
        if name not in self.cache:
            self.cache[name] = [num(cell) for cell in self.texts(name)]
        return self.cache[name]


# Lines of the log that the page shows; equal lines are counted.
TROUBLE = re.compile(
    r"warning: |vittrain: error: |stopped at step |stopped before |resuming from |mesh\.elastic: "
    r"|.*(gradients overflowed in fp16|before its results were written"
    r"|is left to the next attempt)"
)
STAMP = re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\d\d:\d\d | \d\d:\d\d:\d\d,\d{3} - )")
TROUBLE_MOST = 200


@functools.lru_cache(maxsize=None)
def defaults():
    """The defaults of all options, from `vittrain --help`; empty without the program."""
    here = os.path.dirname(os.path.abspath(__file__))
    paths = [os.path.join(here, up, "vittrain") for up in ("..", "../../../bin")]
    paths = [os.environ.get("VITTRAIN", "")] + paths + [shutil.which("vittrain") or ""]
    program = next((path for path in paths if os.path.isfile(path)), None)
    try:
        output = subprocess.run([program, "--help"], stdout=subprocess.PIPE, timeout=60).stdout
    except (OSError, TypeError, subprocess.SubprocessError):
        return {}
    found = re.findall(r"^  (\w+\.\w+) = (.*)$", output.decode("utf-8", "replace"), re.M)
    return {key: "" if value == "(empty)" else value for key, value in found}


def same_value(one, other):
    return one == other or num(one) == num(other)


# Width and heads of ViTs by a part of their name.
VIT_SIZES = {
    "_cifar": (192, 6, 3),
    "_tiny": (192, 12, 3),
    "_small": (384, 12, 6),
    "_base": (768, 12, 12),
    "_large": (1024, 24, 16),
    "_so400m": (1152, 27, 16),
    "_huge": (1280, 32, 16),
    "_giant": (1536, 40, 24),
}


class Run:
    """All files of a run folder."""

    def __init__(self, folder):
        self.path = folder.rstrip("/") or "/"
        self.name = os.path.basename(os.path.abspath(self.path))
        self.missing, self.trouble, self.deck = [], [], {}
        if not os.path.isdir(self.path):
            raise Failure(5, "cannot read %s: no such folder; specify a run folder" % self.path)
        names = "deck.ini run.json result.json metrics.csv train.log epochs.csv".split()
        if not any(os.path.exists(self.file(name)) for name in names):
            line = "%s is not a run folder: it has no deck.ini, metrics.csv or result.json"
            raise Failure(5, line % self.path)
        self.read_results()
        self.read_deck()
        self.read_tables()
        self.read_log()
        self.misclassified = self.read_json("misclassified.json")
        self.planes = self.read_json("planes.json")

    def file(self, name):
        return os.path.join(self.path, name)

    def names(self, folder, pattern):
        try:
            found = os.listdir(self.file(folder))
        except OSError:
            return []
        order = lambda name: [int(part) for part in re.findall(r"\d+", name)]
        return sorted((name for name in found if re.match(pattern, name)), key=order)

    # -- files

    def read(self, name, absence=None):
        """Return the text of a file, None if it cannot be read. absence: why it may be missing."""
        try:
            return read_text(self.file(name))
        except FileNotFoundError:
            if absence:
                self.missing.append("%s: missing: %s" % (name, absence))
        except OSError as why:
            self.missing.append("%s: cannot be read: %s" % (name, why.strerror))
        return None

    def read_json(self, name):
        content = self.read(name)
        try:
            value = {} if content is None else json.loads(content)
            if isinstance(value, dict):
                return value
            why = "not a JSON object"
        except (ValueError, RecursionError) as error:
            why = error
        self.missing.append("%s: cannot be read (%s)" % (name, why))
        return {}

    def read_table(self, name, key, absence=None):
        content = self.read(name, absence)
        if content is None:
            return Table()
        if content and not content.endswith("\n"):
            content = content[: content.rfind("\n") + 1]
            self.missing.append("%s: the incomplete last line is skipped" % name)
        try:
            names, *rows = [row for row in csv.reader(io.StringIO(content, newline="")) if row]
            names.index(key)
        except (csv.Error, ValueError) as why:
            why = why if isinstance(why, csv.Error) else "no column " + key
            self.missing.append("%s: cannot be read (%s)" % (name, why))
            return Table()
        bad = sum(len(row) > len(names) for row in rows)
        if bad:
            self.missing.append("%s: damaged: %d rows with too many cells" % (name, bad))
        return Table([dict(zip(names, row)) for row in rows], names)

    def read_results(self):
        """Read result.json and, of format 1, run.json."""
        run = self.read_json("run.json")
        self.result = self.read_json("result.json")
        self.format = int(known(num(self.result.get("format")), num(run.get("format")), 1))
        if self.format > FORMAT:
            line = "cannot read %s: it has format %d, this program reads %d; use a newer version"
            raise Failure(5, line % (self.path, self.format, FORMAT))
        new = records(self.result.get("attempts"))
        starts = [attempt.get("started") for attempt in new]
        old = records(run.get("parts"))
        self.attempts = [part for part in old if part.get("started") not in starts] + new
        self.has_result = "total_seconds" in self.result
        self.result = dict(run, **{k: v for k, v in self.result.items() if v is not None})
        # In format 1, `ranks` is the number of ranks.
        of_attempt = num(self.attempts[-1].get("ranks")) if self.attempts else NAN
        numbers = self.number("world_size"), of_attempt, self.number("ranks")
        self.result["world_size"] = known(*numbers)
        if not os.path.exists(self.file("result.json")):
            self.missing.append("result.json: missing: status of the run: " + self.status())
        if self.format == 1 and not os.path.exists(self.file("run.json")):
            why = "written by an old version, or the run ended before its first step"
            self.missing.append("run.json: missing: " + why)

    def read_deck(self):
        content, section = self.read("deck.ini", "the options are unknown"), ""
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

    def read_tables(self):
        absence = "output.csv is off, or nothing logged"
        self.metrics = self.read_table("metrics.csv", "step", absence)
        absence = "output.csv is off, or the run has not ended" if self.format == 1 else None
        epochs = self.read_table("epochs.csv", "epoch", absence).rows
        units = self.read_table("units.csv", "unit", absence)
        ranks = self.read_table("ranks.csv", "rank", absence).rows
        self.convert(epochs, self.read_table("outputs.csv", "output").rows)
        self.units = Table(records(self.result.get("units"))) or units
        ranks = [dict(attempt=row.pop("part", ""), **row) for row in ranks]
        self.ranks = Table(ranks + records(self.result.get("ranks")))
        self.rows = {"train": [], "val": [], "test": [], "epoch": [], "output": []}
        for at, row in enumerate(self.metrics.rows):
            kind = "output" if row.get("output") else row.get("split", "")
            self.rows.setdefault(kind, []).append(at)
        self.outputs = [self.metrics.rows[at] for at in self.rows["output"]]
        share = self.metrics.numbers("peak_share")
        if not all(share[row] <= 1 for row in self.rows["train"]):
            # A value above 1, or a missing one, means that the stored peak was wrong.
            self.metrics.cache["peak_share"] = [NAN] * len(share)
        self.read_epochs()
        self.read_monitors()

    def convert(self, epochs, outputs):
        """Put the rows of epochs.csv and outputs.csv, of format 1, in front of metrics.csv."""
        new = self.metrics.rows
        first = min(
            (num(row.get("step")) for row in new if row.get("split") == "epoch"), default=1e30
        )
        taken = {(row.get("split"), row.get("step")) for row in new if row.get("output")}
        outputs = [row for row in outputs if (row.get("split"), row.get("step")) not in taken]
        epochs = [dict(row, split="epoch") for row in epochs if not num(row.get("step")) >= first]
        for row in epochs:
            row.update((name, row.get("train_" + name)) for name in ("loss", "top1", "top5"))
        self.metrics.rows = epochs + outputs + new

    def read_epochs(self):
        """Rows `epoch` of metrics.csv with the values of their evaluations."""
        steps = self.metrics.numbers("step")
        val = {steps[row]: self.metrics.rows[row] for row in reversed(self.rows["val"])}
        self.epochs = []
        for row in self.rows["epoch"]:
            cells = self.metrics.rows[row]
            epoch = {name: num(cell) for name, cell in cells.items()}
            for name in ("loss", "top1", "top5"):
                epoch["train_" + name] = num(cells.get(name))
                epoch["val_" + name] = num(val.get(steps[row], {}).get(name))
            self.epochs.append(epoch)

    def read_monitors(self):
        others = self.names(".", r"monitor-\d+\.csv$")
        absence = "output.monitor or output.csv is off, or there were no readings"
        self.monitor = self.read_table("monitor.csv", "time", None if others else absence)
        for name in others:
            more = self.read_table(name, "time")
            self.monitor.names = self.monitor.names or more.names
            self.monitor.rows += more.rows if more.names == self.monitor.names else []

    def read_log(self):
        counts, more = {}, 0
        for line in (self.read("train.log", "the log is unknown") or "").splitlines():
            stamp = STAMP.match(line)
            if not stamp or not TROUBLE.match(line[stamp.end() :]):
                continue
            words = line[stamp.end() :]
            if words in counts or len(counts) < TROUBLE_MOST:
                counts.setdefault(words, [line, 0])[1] += 1
            else:
                more += 1
        for line, times in counts.values():
            self.trouble.append("%s (%d times)" % (line, times) if times > 1 else line)
        if more:
            self.trouble.append("%d more lines, see train.log" % more)

    # -- the state

    def status(self):
        last = self.attempts[-1] if self.attempts else {}
        if text(last.get("error")):
            return "failed"
        if self.has_result and (not last or text(last.get("ended"))):
            return "stopped" if self.result.get("finished") is False else "finished"
        try:
            with open(self.file(".lock")) as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return "still running"
        except OSError:
            return "interrupted or still running"
        return "interrupted"

    def reason(self):
        error = text(get(self.attempts, "%d.error" % (len(self.attempts) - 1)))
        return error or text(self.result.get("stop_reason"))

    def number(self, path):
        return num(get(self.result, path))

    def option(self, key):
        return self.deck.get(key, "")

    def settings(self):
        """Options that differ from their defaults: (key, value, default)."""
        presets, unknown = defaults(), "(unknown option)" if defaults() else ""
        rows = ((key, value, presets.get(key, unknown)) for key, value in self.deck.items())
        return [row for row in rows if not same_value(row[1], row[2])]

    # -- values of metrics.csv

    def last(self, name, split=None):
        """The last number in a column of metrics.csv."""
        rows = range(len(self.metrics)) if split is None else self.rows[split]
        values = self.metrics.numbers(name)
        return next((values[row] for row in reversed(rows) if not math.isnan(values[row])), NAN)

    @functools.lru_cache(maxsize=None)
    def extents(self):
        """Steps, seconds and images of each row of training: {row: (steps, seconds, images)}."""
        table, extents, before = self.metrics, {}, 0
        steps, each = table.numbers("step"), table.numbers("step_seconds")
        rates = table.numbers("images_per_second")
        for row in self.rows["train"]:
            count = steps[row] - before
            if count > 0:
                extents[row] = (count, count * each[row], count * each[row] * rates[row])
                before = steps[row]
        return extents

    def step_mean(self, name, weight=0):
        """Mean of a column over the training steps; weight=1: over their time."""
        values = self.metrics.numbers(name)
        pairs = [(values[row], extent[weight]) for row, extent in self.extents().items()]
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
        best, last = kind == "best" and step == used, step == self.last_step()
        names = [name for name, is_so in (("best", best), ("last", last)) if is_so]
        at = "step %s" % show("count", step)
        return "%s weights, %s" % (" and ".join(names), at) if names else "weights of " + at

    @functools.lru_cache(maxsize=None)
    def evaluations(self, split):
        """All evaluations of a split by step, as in result.json with `step`, the newest last."""
        found, table = {}, self.metrics
        for row in self.rows.get(split, []):
            step = table.numbers("step")[row]
            columns = ("loss", "top1", "top5", "miou", "map")
            found[step] = {name: table.numbers(name)[row] for name in columns}
        for row in self.outputs:
            if row.get("split") == split:
                evaluation = found.setdefault(num(row.get("step")), {})
                evaluation.setdefault("outputs", []).append(dict(row, name=row["output"]))
        last = max(found, default=self.last_step())
        if self.result.get("split") == split and "loss" in self.result:
            found[last] = dict(self.result)
        test = self.result.get("test")
        if split == "test" and isinstance(test, dict):
            found = {num(test.get("step")): dict(test)}  # the row in metrics.csv has the last step
        for step, evaluation in found.items():
            outputs = records(evaluation.get("outputs"))
            means = {name: mean(num(o.get(name)) for o in outputs) for name in ("rmse", "r2")}
            evaluation.update(means, step=step, persistence=mean(map(persistence, outputs)))
        return [found[step] for step in sorted(found)]

    @functools.lru_cache(maxsize=None)
    def evaluation(self, split):
        """The evaluation with the weights that are used, else the newest."""
        found = self.evaluations(split)
        of_used = [e for e in found if e["step"] == self.used()[1]]
        return (of_used or found or [{"step": NAN}])[-1]

    @functools.lru_cache(maxsize=None)
    def detailed(self):
        """The evaluation with metrics of each class: of the test split, else of the newest."""
        for split in ("test", "val"):
            for evaluation in reversed(self.evaluations(split)):
                if array(evaluation.get("classes")):
                    return dict(evaluation, split=split)
        return {}

    def metric(self, split, name):
        """A metric of the evaluation. RMSE of several outputs: a list of those that are known."""
        evaluation = self.evaluation(split)
        outputs = records(evaluation.get("outputs"))
        if name == "rmse" and len(outputs) > 1:
            pairs = [(text(o.get("name")), show("number", num(o.get("rmse")))) for o in outputs]
            return "; ".join(["%s %s" % pair for pair in pairs[:3]] + ["..."] * (len(pairs) > 3))
        return num(evaluation.get(name))

    def learning_rate(self):
        return known(self.number("base_lr"), num(self.option("optim.lr")))

    def total_seconds(self):
        return known(self.number("total_seconds"), self.last("elapsed_seconds"))

    def evaluation_seconds(self):
        values = [num(row.get("eval_seconds")) for row in self.epochs]
        return sum(value for value in values if value >= 0) or NAN

    def task(self):
        """The kind of targets: segmentation, labels, forecast, regression or classes."""
        tasks = dict(miou="segmentation", map="labels", persistence="forecast")
        found = self.evaluation("test"), self.evaluation("val")
        for key, task in tasks.items():
            if any(not math.isnan(num(evaluation.get(key))) for evaluation in found):
                return task
        return "regression" if any(evaluation.get("outputs") for evaluation in found) else "classes"

    def model(self):
        """The model's name, or its shape if the deck changes it."""
        name = text(self.result.get("model")) or self.option("model.name")
        keys = ("dim", "depth", "heads", "patch")
        set_ones = {key: num(self.option("model." + key)) for key in keys}
        set_ones = {key: value for key, value in set_ones.items() if value > 0}
        if not name.startswith("vit") or not set_ones:
            width = num(self.option("model.width"))
            return "%s, width %g" % (name, width) if width > 0 else name
        size = next((size for part, size in VIT_SIZES.items() if part in name), (NAN,) * 3)
        patch = re.search(r"patch(\d+)", name)
        shape = dict(zip(keys, size), patch=num(patch.group(1)) if patch else 4)
        shape.update(set_ones)
        return "ViT, " + ", ".join("%s %g" % (key, shape[key]) for key in keys if shape[key] > 0)


def persistence(output):
    value = num(output.get("persistence_rmse"))
    return num(output.get("rmse")) / value if value > 0 else NAN


# ---- facts: one value per run, in the tables and in report.csv


class Fact(NamedTuple):
    group: str
    name: str
    key: str
    kind: str
    find: object = None
    better: int = 0
    split: str = ""  # the figure is of this split's evaluation

    def value(self, run, first):
        if self.find in RELATIVE:
            return self.find(run, first)
        if callable(self.find):
            return self.find(run)
        value = get(run.result, self.find or self.key)
        return text(value) if self.kind == "text" else num(value)

    def cell(self, run, first):
        return show(self.kind, self.value(run, first))

    def weights(self, run):
        """The weights that the figure belongs to."""
        if not self.cell(run, run) or self.group != "Quality":
            return ""
        if self.key == "train_loss":
            return "mean of the last epoch"
        if self.key.startswith("last"):
            return run.weights_text(run.last_step())
        found = run.evaluation(self.split) if self.split else run.detailed()
        return run.weights_text(found["step"])


def epochs_text(run):
    """10, or "3.5 of 10" if the run ended before its last step."""
    each = run.number("steps_per_epoch")
    planned, done = ratio(run.number("total_steps"), each), ratio(run.last_step(), each)
    if math.isnan(done + planned):
        return show("count", known(run.number("epochs"), float(len(run.epochs))))
    of_run = "%.6g of " % (math.floor(10 * done) / 10) if done < planned else ""
    return of_run + "%.6g" % (math.ceil(10 * planned) / 10)


def data_used(run):
    """The part of the data set: all; 25 %, at most 7 batches."""
    keys = ("fraction", "batches", "overfit")
    fraction, batches, overfit = (num(run.option("debug." + key)) for key in keys)
    if math.isnan(fraction) and math.isnan(batches):
        return ""
    parts = ["%.3g %%" % (100 * fraction)] if fraction < 1 else []
    if overfit > 0:
        parts.append("the first %.6g batches" % overfit)
    elif batches > 0:
        parts.append("at most %.6g batches" % batches)
    return ", ".join(parts) or "all"


def initial_weights(run):
    init = run.option("model.init")
    if init in ("", "none"):
        return "random" if "model.init" in run.deck else ""
    return "pretrained (%s)" % init.rpartition("/")[2]


def target_seconds(run):
    """Seconds until the first evaluation that reached output.target."""
    target, numbers = num(run.option("output.target")), run.metrics.numbers
    reached = (row for row in run.rows["val"] if target > 0 and numbers("top1")[row] >= target)
    return next((numbers("elapsed_seconds")[row] for row in reached), NAN)


def images_per_second(run):
    return known(run.number("images_per_second"), run.step_mean("images_per_second", 1))


CONDITIONS = {
    "model": "model",
    "parameters": "parameters",
    "trainable_parameters": "trainable parameters",
    "image": "image size",
}
SCALING_CONDITIONS = dict(CONDITIONS, backend="backend", precision="precision")


def difference(run, first, conditions=CONDITIONS):
    """What prevents comparing the speed, or the scaling efficiency: (name, value, other)."""
    for key, name in conditions.items():
        one, other = run.result.get(key), first.result.get(key)
        if one is not None and other is not None and one != other:
            return name, one, other
    return None


def speed_up(run, first):
    if difference(run, first):
        return NAN
    return ratio(images_per_second(run), images_per_second(first))


def efficiency(run, first):
    if difference(run, first, SCALING_CONDITIONS):
        return NAN
    ranks = ratio(first.number("world_size"), run.number("world_size"))
    return speed_up(run, first) * ranks


def peak_bytes(run):
    names = ("gpu_memory_used", "resident")
    sensors = [run.number("sensors.%s_bytes.max" % name) for name in names]
    monitor = highest(run.monitor.numbers("resident_bytes"))
    return known(highest(run.ranks.numbers("peak_bytes")), *sensors, monitor)


def busy(run):
    sensors = [run.number("sensors.%s_busy.mean" % name) for name in ("gpu", "cores")]
    return known(*sensors, mean(run.monitor.numbers("cores_busy")))


def train_loss(run):
    last = num(run.epochs[-1].get("train_loss")) if run.epochs else NAN
    return known(run.number("train.loss"), last, run.last("loss", "train"))


def per_rank(run):
    return ratio(images_per_second(run), run.number("world_size"))


def planned_bytes(run):
    return known(highest(run.ranks.numbers("planned_bytes")), run.number("planned_bytes"))


def setup_seconds(run):
    return run.number("total_seconds") - run.number("without_setup_seconds")


def epoch_seconds(run):
    return mean(num(row.get("seconds")) for row in run.epochs)


# Functions that return the function of a fact


def step(name):
    return lambda run: run.step_mean(name)


def share(name):
    """A share of the step time."""
    return lambda run: ratio(run.step_mean(name), run.step_mean("step_seconds"))


def last_val(name):
    """A metric of the last weights, if others are used."""
    return lambda run: run.last(name, "val") if run.used()[1] != run.last_step() else NAN


def deck(key, at=""):
    return lambda run: text(run.result.get(at)) or run.option(key)


def attempt(key):
    return lambda run: text(get(run.attempts, "0." + key))


waiting = share("exposed_comm_seconds")
# Name, key, kind, then a function of the run or a key of result.json (by default: the key), and 1
# if higher is better, -1 if lower is.
FACT_TABLE = {
    "What was run": [
        ("Status", "ending", "text", Run.status),
        ("Reason", "reason", "text", Run.reason),
        ("Started", "started", "text", lambda run: stamp_text(get(run.attempts, "0.started"))),
        ("Model", "model", "text", Run.model),
        ("Parameters", "parameters", "count"),
        ("Initial weights", "init", "text", initial_weights),
        ("Tags", "tags", "text", deck("run.tags")),
        ("Data", "data", "text", lambda run: run.option("data.root") or run.option("data.format")),
        ("Data used", "data_used", "text", data_used),
        ("Training samples", "train_samples", "count"),
        ("Validation samples", "val_samples", "count"),
        ("Test samples", "test_samples", "count"),
        ("Strategy", "strategy", "text", deck("mesh.strategy", "strategy")),
        ("Replicas", "replica", "count"),
        ("Shards", "shard", "count"),
        ("Transport", "transport", "text"),
        ("Backend", "backend", "text"),
        ("Device", "device", "text", attempt("devices.0")),
        ("First host", "host", "text", attempt("hosts.0")),
        ("Precision", "precision", "text", deck("train.precision", "precision")),
        ("Ranks", "ranks", "count", "world_size"),
        ("Nodes", "nodes", "count"),
        ("Threads per rank", "threads", "count"),
        ("Global batch", "global_batch", "count"),
        ("Optimizer", "optimizer", "text", deck("optim.name")),
        ("Learning rate", "learning_rate", "number", Run.learning_rate),
        ("Schedule", "schedule", "text", deck("schedule.name")),
        ("Epochs", "epochs", "text", epochs_text),
        ("Steps", "steps", "count", Run.last_step),
        ("Skipped steps", "skipped_steps", "count", lambda run: run.last("skipped_steps")),
        ("Attempts", "attempts", "count", lambda run: float(len(run.attempts) or NAN)),
        ("Seed", "seed", "count"),
        ("Version", "version", "text", attempt("version")),
        ("Commit", "commit", "text", attempt("commit")),
    ],
    "Quality": [
        ("Macro F1", "macro_f1", "share", lambda run: num(get(run.detailed(), "macro.f1")), 1),
        ("Last validation top-1", "last_val_top1", "share", last_val("top1"), 1),
        ("Last validation loss", "last_val_loss", "number", last_val("loss"), -1),
        ("Training loss", "train_loss", "number", train_loss, -1),
    ],
    "Time": [
        ("Total time", "total_seconds", "seconds", Run.total_seconds, -1),
        ("Set-up time", "setup_seconds", "seconds", setup_seconds, -1),
        ("Time excluding set-up", "without_setup_seconds", "seconds", None, -1),
        ("Training time", "training_seconds", "seconds", None, -1),
        ("Evaluation time", "evaluation_seconds", "seconds", Run.evaluation_seconds, -1),
        ("Time per epoch", "epoch_seconds", "seconds", epoch_seconds, -1),
        ("Time to target accuracy", "target_seconds", "seconds", target_seconds, -1),
    ],
    "Speed": [
        ("Images/s", "images_per_second", "rate", images_per_second, 1),
        ("Images/s per rank", "images_per_second_rank", "rate", per_rank, 1),
        ("Speed-up", "speed_up", "ratio", speed_up, 1),
        ("Scaling efficiency", "efficiency", "share", efficiency, 1),
        ("FLOPs per image", "flops_per_image", "flops"),
        ("Step time", "step_seconds", "seconds", step("step_seconds"), -1),
        ("MFU", "peak_share", "share", step("peak_share"), 1),
        ("Waiting for data", "data_share", "share", share("data_seconds"), -1),
        ("Waiting for communication", "exposed_comm_share", "share", waiting, -1),
        ("Communication thread busy", "comm_share", "share", share("comm_seconds")),
        ("Forward pass", "forward_share", "share", share("forward_seconds")),
        ("Backward pass", "backward_share", "share", share("backward_seconds")),
        ("Gradient reduction", "reduce_share", "share", share("reduce_seconds")),
        ("Optimizer step", "update_share", "share", share("update_seconds")),
    ],
    "Memory and energy": [
        ("Planned memory per rank", "planned_bytes", "bytes", planned_bytes, -1),
        ("Peak memory per rank", "peak_bytes", "bytes", peak_bytes, -1),
        ("Utilization", "busy", "share", busy),
        ("Energy", "energy_wh", "Wh", "sensors.energy_wh", -1),
        ("Energy measured of", "energy_of", "text", "sensors.energy_of"),
        ("Images per joule", "images_per_joule", "number", "sensors.images_per_joule", 1),
        ("GPU power", "gpu_power", "W", "sensors.gpu_power.mean"),
        ("CPU power", "cpu_power", "W", "sensors.cpu_power.mean"),
    ],
}
METRICS = [
    ("top-1", "top1", "share", 1),
    ("mean IoU", "miou", "share", 1),
    ("mAP", "map", "share", 1),
    ("RMSE", "rmse", "number", -1),
    ("RMSE / persistence", "persistence", "number", -1),
    ("R2", "r2", "number", 1),
    ("loss", "loss", "number", -1),
]
SPLITS = [("test", "Test"), ("val", "Validation")]
FACTS = []
for group, rows in FACT_TABLE.items():
    for name, key, kind, better in METRICS if group == "Quality" else ():
        for split, title in SPLITS:
            find = functools.partial(Run.metric, split=split, name=key)
            line = "%s %s" % (title, name), "%s_%s" % (split, key), kind, find, better, split
            FACTS.append(Fact(group, *line))
    FACTS += [Fact(group, *row) for row in rows]
FACT = {fact.key: fact for fact in FACTS}
RELATIVE = (speed_up, efficiency)


def fact_known(fact, runs):
    if len(runs) == 1 and fact.find in RELATIVE:
        return False
    return any(fact.cell(run, runs[0]) for run in runs)


def fact_name(fact, runs):
    """The name: top-1 is the pixel accuracy of a segmentation, or of all labels together."""
    tasks = [run.task() for run in runs]
    names = {"segmentation": "pixel accuracy", "labels": "all labels right"}
    name = names.get(tasks[0], "top-1") if len(set(tasks)) == 1 else "top-1"
    return fact.name.replace("top-1", name)


def fact_best(fact, runs, run):
    """True if no run that can be compared has a better value and one has another value."""
    own, quality = fact.value(run, runs[0]), fact.group == "Quality"
    if not fact.better or isinstance(own, str) or math.isnan(own):
        return False
    others = [(other, fact.value(other, runs[0])) for other in runs]
    others = [(o, v) for o, v in others if not isinstance(v, str) and not math.isnan(v)]
    if quality:
        others = [(o, v) for o, v in others if o.task() == run.task()]
    elif any(difference(other, run) for other, _ in others):
        return False
    if fact.group == "Time" and any(o.last_step() != run.last_step() for o, _ in others):
        return False
    values = [value * fact.better for _, value in others]
    return max(values) == own * fact.better > min(values)


def facts_csv(runs):
    output = io.StringIO(newline="")
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow(["run"] + [fact.key for fact in FACTS])
    for run in runs:
        row = [CONTROL.sub("\ufffd", run.name)]
        for fact in FACTS:
            value = fact.value(run, runs[0])
            if not isinstance(value, str):
                value = "" if math.isnan(value) else "%.9g" % value
            row.append(CONTROL.sub("\ufffd", value))
        writer.writerow(row)
    return output.getvalue()


# ---- charts

# Each colour has a contrast of 3:1 on white. Any two differ by at least 16 in CIELAB, also for
# protanopes, deuteranopes and tritanopes (Machado, Oliveira and Fernandes, IEEE TVCG 15, 2009).
COLOURS = "0067ac ce5400 22a868 a47b9b 60502c 043551 8200f9 343537".split()
LABEL, TEXT, GRID = "#57606a", "#1b1f24", "#d5dbe1"
MOST = 1e30


class Series:
    """A curve. `covered`: number of curves that hide it."""

    def __init__(self, x, y, name="", colour=0, dashed=False, thin=False):
        self.x, self.y, self.name, self.stroke = x, y, name, "#" + COLOURS[colour % len(COLOURS)]
        self.colour, self.dashed, self.thin, self.covered = colour % len(COLOURS), dashed, thin, 0


class Chart(NamedTuple):
    title: str
    series: list
    x_label: str = "step"
    y_label: str = ""
    x_whole: bool = True
    x_log: bool = False
    y_log: bool = False
    y_zero: bool = False
    y_range: tuple = None
    mark: float = NAN  # x of a vertical line
    mark_label: str = ""


def drawable(value, log):
    return abs(value) <= MOST and (not log or value >= 1 / MOST)


def tick_text(value, step, magnitude):
    power = math.floor(math.log10(magnitude) + 1e-9)
    place = math.floor(math.log10(step) + 1e-9)
    if (magnitude < 0.01 and step < 0.001) or magnitude >= 1e7:
        decimals = min(max(power - place, 0), 9)
        return "%.*fe%d" % (decimals, value / 10.0**power, power) if value else "0"
    return "{:,.0f}".format(value) if place >= 0 else "%.*f" % (min(-place, 9), value)


def ticks_linear(least, most, wanted):
    rough = (most - least) / max(wanted, 1) * 0.8
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * next((f for f in (1, 2, 5) if rough / power <= f * 1.0001), 10)
    first = math.ceil(least / step - 1e-6)
    values = [i * step for i in range(first, first + 30) if i * step <= most + step * 1e-6]
    return [(v, tick_text(v + 0.0, step, max(abs(least), abs(most)))) for v in values]


def ticks_log(least, most, wanted):
    decades = math.log10(most / least)
    if decades < 0.7:
        return ticks_linear(least, most, wanted)
    wanted, exponents = max(wanted, 1), least < 0.001 or most >= 1e7
    every = math.ceil(decades / wanted) if decades > wanted else 1
    low, ticks = math.floor(math.log10(least)), []
    for decade in range(low, math.ceil(math.log10(most)) + 1, every):
        for factor in (1, 2, 5) if decades <= wanted / 3 + 0.5 else (1,):
            value = factor * 10.0**decade
            if least * 0.9999 <= value <= most * 1.0001:
                name = "%de%d" % (factor, decade)
                if not exponents:
                    name = tick_text(value, 10.0**decade, max(value, 0.001))
                ticks.append((value, name))
    return ticks


class Axis:
    """The limits of an axis, and its place on the drawing."""

    def __init__(self, values, log, zero=False, margin=0.0):
        values = values or [0.1 if log else 0.0, 1.0]
        least, most = min(values), max(values)
        if not log and zero:
            least, most = min(least, 0.0), max(most, 0.0)
        if most - least <= max(1e-12 * max(abs(least), abs(most)), 1 / MOST):
            around = abs(least) * 0.1 or 1.0
            least, most = (least / 2, most * 2) if log else (least - around, most + around)
        if log:
            factor = (most / least) ** (0.8 * margin)
            least, most = least / factor, most * factor
        else:
            margin *= most - least
            least, most = least - margin * (least != 0), most + margin * (most != 0)
        self.least, self.most, self.log, self.place = least, most, log, (0.0, 1.0)

    def ticks(self, distance, whole=False):
        wanted = int(abs(self.place[1] - self.place[0]) / distance)
        wanted = min(wanted, int(self.most - self.least)) if whole else wanted
        return (ticks_log if self.log else ticks_linear)(self.least, self.most, wanted)

    def at(self, value):
        if self.log:
            share = math.log(value / self.least) / math.log(self.most / self.least)
        else:
            share = (value - self.least) / (self.most - self.least)
        start, end = self.place
        return start + min(max(share, 0.0), 1.0) * (end - start)


class Drawing:
    """A chart as SVG. With an id it is part of a page: without title, with values to point at."""

    def __init__(self, chart, width, height, name="", enlarged=1.0, places=100, coarse=1.0):
        self.chart, self.name, self.coarse, self.places = chart, name, coarse, places
        self.width, self.height, self.parts = width, height, []
        points = [p for s in chart.series for p in zip(s.x, s.y) if drawable(p[0], chart.x_log)]
        marks = [] if math.isnan(chart.mark) else [chart.mark]
        self.x = Axis(marks + [x for x, _ in points], chart.x_log, True)
        ys = [y for _, y in points if drawable(y, chart.y_log)]
        if chart.y_range:
            self.y = Axis(chart.y_range, chart.y_log)
        else:
            self.y = Axis(ys, chart.y_log, chart.y_zero, 0.05)
        line = 1.35 * 12 * enlarged
        self.legend = [] if name else [s for s in chart.series if s.name]
        top = 0 if name else (22 if chart.title else 4) + (20 if self.legend else 0)
        self.top = top + (8 if name else 26 if chart.y_label else 8)
        self.bottom = height - line - 8 - (line if chart.x_label else 0)
        self.y.place = self.bottom, self.top
        self.y_ticks = self.y.ticks(max(30, 24 * enlarged))
        wide = lambda ticks: 0.62 * 12 * enlarged * max((len(t) for _, t in ticks), default=0)
        self.left, self.right = math.ceil(wide(self.y_ticks)) + 10, width - 14
        self.x.place = self.left, self.right
        label = math.ceil(wide(self.x.ticks(62)))
        self.x_ticks = self.x.ticks(max(50, 1.5 * label), chart.x_whole)
        self.right = width - max(14, label / 2 + 2)
        self.x.place = self.left, self.right

    def write(self, line, *values):
        self.parts.append(line % values)

    def text(self, x, y, words, anchor="", colour=LABEL, more=""):
        anchor = ' text-anchor="%s"' % anchor if anchor else ""
        fill = colour, esc(words)
        self.write('<text x="%.4g" y="%.4g"%s%s fill="%s">%s</text>\n', x, y, anchor, more, *fill)

    def line(self, x0, y0, x1, y1, colour, more=""):
        place = x0, y0, x1, y1, colour, more
        self.write('<path d="M%.4g %.4g %.4g %.4g" stroke="%s"%s/>\n', *place)

    def thin_out(self, series):
        """At most four points per column of pixels: first, lowest, highest, last. None: a gap."""
        width = self.coarse * max(1, len(self.chart.series) / 4)
        columns, gap = [], False
        for index, (x, y) in enumerate(zip(series.x, series.y)):
            if not drawable(x, self.chart.x_log) or not drawable(y, self.chart.y_log):
                gap = True
                continue
            x, y = self.x.at(x), self.y.at(y)
            if not columns or columns[-1][0] != x // width:
                columns += [(None, [])] if gap and columns else []
                columns.append((x // width, []))
            columns[-1][1].append((index, x, y))
            gap = False
        points, by_y = [], lambda point: point[2]
        for _, column in columns:
            if not column:
                points.append(None)
                continue
            kept = {column[0], column[-1], min(column, key=by_y), max(column, key=by_y)}
            points += [point[1:] for point in sorted(kept)]
        return points

    def curve(self, series):
        points, path = self.thin_out(series), []
        for before, point, after in zip([None] + points, points, points[1:] + [None]):
            if point:
                path.append("%s%.4g %.4g" % (("" if before else "M",) + point))
                path += [] if before or after else ["h0"]
        if not path:
            return
        width = 1.7 + 1.9 * min(series.covered, 2)
        width = 1 if series.thin or len(series.x) > 600 else width
        more = ' stroke-dasharray="5 4" stroke-linecap="butt"' if series.dashed else ""
        line = '<path d="%s" stroke="%s" stroke-width="%.3g"%s/>\n'
        self.write(line, " ".join(path), series.stroke, width, more)
        if len(series.x) <= 40 and not series.thin:
            dots = " ".join("M%.4g %.4gh0" % point for point in points if point)
            self.write(line, dots, series.stroke, 4.5, "")

    def x_text(self, x):
        label = self.chart.x_label
        return "%s %s" % ((label, show("count", x)) if self.chart.x_whole else (short(x, 4), label))

    def values(self, x):
        """The values of all curves at x."""
        lines = [self.x_text(x)]
        for series in self.chart.series:
            if not series.x:
                continue
            at = min(bisect.bisect_left(series.x, x), len(series.x) - 1)
            at -= at > 0 and x - series.x[at - 1] < series.x[at] - x
            shown = "not finite"
            if math.isfinite(series.y[at]):
                shown = ("%s %s" % (show("number", series.y[at]), self.chart.y_label)).rstrip()
            other = series.x[at] != x and self.chart.x_whole
            place = " at " + self.x_text(series.x[at]) if other else ""
            lines.append("%s %s%s" % (series.name or self.chart.title, shown, place))
        return "\n".join(esc(line) for line in lines)

    def hover(self):
        """Rectangles around points of the longest curve; browsers show their titles."""
        xs = max((series.x for series in self.chart.series), key=len)
        count = min(len(xs), max(self.places // (1 + len(self.chart.series) // 8), 8))
        chosen = [xs[i * (len(xs) - 1) // max(count - 1, 1)] for i in range(count)]
        chosen = [x for x in chosen if drawable(x, self.chart.x_log)]
        edges = [(self.x.at(a) + self.x.at(b)) / 2 for a, b in zip(chosen, chosen[1:])]
        box = '<rect class="at" x="%.1f" y="%.0f" width="%.1f" height="%.0f"><title>%s</title></rect>\n'
        for x, start, end in zip(chosen, [self.left] + edges, edges + [self.right]):
            size = max(end - start, 0), self.bottom - self.top
            self.write(box, start, self.top, *size, self.values(x))

    def about(self):
        """The attributes of a chart that is part of a page."""
        about = ["%s by %s." % (self.chart.title, self.chart.x_label)]
        for s in self.chart.series:
            last = show("number", next((y for y in reversed(s.y) if y == y), NAN))
            about += ["%s: %d points, last %s." % (s.name, len(s.x), last)] if s.name else []
        frame = "%.2f %.2f %.2f %.2f" % (self.left, self.top, self.right, self.bottom)
        limits = "%.9g %.9g %.9g %.9g" % (self.x.least, self.x.most, self.y.least, self.y.most)
        line = ' class="chart" id="%s" data-frame="%s" data-range="%s" role="img" aria-label="%s"'
        return line % (self.name, frame, limits, esc(" ".join(about)))

    def svg(self, more=' xmlns="http://www.w3.org/2000/svg"'):
        chart, left, right, top, bottom = self.chart, self.left, self.right, self.top, self.bottom
        self.write(
            '<svg%s viewBox="0 0 %g %g" fill="none" font-size="12" '
            'font-family="system-ui,sans-serif" stroke-linejoin="round" stroke-linecap="round">\n',
            *(self.about() if self.name else more, self.width, self.height)
        )
        for value, words in self.y_ticks:
            y = self.y.at(value)
            self.line(left, y, right, y, GRID)
            self.text(left - 6, y, words, "end", more=' dy=".35em"')
        for value, words in self.x_ticks:
            x = self.x.at(value)
            self.line(x, top, x, bottom, GRID)
            self.text(x, bottom + 4, words, "middle", more=' dy="1em"')
        self.line(left, bottom, right, bottom, LABEL)
        if chart.x_label:
            self.text(right, bottom + 4, chart.x_label, "end", more=' dy="2.3em"')
        if not math.isnan(chart.mark):
            x = self.x.at(chart.mark)
            self.line(x, top, x, bottom, LABEL, ' stroke-dasharray="2 3"')
            side = (x - 4, "end") if x > (left + right) / 2 else (x + 4, "")
            self.text(side[0], top + 11, chart.mark_label, side[1])
        if not self.name:
            self.heading()
        for series in chart.series:
            self.curve(series)
        if not any(len(series.x) for series in chart.series):
            self.text((left + right) / 2, (top + bottom) / 2, "no data", "middle")
        elif self.name:
            self.hover()
        return "".join(self.parts) + "</svg>"

    def heading(self):
        """Title, legend and label of the y axis of a chart of its own."""
        x = 4
        for series in self.legend:
            more = ' stroke-width="2"' + (' stroke-dasharray="5 4"' if series.dashed else "")
            self.line(x, 32, x + 18, 32, series.stroke, more)
            self.text(x + 23, 36, series.name, colour=TEXT)
            x += 18 + 5 + 0.62 * 12 * len(series.name) + 14
        if self.chart.y_label:
            self.text(4, self.top - 7, self.chart.y_label)
        self.text(4, 15, self.chart.title, colour=TEXT, more=' font-weight="bold" font-size="13"')


def charts_write(charts, path, width, height):
    """Draw charts side by side into PATH.svg, and PATH.png if matplotlib can be imported."""
    part = width / len(charts)
    head = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d">\n' % (width, height)
    head += '<rect width="100%" height="100%" fill="#fff"/>\n'
    for i, chart in enumerate(charts):
        more = ' x="%g" width="%g" height="%d"' % (i * part, part, height)
        head += Drawing(chart, part, height).svg(more) + "\n"
    write_file(path + ".svg", head + "</svg>\n")
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        return
    figure, axes = pyplot.subplots(1, len(charts), squeeze=False, dpi=100)
    figure.set_size_inches(width / 100, height / 100)
    for axis, chart in zip(axes[0], charts):
        for s in chart.series:
            style = "--" if s.dashed else "-"
            colour, line = s.stroke, 0.8 if s.thin else 1.6
            axis.plot(s.x, s.y, style, color=colour, linewidth=line, label=s.name or None)
        axis.set(title=chart.title, xlabel=chart.x_label, ylabel=chart.y_label)
        axis.set_xscale("log" if chart.x_log else "linear")
        if chart.y_range:
            axis.set_ylim(*chart.y_range)
        if any(s.name for s in chart.series):
            axis.legend()
    figure.tight_layout()
    figure.savefig(path + ".png")
    pyplot.close(figure)


# ---- tables, as HTML and as Markdown


class Sheet:
    """A table of records. A column has a name, a kind, and a key of the record or a function of
    it. Columns without values are left out. Kinds: text, code, bar (a share with a bar), or one of
    show()."""

    def __init__(self, title, style, records, columns, note=""):
        self.title, self.style, self.note, self.columns = title, style, note, []
        for name, kind, find in columns:
            value = find if callable(find) else lambda record: get(record, find)
            cells = [self.cell(kind, value(record)) for record in records]
            if any(cells):
                self.columns.append((name, kind, cells))
        self.rows = list(zip(*[cells for _, _, cells in self.columns]))

    @staticmethod
    def cell(kind, value):
        if kind in ("text", "code", "as is"):
            return "" if value is None else str(value)
        return show("share" if kind == "bar" else kind, num(value))

    def html(self):
        if not self.rows:
            return ""
        head, rows = [], []
        for name, kind, _ in self.columns:
            head.append(html_cell(label(name), "" if kind in ("text", "code") else "n", "col"))
            head += ['<td class="m"></td>'] if kind == "bar" else []
        for row in self.rows:
            cells = []
            for (_, kind, _), cell in zip(self.columns, row):
                shown = "<code>%s</code>" % esc(cell) if kind == "code" else esc(cell)
                number = "" if kind in ("text", "code") else "n"
                cells.append(html_cell(shown, number, "" if cells else "row"))
                if kind == "bar":
                    bar = '<td class="m"><span class="bar s0" style="--v:%.2f"></span></td>'
                    cells.append(bar % (known(num(cell.rstrip(" %")), 0.0) / 100))
            rows.append(cells)
        note = '<p class="note">%s</p>\n' % esc(self.note) if self.note else ""
        tall = " tall" if len(self.rows) > 24 else ""
        return note + html_table(self.style, self.title, head, rows, tall)

    def markdown(self):
        if not self.rows:
            return ""
        rules = ["---" if kind in ("text", "code") else "---:" for _, kind, _ in self.columns]
        lines = ["", "## " + self.title, ""] + ([self.note, ""] if self.note else [])
        lines.append("| %s |" % " | ".join(markdown(name) for name, _, _ in self.columns))
        lines.append("|%s|" % "|".join(rules))
        lines += ["| %s |" % " | ".join(map(markdown, row)) for row in self.rows]
        return "\n".join(lines) + "\n"


def html_cell(shown, style="", scope="", more=""):
    """A cell, or with a scope (col, row) a header cell."""
    tag, scope = ("th", ' scope="%s"' % scope) if scope else ("td", "")
    style = ' class="%s"' % style if style else ""
    return "<%s%s%s%s>%s</%s>" % (tag, scope, style, more, shown, tag)


def html_table(style, name, head, rows, more="", caption="", body=""):
    """A table in a box with a scroll bar; with the focus it can be scrolled by keyboard."""
    box = '<div class="scroll%s" role="region" tabindex="0" aria-label="%s"><table class="%s">\n'
    lines = [box % (more, esc(name), style)]
    lines += ["<caption>%s</caption>\n" % caption] if caption else []
    lines += ["<thead><tr>%s</tr></thead>\n" % "".join(head)] if head else []
    lines += ["<tbody%s>\n" % body] + ["<tr>%s</tr>\n" % "".join(row) for row in rows]
    return "".join(lines) + "</tbody></table></div>\n"


def label(name):
    """Names such as top-1 are not broken at the hyphen."""
    return esc(name).replace("-1", "\u2011" + "1")


def markdown(value):
    words = re.sub(r"[\n\r\t]", " ", str(value))
    words = CONTROL.sub("?", words).replace("<", "&lt;")
    return re.sub(r"([|\\`*\[\]])", r"\\\1", words)


def sheet_splits(run):
    rows = []
    if isinstance(run.result.get("train"), dict):
        weights = "mean of the last epoch, during training"
        rows.append(dict(run.result["train"], split="training", weights=weights))
    for split, name in (("val", "validation"), ("test", "test")):
        shown = [run.evaluation(split)] + run.evaluations(split)[-1:]
        for evaluation in shown[:1] if shown[0] is shown[-1] else shown:
            weights = run.weights_text(evaluation["step"])
            rows.append(dict(evaluation, split=name, weights=weights))
        if not run.evaluations(split):
            rows.pop()
    columns = [
        ("split", "text", "split"),
        ("samples", "count", "samples"),
        ("loss", "number", "loss"),
        (fact_name(FACT["val_top1"], [run]).partition(" ")[2], "share", "top1"),
        ("top-5", "share", "top5"),
        ("mean IoU", "share", "miou"),
        ("mAP", "share", "map"),
        ("macro precision", "share", "macro.precision"),
        ("macro recall", "share", "macro.recall"),
        ("macro F1", "share", "macro.f1"),
        ("macro specificity", "share", "macro.specificity"),
        ("measured with", "text", "weights"),
    ]
    note, monitor, value = "", text(get(run.result, "best.monitor")), run.number("best.value")
    if not math.isnan(value):
        kind = "share" if monitor.startswith(("top", "miou", "map")) else "number"
        note = "checkpoint.monitor=%s: best validation value %s, at step %s."
        note %= monitor, show(kind, value), show("count", run.number("best.step"))
    return Sheet("Quality by split", "ranks", rows, columns, note)


CLASSES_MOST = 60


def sheet_classes(run):
    found = run.detailed()
    classes, matrix = [], array(found.get("confusion_matrix"))
    for at, one in enumerate(records(found.get("classes"))):
        row = array(matrix[at]) if at < len(matrix) else [NAN]
        # `accuracy` is its name in version 0.2.
        accuracy = one.get("accuracy", one.get("one_vs_rest_accuracy"))
        classes.append(dict(one, one_vs_rest_accuracy=accuracy, images=sum(map(num, row))))
    columns = [
        ("class", "text", lambda one: text(one.get("name")) or "?"),
        ("F1", "bar", "f1"),
        ("recall", "share", "recall"),
        ("precision", "share", "precision"),
        ("specificity", "share", "specificity"),
        ("one-vs-rest accuracy", "share", "one_vs_rest_accuracy"),
        ("IoU", "bar", "iou"),
        ("average precision", "bar", "average_precision"),
        ("images" if found.get("miou") is None else "pixels", "count", "images"),
    ]
    note = "Of the %s." % run.weights_text(found["step"]) if classes else ""
    if len(classes) > CLASSES_MOST:
        note += " The %d of %d classes with the lowest F1." % (CLASSES_MOST, len(classes))
        classes.sort(key=lambda one: known(num(one.get("f1")), 2.0))
    title = "Classes (%s split)" % found.get("split", "")
    return Sheet(title, "classes", classes[:CLASSES_MOST], columns, note)


def sheet_outputs(run):
    split = "test" if run.evaluation("test").get("outputs") else "val"
    evaluation = run.evaluation(split)
    outputs = records(evaluation.get("outputs"))
    keys = "rmse mae bias r2 persistence_rmse persistence_mae".split()
    names = "RMSE,MAE,bias,R2,persistence RMSE,persistence MAE".split(",")
    columns = [("output", "text", lambda output: text(output.get("name")) or "?")]
    columns += [(name, "number", key) for name, key in zip(names, keys)]
    columns.append(("RMSE / persistence", "number", persistence))
    note = "Errors in the units of the data, of the %s." % run.weights_text(evaluation["step"])
    return Sheet("Outputs (%s split)" % split, "classes", outputs, columns, note)


def words_of(name, ending="_seconds"):
    name = name[: -len(ending)] if name.endswith(ending) else name
    return name.replace("_", " ").strip()


def unit_columns(units, title, kind, ending):
    """The sum of the columns with this ending, its share of the whole model, and the columns."""
    names = [name for name in units.names if name.endswith(ending)]
    names = [name for name in names if highest(units.numbers(name)) > 0]
    total = lambda unit: sum(known(num(unit.get(name)), 0.0) for name in names)
    whole = sum(map(total, units.rows))
    sums = (title, kind, total), ("of all", "bar", lambda unit: ratio(total(unit), whole))
    return [*sums, *((words_of(name, ending), kind, name) for name in names)]


def sheet_units(run):
    columns = [("unit", "text", "unit"), ("parameters", "count", "parameters")]
    columns += unit_columns(run.units, "step time", "seconds", "_seconds")
    columns += unit_columns(run.units, "memory", "bytes", "_bytes")
    note = "Times are means of a training step. Memory is the planned memory of rank 0."
    return Sheet("Units of the model", "classes", run.units.rows, columns, note)


RANKS_MOST = 256

KINDS = {"bytes": "bytes", "seconds": "seconds", "busy": "share", "power": "W", "steps": "count"}
RANK_WORDS = {
    "planned_bytes": "planned memory",
    "peak_bytes": "peak memory",
    "user_seconds": "user CPU time",
    "system_seconds": "system CPU time",
    "seconds": "training time",
    "data_seconds": "waiting for data",
    "exposed_comm_seconds": "waiting for communication",
}


def sheet_ranks(run):
    columns = []
    for name in run.ranks.names:
        words = RANK_WORDS.get(name, words_of(words_of(name), "_bytes"))
        kind = next((kind for part, kind in KINDS.items() if part in name), "")
        number = not math.isnan(run.ranks.numbers(name)[0])
        columns.append((words, kind or ("as is" if number else "text"), name))
    most, count = "The first %d of %d rows.", len(run.ranks)
    note = most % (RANKS_MOST, count) if count > RANKS_MOST else ""
    return Sheet("Ranks", "ranks", run.ranks.rows[:RANKS_MOST], columns, note)


def sheet_attempts(run):
    rows = []
    for at, attempt in enumerate(run.attempts):
        start, end = known(num(attempt.get("from_step")), 0.0), num(attempt.get("to_step"))
        steps = "%.0f to %s" % (max(start, 0), "?" if end != end else "%.0f" % end)
        outcome = text(attempt.get("error")) or text(attempt.get("stop_reason"))
        last = run.status() if at + 1 == len(run.attempts) else "interrupted"
        changed = attempt.get("changed") if isinstance(attempt.get("changed"), dict) else {}
        changes = ["%s: %s" % (k, " to ".join(map(str, array(v)))) for k, v in changed.items()]
        row = dict(attempt, at=at + 1, span=steps, outcome=outcome or last)
        rows.append(dict(row, changes="; ".join(changes)))
    stamp = lambda key: lambda row: stamp_text(row.get(key))
    joined = lambda key: lambda row: ", ".join(map(str, array(row.get(key))))
    columns = [
        ("attempt", "text", "at"),
        ("started", "text", stamp("started")),
        ("ended", "text", stamp("ended")),
        ("steps", "text", "span"),
        ("ranks", "count", "ranks"),
        ("hosts", "text", joined("hosts")),
        ("devices", "text", joined("devices")),
        ("set-up", "seconds", "setup_seconds"),
        ("outcome", "text", "outcome"),
        ("changed", "text", "changes"),
        ("command", "code", lambda row: text(row.get("command"))),
    ]
    return Sheet("Attempts", "facts", rows, columns)


def sheet_options(runs):
    """Options of a run that differ from their defaults, or that differ between runs."""
    title, names, note = "Options that differ from their defaults", ["value", "default"], ""
    rows = [] if len(runs) > 1 else runs[0].settings()
    if len(runs) > 1:
        title, names = "Differing options", [letters(at) for at in range(len(runs))]
        for key in sorted(set().union(*[run.deck for run in runs])):
            values = [run.deck.get(key, "(not set)") for run in runs]
            if key not in ("run.name", "run.dir") and len(set(values)) > 1:
                rows.append([key] + values)
    elif not defaults():
        title, note = "Options", "The defaults are unknown: the program vittrain was not found."
    columns = [(name, "code", str(at)) for at, name in enumerate(["option"] + names)]
    return Sheet(title, "decks", rows, columns, note)


# ---- the page

# Charts have the colours of light pages and no background; on dark pages a filter inverts their
# lightness and keeps their hues. Tables wider than the page scroll in a box. Print shows the
# details of closed sections, too; paper is 690 pixels wide, so the page is scaled to the layout of
# a screen.
STYLE = """*{box-sizing:border-box}
:root{color-scheme:light dark;--paper:#fff;--text:#1b1f24;--quiet:#57606a;--grid:#e1e5ea;
--link:#0067ac;--card:#f6f8fa;--fill:70%;--bad:#b3261e;--good:#1a7f37}
@media screen and (prefers-color-scheme:dark){
:root{--paper:#161a1f;--text:#e6eaef;--quiet:#9ba4af;--grid:#343b44;
--link:#5cb2f5;--card:#1e242b;--fill:50%;--bad:#ff8a80;--good:#56d364}
.chart,.key,.bar,i{filter:invert(1) hue-rotate(180deg)}}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--paper);color:var(--text);
font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif}
main,header,footer{max-width:1280px;margin:0 auto;padding:0 24px}
header{padding-top:28px}
h1{font-size:28px;line-height:1.25;margin:0;overflow-wrap:anywhere;letter-spacing:-.01em}
h2{font-size:17px;margin:0}h3{font-size:15px;margin:22px 0 6px;overflow-wrap:anywhere}
p{margin:4px 0 10px;max-width:75ch}
.kind{color:var(--quiet);overflow-wrap:anywhere;max-width:none}
.note,caption{color:var(--quiet);font-size:13px}
.key{display:inline-block;min-width:1.7em;padding:0 .45em;margin-right:.5em;border-radius:5px;
text-align:center;font-weight:600;background:currentColor}.key b{color:#fff}
.state{white-space:nowrap;font-weight:600;color:var(--text)}
.state.ok{color:var(--good)}.state.no,.reason{color:var(--bad)}
.tiles{display:flex;flex-wrap:wrap;gap:12px 44px;background:var(--card);border-radius:10px;
margin:18px 0 0;padding:14px 18px}.tiles dt{font-size:12px;color:var(--quiet)}
.tiles dd{margin:0;font-size:21px;font-weight:600;font-variant-numeric:tabular-nums}
td small,.tiles small{display:block;font-size:11px;font-weight:400;color:var(--quiet)}
.figures{width:100%;margin-top:12px}.figures thead th{vertical-align:bottom}
.figures td.n{font-weight:600;vertical-align:middle}.figures td small{white-space:normal}
.figures thead th.n{white-space:normal;min-width:104px}
.figures tbody th{min-width:240px;padding:7px 0}
.figures th small{display:block;color:var(--quiet);line-height:1.4;overflow-wrap:anywhere}
.large{display:grid;grid-template-columns:1fr 1fr;gap:32px 40px;margin:28px 0 36px}
.large>:only-child{grid-column:1/-1;max-width:900px}.large figcaption{font-size:18px}
.charts{display:grid;gap:26px 32px;margin:12px 0;align-items:start;
grid-template-columns:repeat(6,minmax(0,1fr))}.charts>*{grid-column:span 3}
@media print,(min-width:900px){.charts>*{grid-column:span 2}
.charts>:nth-child(3n):nth-last-child(2){grid-column:1/3}
.large .chart{margin-bottom:-14px}.large>:only-child .chart{font-size:9px}}
figure{margin:0;min-width:0}figcaption{font-weight:600;font-size:15px}
figcaption small{font-weight:400;color:var(--quiet);margin-left:.3em;font-size:13px}
.legend{display:flex;flex-wrap:wrap;gap:0 16px;font-size:13px;margin:2px 0 6px;max-width:none}
.chart{display:block;width:100%;height:auto;overflow:visible}
.chart path{vector-effect:non-scaling-stroke}
.at{fill:#57606a;fill-opacity:0;stroke:none}.at:hover{fill-opacity:.16}
i{display:inline-block;background:currentColor}
.any{color:#57606a}.legend i{width:11px;height:11px;margin-right:6px}
.legend .line,.legend .dash{width:20px;height:3px;vertical-align:middle}
.legend .dash{background:repeating-linear-gradient(90deg,currentColor 0 5px,transparent 5px 8px)}
details{border-top:1px solid var(--grid)}details:last-of-type{border-bottom:1px solid var(--grid)}
summary{cursor:pointer;padding:12px 0;list-style-position:inside}
summary h2{display:inline}summary small{color:var(--quiet);margin-left:.6em}
summary:hover h2{text-decoration:underline}details>div{padding:0 0 24px}
.groups{columns:340px 3;column-gap:36px}
.groups.two{columns:2}.groups.two table{table-layout:fixed}
.groups.wide{columns:auto 1}.groups.wide table{table-layout:fixed}
.groups.wide tr>:first-child{width:180px}.groups.wide th.n{width:110px}
.groups>div{break-inside:avoid;padding-bottom:10px}
.groups .scroll{margin:0}.groups table{width:100%}
.facts tbody th{white-space:nowrap}.facts td.t{font-size:13px;line-height:1.6}
.facts td small{white-space:normal}.classes th,.pairs th{white-space:nowrap}
.classes td.n,.classes th.n{padding:3px 6px}
.ranks,.classes{font-size:13px}.ranks td{white-space:nowrap}
.ranks td.n,.ranks th.n{padding:3px 10px 3px 6px}
.ranks thead th,.classes thead th{vertical-align:bottom;white-space:normal}
.scroll{overflow-x:auto;max-width:100%;margin:6px 0 12px}.tall{max-height:640px;overflow:auto}
.tall thead th,.tall thead td{position:sticky;top:0;background:var(--paper)}
table{border-collapse:collapse;font-size:14px;font-variant-numeric:tabular-nums}
caption{text-align:left;padding:2px 0 4px;font-weight:600;color:var(--text);font-size:15px}
th,td{padding:3px 10px 3px 0;border-bottom:1px solid var(--grid);text-align:left;vertical-align:top}
th{font-weight:600}tbody th{font-weight:400}
td.n,th.n{text-align:right;padding:3px 13px 3px 12px;white-space:nowrap}
td.t{text-align:right;padding:3px 13px 3px 12px;overflow-wrap:break-word}
th.n .key{margin:0 -.45em 0 0}.best{font-weight:700;position:relative}
.best::after{content:"";position:absolute;right:2px;top:50%;width:6px;height:6px;margin-top:-3px;
border-radius:50%;background:var(--good)}
code{font:13px/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;overflow-wrap:anywhere}
.decks th code{white-space:nowrap}.decks td{max-width:340px;min-width:70px}
.pair{display:grid;gap:6px 40px;
grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr))}
.pair>div{min-width:0}.pair>.wide{grid-column:1/-1}
.confusion{font-size:12px;border-spacing:1px;border-collapse:separate}
.confusion th,.confusion td{border:0;padding:2px 3px;text-align:center;vertical-align:middle}
.confusion tbody th{text-align:right;padding-right:6px;max-width:180px;overflow-wrap:break-word}
.confusion thead th{vertical-align:bottom}
.confusion thead span{writing-mode:vertical-rl;transform:rotate(180deg);max-height:180px;
overflow-wrap:break-word;line-height:1.15}
.confusion td{min-width:34px;height:30px;border-radius:3px;white-space:nowrap;
background:color-mix(in srgb,var(--link) calc(var(--v)*var(--fill)),var(--card))}
main>.pair{margin-bottom:28px}
.images{display:grid;grid-template-columns:repeat(auto-fill,minmax(84px,1fr));gap:14px 12px}
.images img{width:84px;height:84px;object-fit:contain;object-position:left;
image-rendering:pixelated}.images b,.images span{display:block}
.images p{margin:2px 0;font-size:12px;line-height:1.35;overflow-wrap:anywhere}
.planes{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,400px),1fr));gap:0 24px}
.planes img{width:100%;max-width:396px;image-rendering:pixelated}
.planes p{margin:2px 0 12px;font-size:12px}.planes span{margin-left:12px}
.values,.errors{filter:none;display:inline-block;width:60px;height:9px;
background:linear-gradient(to right,#440154,#3b528b,#21918c,#5ec962,#fde725)}
.errors{background:linear-gradient(to right,#2166ac,#92c5de,#f7f7f7,#f4a582,#b2182b)}
.matrix{display:block;width:100%;max-width:560px;color:var(--link);border:1px solid var(--grid)}
.bar{display:inline-block;height:8px;width:calc(var(--v)*64px);background:currentColor;
border-radius:2px}td.m{padding:3px 0;min-width:68px}
ul{padding-left:20px;margin:4px 0 10px}li{overflow-wrap:anywhere}
footer{padding-top:18px;padding-bottom:32px;color:var(--quiet);font-size:13px}
@media screen and (max-width:900px){.large{grid-template-columns:minmax(0,1fr)}}
@media screen and (max-width:560px){
main,header,footer{padding-left:14px;padding-right:14px}h1{font-size:23px}
.charts>*{grid-column:1/-1}.large{gap:26px;margin-top:22px}
.large .chart{font-size:19px}.charts .chart{font-size:13px}
.tiles{display:grid;grid-template-columns:repeat(2,auto);padding:12px 14px;gap:10px 20px}
.tiles dd{font-size:19px}.figures tbody th{min-width:150px}td.m{display:none}
.confusion td{min-width:24px;height:24px}.confusion{font-size:11px}
.confusion tbody th{max-width:100px}}
@media print{@page{margin:14mm}
body{zoom:.7}main,header,footer{max-width:none;padding:0}
details::details-content{content-visibility:visible;display:block;height:auto}
summary{list-style:none;padding-top:18px}details{border:0}.at{display:none}
h2,h3,caption,summary,.note{break-after:avoid}
figure,tr,.tiles,.confusion,.matrix,.images>div{break-inside:avoid}
.tiles,.confusion td,.bar,.key,i{print-color-adjust:exact;-webkit-print-color-adjust:exact}
.scroll{overflow:visible;max-height:none}td.m{display:none}
.classes td.n,.classes th.n{padding:3px 5px}
.groups{columns:3}.groups.two{columns:2}.groups.wide{columns:1}.groups>div{break-inside:auto}
.tiles{gap:12px 18px}.ranks,.classes{font-size:11px}.ranks td{white-space:normal}
.ranks td.n,.ranks th.n{padding:3px 5px}.ranks td.n{white-space:nowrap}}
"""


class Measure(NamedTuple):
    """A chart of a column of metrics.csv, and its column in the table of values."""

    name: str
    title: str
    column: str
    unit: str = ""
    mean: str = "images"  # how the rows of a point are combined: by images or seconds, or the last
    flags: str = ""  # large; val: also of evaluations; log: the scale

    kind = property(lambda self: "share" if self.unit else RATES.get(self.column, "number"))
    large = property(lambda self: "large" in self.flags)
    evaluated = property(lambda self: "val" in self.flags)
    by_time = property(lambda self: self.name.endswith("-time"))
    of_step = property(lambda self: self.column.endswith("_seconds"))  # divided by the step time


RATES = {"images_per_second": "rate"}
STEP = "% of step time"
MEASURES = [
    Measure("miou-steps", "Mean IoU", "miou", "%", flags="large val"),
    Measure("map-steps", "mAP", "map", "%", flags="large val"),
    Measure("loss-steps", "Loss", "loss", flags="large val"),
    Measure("accuracy-steps", "Top-1 accuracy", "top1", "%", flags="large val"),
    Measure("rate-steps", "Learning rate", "lr", mean="last"),
    Measure("gradient-steps", "Gradient norm", "grad_norm", mean="last", flags="log"),
    Measure("speed-steps", "Images/s", "images_per_second", "", "seconds"),
    Measure("peak-steps", "MFU", "peak_share", "%", "seconds"),
    Measure("data-steps", "Waiting for data", "data_seconds", STEP, "seconds"),
    Measure("waiting-steps", "Waiting for communication", "exposed_comm_seconds", STEP, "seconds"),
    Measure("loss-time", "Loss over time", "loss", flags="val"),
    Measure("accuracy-time", "Top-1 accuracy over time", "top1", "%", flags="val"),
]


def time_unit(seconds):
    if seconds < 300:
        return 1, "seconds"
    return (60, "minutes") if seconds < 4 * 3600 else (3600, "hours")


def measure_values(run, measure):
    values = run.metrics.numbers(measure.column)
    if measure.of_step:
        values = [ratio(v, s) for v, s in zip(values, run.metrics.numbers("step_seconds"))]
        values = [NAN if v > 1 else v for v in values]  # an error of measurement
    return values


def points(run, measure, split, unit):
    """The curve of a split. Rows of training with few images share a point with the next ones."""
    values = measure_values(run, measure)
    at = run.metrics.numbers("elapsed_seconds" if measure.by_time else "step")
    filled = run.metrics.texts(measure.column)
    extents = run.extents() if split == "train" else {}
    least = 0.75 * max((extent[2] for extent in extents.values() if extent[2] > 0), default=0)
    groups, images, closed = [], 0.0, True
    for row in run.rows[split]:
        if filled[row] == "" or (math.isnan(values[row]) and measure.kind == "share"):
            continue
        _, seconds, count = extents.get(row, (NAN, NAN, NAN))
        weight = seconds if measure.mean == "seconds" else count
        if closed:
            groups.append((0.0, 0.0, 0.0))
            images = 0.0
        _, total, weights = groups[-1]
        if measure.mean == "last" or not weight > 0:
            total, weights, weight = 0.0, 0.0, 1.0
        groups[-1] = at[row] / unit, total + weight * values[row], weights + weight
        images += known(count, 0.0)
        closed = split != "train" or images >= least
    if not closed and len(groups) > 1:
        x, total, weights = groups.pop()
        before = groups[-1] if measure.mean != "last" else (0.0, 0.0, 0.0)
        groups[-1] = x, total + before[1], weights + before[2]
    scale = 100 if measure.kind == "share" else 1
    return [x for x, _, _ in groups], [total / weights * scale for _, total, weights in groups]


# Parts of a run's description; a part without a value is left out.
KIND = (
    "{model}|initial weights {init}|{data}| ({data_used})|{epochs} epochs|{optimizer}"
    "|, learning rate {learning_rate}|{strategy}|{ranks} ranks| on {nodes} nodes|{precision}"
)
CHOSEN_ON_TEST = (
    "The best checkpoint was chosen on the test set (data.val=test), so its accuracy is an "
    "overestimate. data.val=0.1 holds out training images."
)
COMPARED = (
    "A dot marks the best value of a row. Speed-up and scaling efficiency are relative to run A."
)


class Page:
    """The page about the runs."""

    def __init__(self, runs):
        self.runs, self.one, self.parts = runs, len(runs) == 1, []

    def add(self, *parts):
        self.parts.extend(parts)

    def key(self, run):
        return '<span class="key s%d"><b>%s</b></span>' % (run % len(COLOURS), letters(run))

    def note(self, words, key=""):
        self.add('<p class="note">%s%s</p>\n' % (key, esc(words)))

    def run_title(self, at):
        return "" if self.one else "<h3>%s%s</h3>\n" % (self.key(at), esc(self.runs[at].name))

    def each(self, show_run):
        """Add what show_run(run, its number) returns under the titles of the runs."""
        for at, run in enumerate(self.runs):
            shown = show_run(run, at)
            self.add(self.run_title(at) + shown if shown else "")

    # -- the head

    def title(self):
        names = [esc(run.name) for run in self.runs]
        last = names.pop() if len(names) <= 3 else "%d more" % (len(names) - 3)
        return "Run " + last if self.one else "%s and %s" % (", ".join(names[:3]), last)

    def kind(self, run):
        """Model, data, layout and state of a run in one line."""
        cells = {key: FACT[key].cell(run, run) for key in FACT}
        dot = " &middot; "
        cells["data"] = cells["data"].rstrip("/").rpartition("/")[2]
        line = ""
        for words in KIND.split("|"):
            key = re.search("{(.*)}", words).group(1)
            if cells[key] not in ("", "all"):
                words = words[:-1] if cells[key] == "1" and words.endswith("s") else words
                words = words if words[0] in " ," else dot + words
                line += words.format(**{key: esc(cells[key])})
        line = re.sub("^( &middot; |, | )", "", line)
        status = run.status()
        colour = {"finished": "ok", "failed": "no"}.get(status, "open")
        return "%s%s<span class='state %s'>%s</span>" % (line, dot if line else "", colour, status)

    def head(self):
        self.add("<header>\n<h1>%s</h1>\n" % self.title())
        if self.one:
            run = self.runs[0]
            self.add('<p class="kind">%s</p>\n' % self.kind(run))
            if run.status() != "finished" and run.reason():
                self.add('<p class="reason">%s</p>\n' % esc(run.reason()))
        self.figures()
        for at, run in enumerate(self.runs):
            if run.result.get("chosen_on_test") is True:
                self.note(CHOSEN_ON_TEST, "" if self.one else self.key(at))
        self.add("</header>\n")

    def figures(self):
        """The key figures: of one run side by side, of several as a table."""
        main = "miou map rmse persistence r2 top1".split()
        keys = ["%s_%s" % (split, name) for name in main for split, _ in SPLITS]
        keys += ["val_loss", "train_loss", "without_setup_seconds", "total_seconds"]
        keys += ["images_per_second", "peak_share", "peak_bytes"]
        shown = [FACT[key] for key in keys if fact_known(FACT[key], self.runs)]
        for key, instead in ("train_loss", "val_loss"), ("total_seconds", "without_setup_seconds"):
            if FACT[instead] in shown and FACT[key] in shown:
                shown.remove(FACT[key])
        names = [label(fact_name(fact, self.runs)) for fact in shown]
        if self.one:
            run = self.runs[0]
            tile = "<div><dt>%s</dt><dd>%s<small>%s</small></dd></div>\n"
            cells = [(esc(fact.cell(run, run)), esc(fact.weights(run))) for fact in shown]
            tiles = [tile % (name, *cell) for name, cell in zip(names, cells)]
            self.add('<dl class="tiles">\n', *tiles, "</dl>\n")
            return
        head = [html_cell("run", "", "col")] + [html_cell(name, "n", "col") for name in names]
        rows = []
        for at, run in enumerate(self.runs):
            name = "%s<b>%s</b> <small>%s</small>" % (self.key(at), esc(run.name), self.kind(run))
            rows.append([html_cell(name, "", "row")] + [self.cell(fact, run) for fact in shown])
        self.add(html_table("figures", "Key figures", head, rows))

    def cell(self, fact, run):
        best = " best" if fact_best(fact, self.runs, run) else ""
        weights = fact.weights(run)
        small = "<small>%s</small>" % esc(weights) if weights else ""
        shown = esc(fact.cell(run, self.runs[0])) + small
        return html_cell(shown, ("t" if fact.kind == "text" else "n") + best)

    # -- charts

    def figure(self, name, chart, large=False, brief=False):
        coarse = 1 + len(self.runs) // 8  # pages of many runs stay small
        width, height, enlarged, places = (600, 330, 1.6, 100) if large else (400, 220, 1.2, 60)
        unit = " <small>%s</small>" % esc(chart.y_label) if chart.y_label else ""
        entries = []
        for series in chart.series:
            if series.name and not (brief and series.dashed):
                words = series.name.partition(" ")[0] if brief else series.name
                shape = "dash" if series.dashed else "line"
                entries.append(("%s s%d" % (shape, series.colour), words))
        self.add("<figure><figcaption>%s%s</figcaption>\n" % (esc(chart.title), unit))
        self.legend(entries + ([("dash any", "validation")] if brief else []))
        self.add(Drawing(chart, width, height, name, enlarged, places // coarse, coarse).svg())
        self.add("</figure>\n")

    def legend(self, entries):
        lines = ['<span><i class="%s"></i>%s</span>\n' % (c, esc(words)) for c, words in entries]
        self.add('<p class="legend">%s</p>' % "".join(lines) if lines else "")

    def measures(self, chosen):
        """The charts of some measures."""
        longest = max(known(run.last("elapsed_seconds"), 0) for run in self.runs)
        for measure in chosen:
            unit, unit_name = time_unit(longest) if measure.by_time else (1, "step")
            series, splits = [], [("train", "training"), ("val", "validation")]
            for at, run in enumerate(self.runs):
                for split, name in splits if measure.evaluated else [("train", "")]:
                    xs, ys = points(run, measure, split, unit)
                    if any(y == y and (y or measure.evaluated) for y in ys):
                        colour = (split == "val") if self.one else at
                        name = name if self.one else ("%s %s" % (letters(at), name)).strip()
                        series.append(Series(xs, ys, name, colour, split == "val"))
            if not series:
                continue
            for at, one in enumerate(series):
                one.covered = sum(coincide(one, other) for other in series[at + 1 :])
            scale = dict(y_log="log" in measure.flags, y_zero=not measure.flags)
            title, whole = self.measure_title(measure), not measure.by_time
            chart = Chart(title, series, unit_name, measure.unit, whole, **scale)
            chart = self.marked(chart) if measure.large else chart
            brief = measure.evaluated and len(self.runs) > 3
            self.figure(measure.name, chart, measure.large, brief)

    def measure_title(self, measure):
        segmentation = all(run.task() == "segmentation" for run in self.runs)
        return measure.title.replace("Top-1", "Pixel") if segmentation else measure.title

    def marked(self, chart):
        """Mark the step of the best weights if they are used."""
        kind, step = self.runs[0].used()
        if self.one and kind == "best" and not math.isnan(step):
            return chart._replace(mark=step, mark_label="best weights")
        return chart

    def output_charts(self):
        """RMSE of up to 4 outputs, and its ratio to persistence or R2."""
        forecast = any(run.task() == "forecast" for run in self.runs)
        charts, ratios = {}, []
        for at, run in enumerate(self.runs):
            rows_of = {}
            for row in run.outputs:
                if row.get("split") == "val":
                    rows_of.setdefault(row["output"], []).append(row)
            words = ("validation", "persistence", "")
            words = words if self.one else (letters(at), letters(at) + " persistence", letters(at))
            for name, rows in rows_of.items():
                steps, rmse, simple, r2 = (
                    [num(row.get(key)) for row in rows]
                    for key in ("step", "rmse", "persistence_rmse", "r2")
                )
                series = charts.setdefault(name, [])
                series.append(Series(steps, rmse, words[0], at))
                if any(v == v for v in simple):
                    series.append(Series(steps, simple, words[1], 1 if self.one else at, True))
                ys = list(map(persistence, rows)) if forecast else r2
                ratios.append(Series(steps, ys, (words[2] + " " + name).lstrip(), len(ratios)))
        for at, name in enumerate(list(charts)[:4]):
            self.figure("rmse-%d" % at, self.marked(Chart("RMSE of " + name, charts[name])), True)
        if ratios:
            chart = Chart("RMSE / persistence" if forecast else "R2", ratios[:8])
            self.figure("output-ratio", self.marked(chart), True)

    def curves(self):
        if not any(len(run.metrics) for run in self.runs):
            self.add("<p>No curves: metrics.csv is missing or has no rows.</p>\n")
        self.add('<div class="large">\n')
        self.output_charts()
        self.measures([measure for measure in MEASURES if measure.large])
        self.add("</div>\n")

    def details(self):
        self.add('<div class="charts">\n')
        small = [measure for measure in MEASURES if not measure.large]
        self.measures([measure for measure in small if not (self.one and measure.by_time)])
        self.add("</div>\n")
        self.each(lambda run, at: self.values(run).html())

    def values(self, run):
        """The values of the curves at up to 100 evaluations; without evaluations at 20 rows."""
        evaluated = bool(run.rows["val"])
        rows = run.rows["val" if evaluated else "train"]
        most = 100 // (1 + len(self.runs) // 8) if evaluated else 20
        each = max(-(-len(rows) // most), 1)
        rows = rows[(len(rows) - 1) % each :: each]
        train = [None] + run.rows["train"]
        steps = run.metrics.numbers("step")
        columns = [("step", "count", steps.__getitem__)]
        for measure in MEASURES:
            if measure.by_time:
                continue
            values = measure_values(run, measure)
            before = lambda row: train[bisect.bisect(run.rows["train"], row)]
            at_train = {row: values[before(row)] for row in rows if before(row) is not None}
            title = self.measure_title(measure)
            if measure.evaluated and evaluated:
                columns.append((title + ", validation", measure.kind, values.__getitem__))
                title += ", training"
            columns.append((title, measure.kind, at_train.get))
        return Sheet("Values", "ranks", rows, columns)

    # -- confusion matrices, misclassified images, planes

    def matrix(self, at):
        """The HTML of a confusion matrix, and its number of classes; empty without one."""
        run, found = self.runs[at], self.runs[at].detailed()
        names = [text(get(c, "name")) or "?" for c in array(found.get("classes"))]
        rows = [array(row) for row in array(found.get("confusion_matrix"))]
        rows = [[known(num(value), 0.0) for value in row] for row in rows]
        count = len(names)
        if not count or len(rows) != count or any(len(row) != count for row in rows):
            return "", 0
        note = "Of the %s split: true classes in rows, predictions in columns. %s"
        note %= SPLIT_WORDS[found["split"]], self.owner(run, found)
        shown = '<p class="note">%s</p>\n' % esc(note)
        if count > 32:
            picture = matrix_picture(names, rows, letters(at)) if count <= 200 else ""
            return shown + picture + confusions(names, rows).html(), count
        head = [html_cell("<span>%s</span>" % esc(name), "", "col") for name in names]
        table = []
        for name, row in zip(names, rows):
            shades = [' style="--v:%.2f"' % known(ratio(value, sum(row)), 0.0) for value in row]
            cells = [html_cell("%.0f" % v, more=shade) for v, shade in zip(row, shades)]
            table.append([html_cell(esc(name), "", "row")] + cells)
        body = ' id="confusion-%s"' % letters(at)
        name = "Confusion matrix"
        return shown + html_table("confusion", name, ["<td></td>"] + head, table, body=body), count

    def owner(self, run, found):
        """Say which weights a matrix or errors belong to, and where those of the used ones are."""
        kind, used = run.used()
        line = "Of the %s." % run.weights_text(found["step"])
        if found["step"] != used:
            line += " The run did not keep those of the %s, which predict uses: vittrain eval "
            line += "prints them."
            line %= run.weights_text(used)
        return line

    def errors(self):
        self.add('<div class="pair">\n')
        for at, run in enumerate(self.runs if len(self.runs) <= 2 else ()):
            shown, count = self.matrix(at)
            if 0 < count <= 20:
                longest = max(len(text(c.get("name"))) for c in run.detailed()["classes"])
                wide = ' class="wide"' if min(longest, 25) * 7 + count * 40 > 580 else ""
                title = "<h2>Confusion matrix</h2>\n" + self.run_title(at)
                self.add("<div%s>%s%s</div>\n" % (wide, title, shown))
        if self.one:
            run = self.runs[0]
            note = ": class, prediction and its probability."
            self.samples(run.misclassified, "Most confident errors", note, "images", self.image)
            note = ", from left to right: input (if any), target, prediction, error. Grey: missing."
            self.samples(run.planes, "Samples", note, "planes", self.plane, ' class="wide"')
        self.add("</div>\n")

    def samples(self, found, title, note, style, show_sample, wide=""):
        """Pictures of misclassified.json or planes.json."""
        samples = [s for s in array(found.get("samples")) if is_png(get(s, "png"))]
        if not samples:
            return
        split = found.get("split")
        evaluations = self.runs[0].evaluations("test" if split == "test" else "val")
        owner = self.owner(self.runs[0], evaluations[-1]) if evaluations else ""
        note = "Of the %s split%s %s" % (SPLIT_WORDS.get(split, "validation"), note, owner)
        self.add('<div%s><h2>%s</h2>\n<p class="note">%s</p>\n' % (wide, title, esc(note)))
        picture = '<div><img alt="%s" title="%s" src="data:image/png;base64,%s"><p>%s</p></div>\n'
        self.add('<div class="%s">\n' % style)
        for sample in samples:
            about, name, shown = show_sample(sample)
            self.add(picture % (about, esc(name), sample["png"], shown))
        self.add("</div></div>\n")

    def image(self, sample):
        classes = array(self.runs[0].detailed().get("classes"))
        keys = (sample.get("class"), sample.get("predicted"))
        names = [esc(text(get(classes, "%s.name" % key)) or "?") for key in keys]
        names.append(show("share", num(sample.get("probability"))))
        shown = "<b>%s</b><span>as %s</span><span>%s</span>" % tuple(names)
        return "", text(sample.get("name")), shown

    def plane(self, sample):
        error, low, high = (num(sample.get(key)) for key in ("error", "low", "high"))
        first = "input, " if sample.get("has_input") is True else ""
        name = "sample %.0f, %s" % (num(sample.get("record")), text(sample.get("output")) or "?")
        bars = [(low, "values", high), (-error, "errors", error)]
        shown = "".join('<span>%.4g <i class="%s"></i> %.4g</span>' % bar for bar in bars)
        about = first + "target, prediction and error"
        return about, name, "<b>%s</b>%s" % (esc(name), shown)

    # -- sections, initially closed

    def summary(self):
        if not self.one:
            self.note(COMPARED)
        wide = {1: "", 2: " two"}.get(len(self.runs), " wide")
        self.add('<div class="groups%s">\n' % wide)
        head = ["<td></td>"]
        for at, run in enumerate(self.runs):
            head.append(html_cell(self.key(at), "n", "col", ' title="%s"' % esc(run.name)))
        for group in FACT_TABLE:
            rows = []
            for fact in FACTS:
                if fact.group == group and fact_known(fact, self.runs):
                    name = html_cell(label(fact_name(fact, self.runs)), "", "row")
                    rows.append([name] + [self.cell(fact, run) for run in self.runs])
            if rows:
                table = html_table("facts", group, [] if self.one else head, rows, caption=group)
                self.add("<div>%s</div>\n" % table)
        self.add("</div>\n")

        for at, run in enumerate(self.runs):
            speed = difference(run, self.runs[0])
            found = speed or difference(run, self.runs[0], SCALING_CONDITIONS)
            if found:
                what = "speed" if speed else "scaling efficiency"
                line = "%s not compared with %s: %s %s, not %s."
                line %= (what, self.runs[0].name) + found
                self.note(line, self.key(at))

    def classes(self):
        self.each(self.classes_of)

    def classes_of(self, run, at):
        table = sheet_classes(run).html()
        parts = [sheet_splits(run).html(), sheet_outputs(run).html()]
        if not table and not run.outputs:
            parts.append("<p>Classes are unknown: result.json does not contain them.</p>\n")
        shown, count = self.matrix(at)
        matrix = "<div>%s</div>\n" % shown if count > 20 or len(self.runs) > 2 else ""
        pair = '<div class="pair">\n%s<div id="classes-%s">%s</div></div>\n'
        return "".join(parts) + pair % (matrix, letters(at), table)

    def units(self):
        unknown = "<p>Time and memory by unit are unknown: the run has not ended.</p>\n"
        self.each(lambda run, at: sheet_units(run).html() or unknown)

    def ranks(self):
        unknown = "<p>Unknown: the run has not ended.</p>\n"
        self.each(lambda run, at: sheet_ranks(run).html() or unknown)

    def hardware(self):
        for at, run in enumerate(self.runs):
            self.add(self.run_title(at))
            if not len(run.monitor):
                self.add("<p>Unknown: monitor.csv is missing or has no rows.</p>\n")
                continue
            times = [stamp_seconds(stamp) for stamp in run.monitor.texts("time")]
            ranks = [int(known(v, 0.0)) for v in run.monitor.numbers("rank")]
            good = [t for t in times if t == t] or [0.0]
            unit, unit_name = time_unit(max(good) - min(good))
            times = [(t - min(good)) / unit for t in times]
            self.add('<div class="charts">\n')
            for column, title, y_label, scale, y_zero, y_range in SENSOR_CHARTS:
                values = [scale * value for value in run.monitor.numbers(column)]
                rows = [row for row in zip(times, values, ranks) if not math.isnan(row[0] + row[1])]
                if rows:
                    series = rank_series(rows, len(set(ranks)))
                    chart = Chart(title, series, unit_name, y_label, x_whole=False)
                    chart = chart._replace(y_zero=y_zero, y_range=y_range)
                    self.figure("sensor-%s-%s" % (column, letters(at)), chart)
            self.add("</div>\n")

    def decks(self):
        none = "" if self.one else "<p>None besides the names.</p>\n"
        self.add(sheet_options(self.runs).html() or none)
        self.each(lambda run, at: sheet_attempts(run).html())

    def troubles(self):
        self.each(self.troubles_of)
        self.add("" if self.trouble_count() else "<p>None.</p>\n")

    def troubles_of(self, run, at):
        parts = []
        for title, lines in ("From the log", run.trouble), (
            "Missing or damaged files",
            run.missing,
        ):
            more = len(lines) - 200
            items = ["<li><code>%s</code></li>\n" % esc(line) for line in lines[:200]]
            items += ["<li>and %d more</li>\n" % more] if more > 0 else []
            parts += ["<p>%s:</p>\n<ul>\n%s</ul>\n" % (title, "".join(items))] if lines else []
        return "".join(parts)

    def trouble_count(self):
        return sum(len(run.trouble) + len(run.missing) for run in self.runs)

    def guarded(self, write):
        """Write a part of the page. Values that cannot be shown are damage of the files."""
        before = len(self.parts)
        try:
            write()
        except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as why:
            del self.parts[before:]
            self.add("<p>Not shown: the values are damaged.</p>\n")
            line = "part %s of the page: damaged values (%s)" % (write.__name__, why)
            self.runs[0].missing.append(line)

    def write(self):
        self.add(
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
            '<meta name="color-scheme" content="light dark">\n<title>%s</title>\n<style>\n%s'
            % (self.title(), STYLE)
        )
        self.add(*[".s%d{color:#%s}\n" % pair for pair in enumerate(COLOURS)])
        self.add("</style>\n</head>\n<body>\n")
        self.guarded(self.head)
        self.add("<main>\n")
        self.guarded(self.curves)
        self.guarded(self.errors)
        for name, title, title_of_several, write in [
            ("summary", "All figures", "All figures side by side", self.summary),
            ("details", "Learning rate, speed and waiting times", "", self.details),
            ("classes", "Quality by split and class", "", self.classes),
            ("units", "Step time and memory by unit", "", self.units),
            ("ranks", "Ranks", "", self.ranks),
            ("hardware", "Hardware over time", "", self.hardware),
            ("decks", "Options and attempts", "Differing options and attempts", self.decks),
            ("trouble", "Warnings, errors and missing files", "", self.troubles),
        ]:
            title = title if self.one else title_of_several or title
            count = "<small>%d</small>" % self.trouble_count() if name == "trouble" else ""
            head = '<details id="%s"><summary><h2>%s</h2>%s</summary>\n<div>\n'
            self.add(head % (name, title, count))
            self.guarded(write)
            self.add("</div></details>\n")
        date = time.strftime("%Y-%m-%d %H:%M:%S %Z")
        self.add(
            "</main>\n<footer>Written %s by report.py from the run folder%s. docs/outputs.md "
            "explains the numbers.</footer>\n</body>\n</html>\n" % (date, "" if self.one else "s")
        )
        return "".join(self.parts)


SPLIT_WORDS = {"test": "test", "val": "validation"}
# Column of monitor.csv, title, unit, scale, whether the axis begins at 0, its range (None: by the data)
SENSOR_CHARTS = [
    ("gpu_busy", "GPU utilization", "%", 100, True, (0.0, 100.0)),
    ("gpu_power", "GPU power", "W", 1, True, None),
    ("gpu_temperature", "GPU temperature", "\u00b0C", 1, False, None),
    ("gpu_memory_used_bytes", "GPU memory in use", "GiB", 1 / 2**30, True, None),
    ("gpu_sm_clock", "GPU clock", "MHz", 1, False, None),
    ("cores_busy", "CPU utilization of the node", "%", 100, True, (0.0, 100.0)),
    ("process_cores", "CPU cores used by the rank", "cores", 1, True, None),
    ("cpu_power", "CPU power", "W", 1, True, None),
    ("cpu_temperature", "CPU temperature", "\u00b0C", 1, False, None),
    ("resident_bytes", "Resident memory of the rank", "MiB", 1 / 2**20, True, None),
]


def coincide(one, other):
    """True if two curves look the same up to the last point of the shorter one, at 200 points."""
    each = min(len(one.y), len(other.y)) // 200 or 1
    pairs = zip(one.y[::each], other.y[::each])
    pairs = [pair for pair in pairs if math.isfinite(pair[0]) and math.isfinite(pair[1])]
    if not pairs:
        return False
    spread = max(map(max, pairs)) - min(map(min, pairs))
    return sum(abs(a - b) for a, b in pairs) <= 0.02 * len(pairs) * spread


def is_png(value):
    """True for base64, which can be part of an attribute."""
    return isinstance(value, str) and re.match(r"[A-Za-z0-9+/]+=*$", value) is not None


def matrix_picture(names, rows, letter):
    """One path per shade, the share of the row's class; the rows have titles."""
    count = len(names)
    svg = (
        '<svg class="matrix" id="confusion-%s" role="img" aria-label="Confusion matrix of %d '
        'classes" viewBox="0 0 %d %d" fill="none" stroke="currentColor" '
        'shape-rendering="crispEdges">\n'
    )
    parts, titles = [svg % (letter, count, count, count)], []
    shades = {shade: ["M0 0"] for shade in range(1, 9)}
    for at, row in enumerate(rows):
        for column, value in enumerate(row):
            if value > 0:
                shades[min(math.ceil(8 * value / sum(row)), 8)].append("M%d %d.5h1" % (column, at))
        recall = show("share", ratio(row[at], sum(row)))
        worst = max((c for c in range(count) if c != at), key=row.__getitem__)
        line = "%s: recall %s" % (names[at], recall)
        line += "\nmost often wrong as %s: %.0f" % (names[worst], row[worst]) if row[worst] else ""
        rect = '<rect class="at" y="%d" width="%d" height="1"><title>%s</title></rect>\n'
        titles.append(rect % (at, count, "\n".join(map(esc, line.split("\n")))))
    for shade, path in shades.items():
        parts.append('<path stroke-opacity="%g" d="%s"/>\n' % (shade / 8, "".join(path)))
    return "".join(parts + titles) + "</svg>\n"


def confusions(names, rows):
    """The 20 most frequent confusions."""
    pairs = [(-v, at, c) for at, row in enumerate(rows) for c, v in enumerate(row) if at != c]
    pairs = sorted(pair for pair in pairs if pair[0] < 0)[:20]
    columns = [
        ("class", "text", lambda pair: names[pair[1]]),
        ("predicted as", "text", lambda pair: names[pair[2]]),
        ("images", "count", lambda pair: -pair[0]),
        ("of the class", "bar", lambda pair: ratio(-pair[0], sum(rows[pair[1]]))),
    ]
    note = "The %d most frequent confusions of %d classes." % (len(pairs), len(names))
    return Sheet("Most frequent confusions", "pairs", pairs, columns, note)


def rank_series(rows, count):
    """Curves of (time, value, rank): one per rank; of more than 8 ranks mean, lowest, highest."""
    if count > 8:
        end, slots = max(row[0] for row in rows) or 1, {}
        for time_at, value, _ in rows:
            slots.setdefault(min(int(time_at / end * 200), 199), []).append(value)
        xs = [(slot + 0.5) / 200 * end for slot in sorted(slots)]
        curve = lambda find: [find(slots[slot]) for slot in sorted(slots)]
        limits = [("lowest", min), ("highest", max)]
        series = [Series(xs, curve(mean), "mean of the ranks")]
        return series + [Series(xs, curve(find), name, 0, True, True) for name, find in limits]
    curves = {}
    for time_at, value, rank in rows:
        xs, ys = curves.setdefault(rank, ([], []))
        # Interrupt the line between two attempts of a run.
        if len(xs) > 1 and time_at - xs[-1] > 10 * (xs[-1] - xs[-2]) and ys[-1] == ys[-1]:
            xs.append(time_at)
            ys.append(NAN)
        xs.append(time_at)
        ys.append(value)
    return [Series(*curves[rank], "rank %d" % rank, rank, rank % 2 == 1) for rank in sorted(curves)]


# ---- the log book: pages whose text between two marks is generated

BEGIN, END = "<!-- vittrain: begin", "<!-- vittrain: end"


def logbook_page(run):
    """The generated part of a page."""
    columns = [
        ("", "text", lambda fact: fact_name(fact, [run])),
        (run.name, "as is", lambda fact: fact.cell(run, run)),
        ("", "text", lambda fact: fact.weights(run)),
    ]
    facts = [fact for fact in FACTS if fact_known(fact, [run])]
    parts = ["\nRun folder: %s\n" % markdown(run.path)]
    parts.append(Sheet("All figures", "facts", facts, columns).markdown())
    sheets = [sheet_splits, sheet_classes, sheet_outputs, sheet_units, sheet_ranks]
    sheets = [sheet(run) for sheet in sheets] + [sheet_options([run]), sheet_attempts(run)]
    parts += [sheet.markdown() for sheet in sheets]
    lines, links = [], {}
    for link in ("last", "best"):
        path = run.file("checkpoints/%s.h5" % link)
        if os.path.islink(path):
            links.setdefault(os.readlink(path), []).append(link)
    for name in run.names("checkpoints", r"step-\d+\.h5$"):
        size = os.path.getsize(run.file("checkpoints/" + name)) / 1e6
        names = ["checkpoints/" + name, "%.1f MB" % size] + links.get(name, [])
        lines.append(", ".join(names))
    if run.option("output.upload"):
        lines.append("uploaded to " + run.option("output.upload"))
    for title, lines, none in [
        ("Checkpoints", lines, "None."),
        ("Warnings and errors", run.trouble, "None in the log."),
        ("Missing or damaged files", run.missing, "None."),
    ]:
        body = "".join("* %s\n" % markdown(line) for line in lines) or none + "\n"
        parts.append("\n## %s\n\n%s" % (title, body))
    return "".join(parts) + "\n"


def logbook_add(run, logbook):
    """Write the run's page. A run is known by its name and start, also if its folder is moved."""
    started = text(get(run.attempts, "0.started")) or "unknown"
    name = re.sub("[-<>]", "_", CONTROL.sub("_", run.name))
    mark = "<!-- vittrain: run %s of %s -->" % (name, started)
    base = run.name.lstrip(".") or "run"
    base = "run" if base.lower() == "readme" else base[:200]
    os.makedirs(logbook, exist_ok=True)
    for number in range(1, 10000):
        path = os.path.join(logbook, base + ("-%d" % number if number > 1 else "") + ".md")
        old = read_text(path) if os.path.exists(path) else ""
        if not old or mark in old:
            break
    generated = "%s, generated -->\n%s\n%s%s -->\n" % (BEGIN, mark, logbook_page(run), END)
    start, end = old.rfind(BEGIN, 0, max(old.rfind(END), 0)), old.rfind(END)
    if not old:
        title = "# %s\n\nNotes (text outside the marks is kept):\n\n" % markdown(run.name)
        write_file(path, title + generated)
    elif start < 0:
        write_file(path, old + ("\n" if old.endswith("\n") else "\n\n") + generated)
    else:
        after = old[end:].partition("\n")[2]
        write_file(path, old[:start] + generated + after)
    return path


# ---- the command


def find_lr_draw(path, output):
    """Draw the table of `vittrain find lr`."""
    try:
        table = list(csv.DictReader(io.StringIO(read_text(path))))
        rates, losses, smooth = ([float(r[k]) for r in table] for k in ("rate", "loss", "smoothed"))
    except (OSError, csv.Error, KeyError, TypeError, ValueError) as why:
        line = "cannot read %s: %s; specify a run folder, or the table of vittrain find lr"
        raise Failure(5, line % (path, getattr(why, "strerror", None) or "not such a table"))
    lowest = min(range(len(smooth)), key=smooth.__getitem__, default=0)
    shown = losses[: lowest + 1] + smooth[: lowest + 1]
    margin = (max(shown) - min(shown)) / 8 or 1.0 if shown else 1.0
    y_range = (min(shown) - margin, max(shown) + margin) if shown else None
    series = [Series(rates, losses, "loss", 1, thin=True), Series(rates, smooth, "smoothed", 0)]
    chart = Chart(
        "Learning-rate range test", series, "learning rate", "loss", False, True, y_range=y_range
    )
    base = output[:-4] if output.endswith(".svg") else output or path[:-4]
    charts_write([chart], base, 800, 500)
    print("report: %s.svg" % base)


def export_charts(path, charts):
    """Draw charts (title, label of x, label of y, curves) into one picture."""
    shape = lambda curves: [Series(x, y, name, at) for at, (name, x, y) in enumerate(curves)]
    drawn = [Chart(title, shape(curves), x, y) for title, x, y, curves in charts]
    charts_write(drawn, path, 1200, 500)


def report(words):
    options = {"report.output": "", "report.csv": "", "report.format": "html"}
    options["output.logbook"] = None
    folders = []
    for word in words:
        key, equals, value = word.partition("=")
        if equals and key in options:
            options[key] = value
        elif equals and re.match(r"(report|output)\.\w+$", key):
            raise Failure(2, "no option %s; there are %s" % (key, ", ".join(options)))
        else:
            folders.append(word)
    if not folders:
        raise Failure(2, "no run given; call `vittrain report RUN...` with run folders")
    form, output = options["report.format"], options["report.output"]
    if form != "html" and form not in export.FORMATS:
        names = ", ".join(["html"] + list(export.FORMATS))
        raise Failure(2, "report.format=%s is not one of %s" % (form, names))
    if len(folders) == 1 and folders[0].endswith(".csv"):
        return find_lr_draw(folders[0], output)
    runs = [Run(folder) for folder in folders]
    path = output or (runs[0].file("report.html") if len(runs) == 1 else "report.html")
    write_file(path, Page(runs).write())
    print("report: " + path)
    if options["report.csv"]:
        write_file(options["report.csv"], facts_csv(runs))
    for run in runs if form != "html" else ():
        export.write(run, form, Failure, write_file, export_charts)
        print("report: files of report.format=%s are in %s" % (form, run.path))
    for run in runs:
        logbook = options["output.logbook"]
        if logbook is None:
            logbook = run.option("output.logbook")
            logbook = logbook if os.path.isdir(logbook) else ""
        if logbook:
            try:
                print("log book: " + logbook_add(run, logbook))
            except (OSError, Failure) as why:
                print("report: warning: no page in the log book: %s" % why, file=sys.stderr)


def main():
    words = sys.argv[1:]
    if words and words[0] in ("-h", "--help"):
        print(__doc__.strip())
        return 0
    try:
        report(words)
    except Failure as why:
        print("report: error: %s" % why, file=sys.stderr)
        return why.code
    return 0


if __name__ == "__main__":
    sys.exit(main())
