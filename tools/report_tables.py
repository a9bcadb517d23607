# SPDX-License-Identifier: BSD-3-Clause
"""Facts about runs, and tables as HTML and as Markdown."""

import csv
import functools
import io
import math
import re
from typing import NamedTuple

from report_values import CONTROL, NAN, Html, Row, array, esc, get, highest, known, letters
from report_values import mean, num, ratio, records, show, stamp_text, text
from report_run import Run, defaults, persistence

# ---- facts: one value per run, in the tables and in report.csv


class Fact(NamedTuple):
    group: str
    name: str
    key: str
    kind: str
    find: object = None
    split: str = ""  # the figure is of this split's evaluation

    def value(self, run, first):
        if callable(self.find):
            return self.find(run, first) if self.find in RELATIVE else self.find(run)
        value = get(run.result, self.find or self.key)
        return text(value) if self.kind == "text" else num(value)

    def cell(self, run, first):
        return show(self.kind, self.value(run, first))

    def weights(self, run):
        """The weights that the figure belongs to."""
        if not self.cell(run, run) or self.group != "Quality":
            return ""
        if self.key.startswith("train"):
            return train_span(run)
        if self.key.startswith("last"):
            return run.weights_text(run.last_step())
        found = run.evaluation(self.split) if self.split else run.detailed()
        split = "" if self.split else f", {SPLITS[found['split']].lower()} split"
        return run.weights_text(found["step"]) + split


def epochs_text(run):
    """10, or "3.5 of 10" if the run ended before its last step."""
    each = run.number("steps_per_epoch")
    planned = ratio(run.number("total_steps"), each)
    if math.isnan(planned):
        return show("count", float(len(run.epochs) or NAN))
    done = known(ratio(run.last_step(), each), 0.0)
    of_run = f"{math.floor(10 * done) / 10:.6g} of " if done < planned else ""
    return of_run + f"{math.ceil(10 * planned) / 10:.6g}"


def data_used(run):
    """The options that leave out data."""
    off = {"debug.fraction": "1", "debug.batches": "0", "debug.overfit": "0"}
    used = [key for key in off if run.deck.get(key, off[key]) != off[key]]
    return ", ".join(f"{key}={run.deck[key]}" for key in used)


SAME = ("model", "parameters", "trainable_parameters", "image")


def speed_up(run, first, same=SAME):
    """Speed relative to the first run, NAN if a known value of `same` differs."""
    pairs = [(run.result[key], first.result[key]) for key in same]
    if any(one == one and other == other and one != other for one, other in pairs):
        return NAN
    return ratio(images_per_second(run), images_per_second(first))


def efficiency(run, first):
    ranks = ratio(first.number("world_size"), run.number("world_size"))
    return speed_up(run, first, SAME + ("backend", "precision")) * ranks


def target_seconds(run):
    """Seconds until the first evaluation that reached output.target."""
    target = num(run.option("output.target"))
    reached = (row for row in run.rows["val"] if target > 0 and row["top1"] >= target)
    return next((row["elapsed_seconds"] for row in reached), NAN)


def train_row(run):
    """The newest row with a training loss: of an epoch, else of the log, else of the result."""
    rows = run.epochs[-1:] + run.rows["train"][::-1] + records([run.result.get("train")])
    return next((row for row in rows if num(row["loss"]) == row["loss"]), Row())


def train_span(run):
    end, start = train_row(run)["step"], train_row(run)["step"] - train_row(run)["count"] + 1
    steps = f"steps {show('count', start)} to {show('count', end)}"
    return f"mean of {steps if start <= end else 'the last epoch'}"


