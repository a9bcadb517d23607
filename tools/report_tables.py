# SPDX-License-Identifier: BSD-3-Clause
"""Facts about runs, and tables as HTML and as Markdown."""

import csv
import functools
import io
import math
import re
from typing import NamedTuple

from report_values import CONTROL, NAN, Html, array, esc, get, highest, known, letters, mean, num
from report_values import ratio, records, show, stamp_text, text
from report_run import Run, defaults, persistence

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
            return train_span(run)
        if self.key.startswith("last"):
            return run.weights_text(run.last_step())
        found = run.evaluation(self.split) if self.split else run.detailed()
        split = "" if self.split else ", %s split" % dict(SPLITS)[found["split"]].lower()
        return run.weights_text(found["step"]) + split


def epochs_text(run):
    """10, or "3.5 of 10" if the run ended before its last step."""
    each = run.number("steps_per_epoch")
    planned = ratio(run.number("total_steps"), each)
    done = known(ratio(run.last_step(), each), float(len(run.epochs)))
    if math.isnan(planned):
        return show("count", known(run.number("epochs"), done))
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


CONDITIONS = dict(model="model", parameters="parameters", image="image size")
CONDITIONS["trainable_parameters"] = "trainable parameters"
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
    last = num(get(run.epochs[-1:], "0.train_loss"))
    return known(run.number("train.loss"), last, run.last("loss", "train"))


def train_span(run):
    """The steps that the training loss belongs to: of an epoch, or of a row of the log."""
    ends = [run.number("steps"), num(get(run.epochs[-1:], "0.step"))]
    losses = [run.number("train.loss"), num(get(run.epochs[-1:], "0.train_loss"))]
    end = known(*[end for end, loss in zip(ends, losses) if not math.isnan(loss)])
    start = end - (end - 1) % (run.number("steps_per_epoch") or NAN)
    if math.isnan(end):
        end = run.last("step", "train")
        start = end + 1 - ([NAN] + [extent[0] for extent in run.extents().values()])[-1]
    span = show("count", start), show("count", end)
    return "mean of steps %s to %s" % span if start <= end else "mean of the last epoch"


# Functions that return the function of a fact


def share(name):
    """A share of the step time."""
    return lambda run: ratio(run.step_mean(name), run.step_mean("step_seconds"))


def last_val(name):
    """A metric of the last weights, if others are used."""
    return lambda run: run.last(name, "val") if run.used()[1] != run.last_step() else NAN


