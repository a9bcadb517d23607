# SPDX-License-Identifier: BSD-3-Clause
"""The files of a run folder of format 1 or 2 (docs/outputs.md)."""

import csv
import fcntl
import functools
import io
import json
import math
import os
import re
import shutil
import subprocess

from report_values import NAN, array, get, known, mean, num, ratio, records, show, text

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
        self.rows = list(rows)
        self.names = names or list(self.rows[0] if self.rows else ())

    def __len__(self):
        return len(self.rows)

    @functools.lru_cache(maxsize=None)
    def texts(self, name):
        cells = [row.get(name) for row in self.rows]
        return ["" if cell is None else str(cell) for cell in cells]

    @functools.lru_cache(maxsize=None)
    def numbers(self, name):
        return [num(cell) for cell in self.texts(name)]


# Lines of the log that the page shows; equal lines are counted.
TROUBLE = re.compile(
    r"warning: |vittrain: error: |stopped at step |stopped before |resuming from |mesh\.elastic: "
    r"|.*(gradients overflowed in fp16|before its results were written"
    r"|is left to the next attempt)"
)
STAMP = re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\d\d:\d\d | \d\d:\d\d:\d\d,\d{3} - )")
TROUBLE_MOST = 200


@functools.lru_cache(maxsize=None)
def printed(option):
    """What `vittrain OPTION` prints; empty without the program."""
    here = os.path.dirname(os.path.abspath(__file__))
    paths = [os.path.join(here, up, "vittrain") for up in ("..", "../../../bin")]
    paths = [os.environ.get("VITTRAIN", "")] + paths + [shutil.which("vittrain") or ""]
    program = next((path for path in paths if os.path.isfile(path)), None)
    try:
        output = subprocess.run([program, option], stdout=subprocess.PIPE, timeout=60).stdout
    except (OSError, TypeError, subprocess.SubprocessError):
        return ""
    return output.decode("utf-8", "replace")


@functools.lru_cache(maxsize=None)
def defaults():
    """The defaults of all options."""
    found = re.findall(r"^  (\w+\.\w+) = (.*)$", printed("--help"), re.M)
    return {key: "" if value == "(empty)" else value for key, value in found}


UNITS = {"s": 1, "m": 60, "h": 3600, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "": 1}


def same_value(one, other):
    """True for equal texts, numbers, durations (600 and 10m) and sizes."""
    units = [next(unit for unit in UNITS if value.endswith(unit)) for value in (one, other)]
    amounts = [num(v[: len(v) - len(u)]) * UNITS[u] for v, u in zip((one, other), units)]
    return one == other or amounts[0] == amounts[1]


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
        ranks = num(get(self.attempts[-1:], "0.ranks"))
        self.result["world_size"] = known(self.number("world_size"), ranks, self.number("ranks"))
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
        train = [self.metrics.rows[at] for at in self.rows["train"]]
        if not all(num(row.get("peak_share")) <= 1 for row in train):
            # A value above 1, or a missing one, means that the stored peak was wrong.
            for row in train:
                row["peak_share"] = None
        self.read_epochs()
        self.read_monitors()

    def convert(self, epochs, outputs):
        """Put the rows of epochs.csv and outputs.csv, of format 1, in front of metrics.csv."""
        new = self.metrics.rows
        steps = (num(row.get("step")) for row in new if row.get("split") == "epoch")
        first = min(steps, default=1e30)
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
        presets = defaults() or dict.fromkeys(self.deck, "")
        rows = [(key, value, presets[key]) for key, value in self.deck.items() if key in presets]
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

    def weights_names(self, step):
        kind, used = self.used()
        best, last = kind == "best" and step == used, step == self.last_step()
        return [name for name, is_so in (("best", best), ("last", last)) if is_so]

    def weights_text(self, step):
        names = self.weights_names(step)
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
                    # The weights can be both the best and the last.
                    kinds = {(split, name) for name in self.weights_names(evaluation["step"])}
                    return dict(evaluation, split=split, kinds=kinds)
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
        """The model's name, and its dimensions that the deck sets."""
        name = text(self.result.get("model")) or self.option("model.name")
        keys = ("dim", "depth", "heads", "patch", "width")
        values = [(key, num(self.option("model." + key))) for key in keys]
        return ", ".join([name] + ["%s %g" % pair for pair in values if pair[1] > 0])


def persistence(output):
    value = num(output.get("persistence_rmse"))
    return num(output.get("rmse")) / value if value > 0 else NAN