# Functions of facts, and functions that return them
share = lambda name: lambda run: ratio(run.step_mean(name), run.step_mean("step_seconds"))
others_used = lambda run: run.used()[1] != run.last_step()
last_val = lambda name: lambda run: run.last(name, "val") if others_used(run) else NAN
macro = lambda key: lambda run: num(get(run.detailed(), "macro." + key))
deck = lambda key, at="": lambda run: text(run.result.get(at)) or run.option(key)
attempt = lambda key: lambda run: text(get(run.attempts, "0." + key))
step = lambda name, weight="count": lambda run: run.step_mean(name, weight)
waiting = share("exposed_comm_seconds")
images_per_second = step("images_per_second", "seconds")
peak_bytes = lambda run: highest(rank["peak_bytes"] for rank in run.ranks)
epoch_seconds = lambda run: mean(row["seconds"] for row in run.epochs)
init = lambda run: re.sub("^none$", "random", run.option("model.init"))
base_lr = lambda run: known(run.number("base_lr"), run.option("optim.lr"))
total_seconds = lambda run: known(run.number("total_seconds"), run.last("elapsed_seconds"))
# Name, key, kind, then a function of the run or a key of result.json (by default: the key).
FACT_TABLE = {
    "What was run": [
        ("Status", "ending", "text", Run.status),
        ("Reason", "reason", "text", Run.reason),
        ("Started", "started", "text", lambda run: stamp_text(get(run.attempts, "0.started"))),
        ("Model", "model", "text", Run.model),
        ("Parameters", "parameters", "count"),
        ("Initial weights", "init", "text", init),
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
        ("Precision", "precision", "text", deck("train.precision", "precision")),
        ("Ranks", "ranks", "count", "world_size"),
        ("Nodes", "nodes", "count"),
        ("Threads per rank", "threads", "count"),
        ("Global batch", "global_batch", "count"),
        ("Optimizer", "optimizer", "text", deck("optim.name")),
        ("Learning rate", "learning_rate", "number", base_lr),
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
        ("Macro F1", "macro_f1", "share", macro("f1")),
        ("Macro precision", "macro_precision", "share", macro("precision")),
        ("Macro recall", "macro_recall", "share", macro("recall")),
        ("Macro specificity", "macro_specificity", "share", macro("specificity")),
        ("Last validation top-1", "last_val_top1", "share", last_val("top1")),
        ("Last validation loss", "last_val_loss", "number", last_val("loss")),
        ("Training loss", "train_loss", "number", lambda run: train_row(run)["loss"]),
        ("Training top-1", "train_top1", "share", lambda run: train_row(run)["top1"]),
    ],
    "Time": [
        ("Total time", "total_seconds", "seconds", total_seconds),
        ("Time excluding set-up", "without_setup_seconds", "seconds"),
        ("Training time", "training_seconds", "seconds"),
        ("Time per epoch", "epoch_seconds", "seconds", epoch_seconds),
        ("Time to target accuracy", "target_seconds", "seconds", target_seconds),
    ],
    "Speed": [
        ("Images/s", "images_per_second", "rate", images_per_second),
        ("Speed-up", "speed_up", "ratio", speed_up),
        ("Scaling efficiency", "efficiency", "share", efficiency),
        ("FLOPs per image", "flops_per_image", "flops"),
        ("Step time", "step_seconds", "seconds", step("step_seconds")),
        ("MFU", "peak_share", "share", step("peak_share", "seconds")),
        ("Computing", "compute_share", "share", share("compute_seconds")),
        ("Waiting for data", "data_share", "share", share("data_seconds")),
        ("Waiting for communication", "exposed_comm_share", "share", waiting),
        ("Forward pass", "forward_share", "share", share("forward_seconds")),
        ("Backward pass", "backward_share", "share", share("backward_seconds")),
        ("Gradient reduction", "reduce_share", "share", share("reduce_seconds")),
        ("Optimizer step", "update_share", "share", share("update_seconds")),
    ],
    "Memory and power": [
        ("Peak memory per rank", "peak_bytes", "bytes", peak_bytes),
        ("GPU utilization", "gpu_busy", "share", "sensors.gpu_busy.mean"),
        ("CPU utilization", "cores_busy", "share", "sensors.cores_busy.mean"),
        ("GPU power", "gpu_power", "W", "sensors.gpu_power.mean"),
    ],
}
METRICS = [
    ("top-1", "top1", "share"),
    ("top-5", "top5", "share"),
    ("mean IoU", "miou", "share"),
    ("mAP", "map", "share"),
    ("RMSE", "rmse", "number"),
    ("RMSE / persistence", "persistence", "number"),
    ("R2", "r2", "number"),
    ("loss", "loss", "number"),
]
SPLITS = {"test": "Test", "val": "Validation"}
FACTS = []
for group, rows in FACT_TABLE.items():
    for name, key, kind in METRICS if group == "Quality" else ():
        for split, title in SPLITS.items():
            find = functools.partial(Run.metric, split=split, name=key)
            line = "%s %s" % (title, name), "%s_%s" % (split, key), kind, find, split
            FACTS.append(Fact(group, *line))
    FACTS += [Fact(group, *row) for row in rows]