deck = lambda key, at="": lambda run: text(run.result.get(at)) or run.option(key)
attempt = lambda key: lambda run: text(get(run.attempts, "0." + key))
step = lambda name, weight=0: lambda run: run.step_mean(name, weight)
waiting = share("exposed_comm_seconds")
per_rank = lambda run: ratio(images_per_second(run), run.number("world_size"))
planned_bytes = lambda run: known(
    highest(run.ranks.numbers("planned_bytes")), run.number("planned_bytes")
)
setup_seconds = lambda run: run.number("total_seconds") - run.number("without_setup_seconds")
epoch_seconds = lambda run: mean(num(row.get("seconds")) for row in run.epochs)
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
        ("MFU", "peak_share", "share", step("peak_share", 1), 1),
        ("Waiting for data", "data_share", "share", share("data_seconds"), -1),
        ("Waiting for communication", "exposed_comm_share", "share", waiting, -1),
        ("Communication thread busy", "comm_share", "share", share("comm_seconds")),
        ("Forward pass", "forward_share", "share", share("forward_seconds")),
        ("Backward pass", "backward_share", "share", share("backward_seconds")),
        ("Gradient reduction", "reduce_share", "share", share("reduce_seconds")),
        ("Optimizer step", "update_share", "share", share("update_seconds")),
    ],
    "Memory and power": [
        ("Planned memory per rank", "planned_bytes", "bytes", planned_bytes, -1),
        ("Peak memory per rank", "peak_bytes", "bytes", peak_bytes, -1),
        ("Utilization", "busy", "share", busy),
        ("GPU power", "gpu_power", "W", "sensors.gpu_power.mean"),
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
    several = any(len(array(run.evaluation(fact.split).get("outputs"))) > 1 for run in runs)
    of_mean = several and fact.key.endswith(("_r2", "_persistence"))
    return fact.name.replace("top-1", name) + ", mean of the outputs" * of_mean


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
    kinds = [o.detailed()["kinds"] for o, _ in others if fact.key == "macro_f1"]
    if kinds and not set.intersection(*kinds):
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


# ---- tables, as HTML and as Markdown

LEFT = ("text", "code")  # kinds of columns whose cells are on the left


class Sheet:
    """A table of records. A column has a name, a kind, and a key of the record or a function of
    it. Kinds: text and code (on the left), bar (a share with a bar), as is, or one of show().
    Columns without values are left out, unless they are as is."""

    def __init__(self, title, style, records, columns, note=""):
        self.title, self.style, self.note, self.columns = title, style, note, []
        for name, kind, find in columns:
            value = find if callable(find) else lambda record: get(record, find)
            cells = [self.cell(kind, value(record)) for record in records]
            if any(cells) or kind == "as is":
                self.columns.append((name, kind, cells))
        self.rows = list(zip(*[cells for _, _, cells in self.columns]))

    @staticmethod
    def cell(kind, value):
        if kind in LEFT + ("as is",):
            return value if isinstance(value, str) else "" if value is None else str(value)
        return show("share" if kind == "bar" else kind, num(value))

    def html(self):
        """The table in a box with a scroll bar; with the focus it can be scrolled by keyboard."""
        if not self.rows:
            return ""
        box = '<div class="scroll%s" role="region" tabindex="0" aria-label="%s">'
        box += '<table class="%s">\n'
        lines = ['<p class="note">%s</p>\n' % esc(self.note)] if self.note else []
        lines.append(box % (" tall" if len(self.rows) > 32 else "", esc(self.title), self.style))
        if self.style == "facts":
            lines.append("<caption>%s</caption>\n" % esc(self.title))
        if any(name for name, _, _ in self.columns):
            kinds = ["text" if kind in LEFT else "as is" for _, kind, _ in self.columns]
            names = [label(name) for name, _, _ in self.columns]
            head = map(html_cell, kinds, names, ["col"] * len(names))
            lines.append("<thead><tr>%s</tr></thead>\n" % "".join(head))
        lines.append("<tbody>\n")
        for row in self.rows:
            kinds, scopes = [kind for _, kind, _ in self.columns], ["row"] + [""] * len(row)
            lines.append("<tr>%s</tr>\n" % "".join(map(html_cell, kinds, row, scopes)))
        return "".join(lines) + "</tbody></table></div>\n"

    def markdown(self):
        if not self.rows:
            return ""
        rules = ["---" if kind in LEFT else "---:" for _, kind, _ in self.columns]
        lines = ["", "## " + self.title, ""] + ([self.note, ""] if self.note else [])
        lines.append("| %s |" % " | ".join(markdown(name) for name, _, _ in self.columns))
        lines.append("|%s|" % "|".join(rules))
        lines += ["| %s |" % " | ".join(map(markdown, row)) for row in self.rows]
        return "\n".join(lines) + "\n"


def html_cell(kind, value, scope):
    """A cell, or with a scope (col, row) a header cell."""
    shown = "<code>%s</code>" % esc(value) if kind == "code" else esc(value)
    if kind == "bar":
        share = known(num(value.rstrip(" %")), 0.0) / 100
        shown = '<span class="bar s0" style="--v:%.2f"></span>%s' % (share, shown)
    tag, scope = ("th", ' scope="%s"' % scope) if scope else ("td", "")
    style = "" if kind in LEFT else ' class="n"'
    return "<%s%s%s>%s</%s>" % (tag, scope, style, shown, tag)


def label(name):
    """A name as HTML; those such as top-1 are not broken at the hyphen."""
    return Html("<span>%s</span>" % esc(name).replace("-1", "\u2011" + "1"))


def markdown(value):
    words = re.sub(r"[\n\r\t]", " ", str(value))
    words = CONTROL.sub("?", words).replace("<", "&lt;")
    return re.sub(r"([|\\`*\[\]])", r"\\\1", words)


def sheet_splits(run):
    rows = []
    if isinstance(run.result.get("train"), dict):
        weights = train_span(run) + ", during training"
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
    ]
    macro = ("precision", "recall", "F1", "specificity")
    columns += [("macro " + name, "share", "macro." + name.lower()) for name in macro]
    columns.append(("measured with", "text", "weights"))
    note, monitor, value = "", text(get(run.result, "best.monitor")), run.number("best.value")
    if not math.isnan(value):
        kind = "share" if monitor.startswith(("top", "miou", "map")) else "number"
        note = "checkpoint.monitor=%s: best validation value %s, at step %s."
        note %= monitor, show(kind, value), show("count", run.number("best.step"))
        if run.detailed() and run.detailed()["step"] != run.used()[1]:
            note += " vittrain eval %s prints the metrics of classes of these weights." % run.path
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


def sheet_phases(run):
    """The parts of the step time. Their source is metrics.csv, so failed runs have them, too."""
    names = dict(data="data", compute="compute", exposed_comm="communication")
    means = {name: run.step_mean(key + "_seconds") for key, name in names.items()}
    whole = run.step_mean("step_seconds")
    means["other"] = max(whole - sum(known(value, 0) for value in means.values()), 0)
    rows = [(name, value, ratio(value, whole)) for name, value in means.items() if value >= 0]
    columns = [("phase", "text", "0"), ("time", "seconds", "1"), ("of the step", "bar", "2")]
    note = "Means of all steps. Data and communication are the time spent waiting for them."
    return Sheet("Step time by phase", "classes", rows, columns, note)


def sheets_units(run):
    first = [("unit", "text", "unit"), ("parameters", "count", "parameters")]
    times = first + unit_columns(run.units, "step time", "seconds", "_seconds")
    memory = first[:1] + unit_columns(run.units, "memory", "bytes", "_bytes")
    note = "Means of a training step%s." % (" of the last attempt" * (len(run.attempts) > 1))
    return [
        Sheet("Step time by unit", "classes", run.units.rows, times, note),
        Sheet("Memory by unit", "classes", run.units.rows, memory, "Planned memory of rank 0."),
    ]


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
    else:
        other = ["%s=%s" % item for item in runs[0].deck.items() if item[0] not in defaults()]
        note = "Options of another version: %s." % ", ".join(other) if other else ""
    columns = [(name, "code", str(at)) for at, name in enumerate(["option"] + names)]
    return Sheet(title, "decks", rows, columns, note)