FACT = {fact.key: fact for fact in FACTS}
RELATIVE = (speed_up, efficiency)


def fact_known(fact, runs):
    if len(runs) == 1 and fact.find in RELATIVE:
        return False
    return any(fact.cell(run, runs[0]) for run in runs)


def top1_name(runs):
    names = {run.top1_name() for run in runs}
    return names.pop() if len(names) == 1 else "top-1"


def fact_name(fact, runs):
    several = any(len(run.evaluation(fact.split)["outputs"]) > 1 for run in runs if fact.split)
    of_mean = several and fact.key.endswith(("_r2", "_persistence"))
    return fact.name.replace("top-1", top1_name(runs)) + ", mean of the outputs" * of_mean


def weight_groups(facts, runs):
    """Lists of facts that belong to the same weights, and these weights for each run. Runs
    without the figure are ignored."""
    groups = []
    for fact in facts:
        found = [fact.weights(run) for run in runs]
        for group in groups:
            differ = any(a and b and a != b for a, b in zip(group[1], found))
            if any(group[1]) == any(found) and not differ:
                break
        else:
            group = [[], found]
            groups.append(group)
        group[0].append(fact)
        group[1] = [a or b for a, b in zip(group[1], found)]
    return groups


def facts_csv(runs):
    output = io.StringIO(newline="")
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow(["run"] + [fact.key for fact in FACTS])
    for run in runs:
        values = [run.name] + [fact.value(run, runs[0]) for fact in FACTS]
        texts = [v if isinstance(v, str) else "" if math.isnan(v) else f"{v:.9g}" for v in values]
        writer.writerow(CONTROL.sub("\ufffd", words) for words in texts)
    return output.getvalue()


# ---- tables, as HTML and as Markdown

LEFT = ("text", "code")  # kinds of columns whose cells are on the left
MOST = 256  # rows of a table


def note_html(words):
    return f'<p class="note">{esc(words)}</p>\n' if words else ""


class Sheet:
    """A table of records. A column has a name, a kind, and a key of the record or a function of
    it. Kinds: text and code (on the left), bar (a share with a bar), as is, or one of show().
    Columns without values are left out, unless they are as is. Has the first MOST records."""

    def __init__(self, title, style, records, columns, note=""):
        if len(records) > MOST:
            note += f" The first {MOST} of {len(records)} rows."
            records = records[:MOST]
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
        kinds, tall = [kind for _, kind, _ in self.columns], " tall" if len(self.rows) > 32 else ""
        title, captioned = esc(self.title), self.style in ("facts", "classes")
        lines = [f'<p class="caption">{title}</p>\n' if captioned else "", note_html(self.note)]
        lines.append(f'<div class="scroll{tall}" role="region" tabindex="0" aria-label="{title}">')
        lines.append(f'<table class="{self.style}">\n')
        if any(name for name, _, _ in self.columns):
            names = [Html(f"<span>{esc(name)}</span>") for name, _, _ in self.columns]
            head = map(html_cell, kinds, names, ["col"] * len(names))
            lines.append(f"<thead><tr>{''.join(head)}</tr></thead>\n")
        rows = [map(html_cell, kinds, row, ["row"] + [""] * len(row)) for row in self.rows]
        lines += ["<tbody>\n"] + [f"<tr>{''.join(cells)}</tr>\n" for cells in rows]
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
    shown = esc(value)
    if kind == "code" and scope != "col":
        shown = f"<code>{shown}</code>"
    elif kind == "bar" and scope != "col":
        share = known(value.rstrip(" %"), 0.0) / 100
        shown = f'<span class="bar s0" style="--v:{share:.2f}"></span>{shown}'
    tag, scope = ("th", f' scope="{scope}"') if scope else ("td", "")
    style = "" if kind in LEFT else ' class="n"'
    return f"<{tag}{scope}{style}>{shown}</{tag}>"


def markdown(value):
    words = re.sub(r"[\n\r\t]", " ", str(value))
    words = CONTROL.sub("?", words).replace("<", "&lt;")
    return re.sub(r"([|\\`*\[\]])", r"\\\1", words)


def named(kind, keys):
    """Columns of these keys of result.json. Those that are also facts have their names."""
    columns = []
    for key in keys:
        fact = FACT.get(key.replace("_seconds", "_share"))
        name = key.replace("seconds", "time").replace("bytes", "memory").replace("_", " ")
        columns.append((fact.name.lower() if fact else name, kind, key))
    return columns


def keys_of(records):
    return list(dict.fromkeys(key for one in records for key in one))


def sheet_facts(group, runs, names):
    """Figures of a group. A row without a name has the weights that the figures below belong to."""
    facts, rows = [fact for fact in FACTS if fact.group == group and fact_known(fact, runs)], []
    for found, weights in weight_groups(facts, runs):
        rows += [[""] + weights] if any(weights) else []
        for fact in found:
            rows.append([fact_name(fact, runs)] + [fact.cell(run, runs[0]) for run in runs])
    columns = [("", "text", "0")] + [(n, "as is", str(at)) for at, n in enumerate(names, 1)]
    return Sheet(group, "facts", rows, columns)


def sheet_confusions(names, rows):
    """The 20 most frequent confusions."""
    pairs = [(-v, at, c) for at, row in enumerate(rows) for c, v in enumerate(row) if at != c]
    pairs = sorted(pair for pair in pairs if pair[0] < 0)[:20]
    columns = [
        ("class", "text", lambda pair: names[pair[1]]),
        ("predicted as", "text", lambda pair: names[pair[2]]),
        ("images", "count", lambda pair: -pair[0]),
        ("of the class", "bar", lambda pair: ratio(-pair[0], sum(rows[pair[1]]))),
    ]
    return Sheet("Most frequent confusions", "pairs", pairs, columns)


def sheet_classes(run):
    found = run.detailed()
    classes, matrix = records(found["classes"]), array(found["confusion_matrix"])
    for one, row in zip(classes, matrix):
        one["images"] = sum(map(num, array(row)))
    columns = [("class", "text", lambda one: text(one["name"]) or "?")]
    columns += named("bar", ["f1", "iou", "average_precision"])
    columns += named("share", ["recall", "precision", "specificity", "one_vs_rest_accuracy"])
    columns.append(("pixels" if "miou" in found else "images", "count", "images"))
    note = f"Of the {run.weights_text(found['step'])}." if classes else ""
    if len(classes) > 32:
        note += " Lowest F1 first."
        classes.sort(key=lambda one: known(one["f1"], 2.0))
    return Sheet(f"Classes ({found['split']} split)", "classes", classes, columns, note)


def sheet_outputs(run):
    split = "test" if run.evaluation("test")["outputs"] else "val"
    evaluation = run.evaluation(split)
    columns = [("output", "text", lambda output: text(output["name"]) or "?")]
    keys = "rmse", "mae", "bias", "r2", "output_loss", "persistence_rmse", "persistence_mae"
    columns += named("number", keys)
    columns.append(("rmse / persistence", "number", persistence))
    note = f"Errors in the units of the data, of the {run.weights_text(evaluation['step'])}."
    return Sheet(f"Outputs ({split} split)", "classes", evaluation["outputs"], columns, note)


def sheet_units(run):
    """Parameters, time and memory of units: sums, and the columns that they are sums of."""
    units = run.units
    keys = [key for key in keys_of(units) if highest(unit[key] for unit in units) > 0]
    seconds = [key for key in keys if key.endswith("_seconds")]
    sizes = [key for key in keys if key.endswith("_bytes")]
    total = lambda unit, keys: sum(known(unit[key], 0.0) for key in keys)
    whole = sum(total(unit, seconds) for unit in units)
    columns = [("unit", "text", "unit"), ("parameters", "count", "parameters")]
    columns.append(("step time", "seconds", lambda unit: total(unit, seconds)))
    columns.append(("of all", "bar", lambda unit: ratio(total(unit, seconds), whole)))
    columns.append(("memory", "bytes", lambda unit: total(unit, sizes)))
    columns += named("seconds", seconds) + named("bytes", sizes)
    note = "Means of a training step of the last attempt. Planned memory of rank 0."
    return Sheet("Step time and memory by unit", "classes", units, columns, note)


def sheet_ranks(run):
    columns = []
    for key in keys_of(run.ranks):
        is_text = isinstance(run.ranks[0].get(key), str)
        kind = next((kind for kind in ("bytes", "seconds") if kind in key), "count")
        columns += named("text" if is_text else kind, [key])
    return Sheet("Ranks", "ranks", run.ranks, columns)


def sheet_attempts(run):
    joined = lambda key: lambda attempt: ", ".join(map(str, array(attempt[key])))

    def changes(attempt):
        found = attempt["changed"] if isinstance(attempt["changed"], dict) else {}
        return "; ".join(f"{key}: {' to '.join(map(str, array(found[key])))}" for key in found)

    columns = [
        ("attempt", "text", lambda attempt: str(run.attempts.index(attempt) + 1)),
        ("started", "text", lambda attempt: stamp_text(attempt["started"])),
        ("ended", "text", lambda attempt: stamp_text(attempt["ended"])),
        *named("count", ["from_step", "to_step", "ranks"]),
        ("hosts", "text", joined("hosts")),
        ("devices", "text", joined("devices")),
        ("set-up", "seconds", "setup_seconds"),
        ("outcome", "text", lambda attempt: text(attempt["error"]) or text(attempt["stop_reason"])),
        ("changed", "text", changes),
        ("command", "code", lambda attempt: text(attempt["command"])),
    ]
    return Sheet("Attempts", "facts", run.attempts, columns)


def sheet_options(runs):
    """Options of a run that differ from their defaults, or that differ between runs."""
    title, note = "Options that differ between the runs", ""
    names, decks = [letters(at) for at in range(len(runs))], [run.deck for run in runs]
    keys = keys_of(decks)
    if len(runs) == 1:
        title, names = "Options that differ from their defaults", ["value", "default"]
        decks.append(defaults())
        note = "" if decks[1] else "The defaults are unknown: the program vittrain was not found."
    rows = [[key] + [deck.get(key, "") for deck in decks] for key in keys]
    rows = [row for row in rows if len(set(row[1:])) > 1 and row[0] not in ("run.name", "run.dir")]
    columns = [(name, "code", str(at)) for at, name in enumerate(["option"] + names)]
    return Sheet(title, "decks", rows, columns, note)


def sheet_trouble(run):
    """Warnings and errors of the log, and files that are missing or damaged."""
    lines = [("log", line) for line in run.trouble] + [("file", line) for line in run.missing]
    columns = [("", "text", "0"), ("", "code", "1")]
    return Sheet("Warnings, errors and missing files", "trouble", lines, columns)


# Tables of one run by section of the page
SHEETS = {"classes": [sheet_outputs, sheet_classes], "units": [sheet_units]}
SHEETS.update(ranks=[sheet_ranks], decks=[sheet_attempts], trouble=[sheet_trouble])
