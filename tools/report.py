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
import csv
import io
import math
import os
import re
import sys
import time

import export
from report_values import CONTROL, NAN, Html, array, esc, get, known, letters, mean, num, ratio
from report_values import show, stamp_seconds, text
from report_run import Failure, Run, persistence, printed, read_text, write_file
from report_tables import FACT, FACTS, FACT_TABLE, SCALING_CONDITIONS, SPLITS, Sheet, difference
from report_tables import fact_best, fact_known, fact_name, facts_csv, label, markdown
from report_tables import sheet_attempts, sheet_classes, sheet_options, sheet_outputs, sheet_phases
from report_tables import sheet_ranks, sheet_splits, sheets_units
from report_charts import COLOURS, MEASURES, Chart, Drawing, Series, charts_write, measure_values
from report_charts import points, time_unit

# ---- the page


# Parts of a run's description; a part without a value is left out.
KIND = "{model}|initial weights {init}|{data}|data used {data_used}|{epochs}|{optimizer}|"
KIND += "learning rate {learning_rate}|{strategy}|{ranks}|{precision}"
CHOSEN_ON_TEST = "The best checkpoint was chosen on the test set (data.val=test), so its accuracy "
CHOSEN_ON_TEST += "is an overestimate. data.val=0.1 holds out training images."
COMPARED = "A dot marks the best value of a row. "
COMPARED += "Speed-up and scaling efficiency are relative to run A."


def unknown(run, figures):
    end = {"failed": "failed", "interrupted": "was interrupted"}.get(run.status())
    why = "the run %s before they were written" % end if end else "they are written at its end"
    return "<p>%s are unknown: %s.</p>\n" % (figures, why)


class Page:
    """The page about the runs. Methods return HTML."""

    def __init__(self, runs):
        self.runs, self.one = runs, len(runs) == 1

    def key(self, at):
        place = at % len(COLOURS), esc(self.runs[at].name), letters(at)
        return Html('<span class="key s%d" title="%s"><b>%s</b></span>' % place)

    def note(self, words, key=""):
        return '<p class="note">%s%s</p>\n' % (key, esc(words))

    def run_title(self, at):
        return "" if self.one else "<h3>%s%s</h3>\n" % (self.key(at), esc(self.runs[at].name))

    def each(self, show_run):
        """What show_run(run, its number) returns, under the titles of the runs."""
        shown = [(at, show_run(run, at)) for at, run in enumerate(self.runs)]
        return "".join(self.run_title(at) + part for at, part in shown if part)

    # -- the head

    def title(self):
        names = [esc(run.name) for run in self.runs]
        last = names.pop() if len(names) <= 3 else "%d more" % (len(names) - 3)
        return "Run " + last if self.one else "%s and %s" % (", ".join(names[:3]), last)

    def kind(self, run):
        """Model, data, layout and state of a run in one line."""
        cells = {key: FACT[key].cell(run, run) for key in FACT}
        cells["data"] = cells["data"].rstrip("/").rpartition("/")[2]
        cells["data_used"] = cells["data_used"].replace("all", "")
        for key in ("epochs", "ranks", "nodes"):
            cells[key] += " %s" % (key[:-1] if cells[key] == "1" else key) if cells[key] else ""
        cells["ranks"] = " on ".join(filter(None, (cells["ranks"], cells["nodes"])))
        parts = [part for part in KIND.split("|") if cells[part.partition("{")[2].rstrip("}")]]
        status = run.status()
        colour = {"finished": "ok", "failed": "no"}.get(status, "open")
        state = "<span class='state %s'>%s</span>" % (colour, status)
        return " &middot; ".join([esc(part.format(**cells)) for part in parts] + [state])

    def head(self):
        parts = ["<header>\n<h1>%s</h1>\n" % self.title()]
        if self.one:
            run = self.runs[0]
            parts.append('<p class="kind">%s</p>\n' % self.kind(run))
            if run.status() != "finished" and run.reason():
                parts.append('<p class="reason">%s</p>\n' % esc(run.reason()))
        parts.append(self.figures())
        for at, run in enumerate(self.runs):
            if run.result.get("chosen_on_test") is True and run.evaluations("val"):
                parts.append(self.note(CHOSEN_ON_TEST, "" if self.one else self.key(at)))
        return "".join(parts) + "</header>\n"

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
        names = [fact_name(fact, self.runs) for fact in shown]
        if self.one:
            tile = "<div><dt>%s</dt><dd>%s</dd></div>\n"
            cells = [self.cell(fact, self.runs[0]) for fact in shown]
            tiles = [tile % (label(name), cell) for name, cell in zip(names, cells)]
            return '<dl class="tiles">\n%s</dl>\n' % "".join(tiles)

        def name_of(run):
            name = self.key(self.runs.index(run)), esc(run.name), self.kind(run)
            return Html("%s<b>%s</b> <small>%s</small>" % name)

        columns = [("run", "text", name_of)]
        for fact, name in zip(shown, names):
            columns.append((name, "as is", lambda run, fact=fact: self.cell(fact, run)))
        return Sheet("Key figures", "figures", self.runs, columns).html()

    def cell(self, fact, run):
        """A value, with a mark if it is the best one, and the weights that it belongs to."""
        shown = esc(fact.cell(run, self.runs[0]))
        if fact_best(fact, self.runs, run):
            shown = '<span class="best">%s</span>' % shown
        weights = fact.weights(run)
        return Html(shown + ("<small>%s</small>" % esc(weights) if weights else ""))

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
        entries += [("dash any", "validation")] if brief else []
        lines = ['<span><i class="%s"></i>%s</span>\n' % (c, esc(words)) for c, words in entries]
        legend = '<p class="legend">%s</p>' % "".join(lines) if lines else ""
        head = "<figure><figcaption>%s%s</figcaption>\n%s" % (esc(chart.title), unit, legend)
        drawing = Drawing(chart, width, height, name, enlarged, places // coarse, coarse)
        return head + drawing.svg() + "</figure>\n"

    def measure(self, measure):
        longest = max(known(run.last("elapsed_seconds"), 0) for run in self.runs)
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
            return ""
        for at, one in enumerate(series):
            one.covered = sum(coincide(one, other) for other in series[at + 1 :])
        scale = dict(y_log="log" in measure.flags, y_zero=not measure.flags)
        title, whole = self.measure_title(measure), not measure.by_time
        chart = Chart(title, series, unit_name, measure.unit, whole, **scale)
        brief = measure.evaluated and len(self.runs) > 3
        chart = self.marked(chart) if measure.large else chart
        return self.figure(measure.name, chart, measure.large, brief)

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
            rows_of, letter = {}, "" if self.one else letters(at) + " "
            for row in run.outputs:
                if row.get("split") == "val":
                    rows_of.setdefault(row["output"], []).append(row)
            for name, rows in rows_of.items():
                steps, rmse, simple, r2 = (
                    [num(row.get(key)) for row in rows]
                    for key in ("step", "rmse", "persistence_rmse", "r2")
                )
                series = charts.setdefault(name, [])
                series.append(Series(steps, rmse, letter + "validation", at))
                if any(v == v for v in simple):
                    colour = 1 if self.one else at
                    series.append(Series(steps, simple, letter + "persistence", colour, True))
                ys = list(map(persistence, rows)) if forecast else r2
                ratios.append(Series(steps, ys, letter + name, len(ratios)))
        shown = [Chart("RMSE of " + name, charts[name]) for name in list(charts)[:4]]
        if ratios:
            shown.append(Chart("RMSE / persistence" if forecast else "R2", ratios[:8]))
        figures = ["output-%d" % at for at in range(len(shown))]
        return "".join(self.figure(n, self.marked(c), True) for n, c in zip(figures, shown))

    def curves(self):
        none = "<p>No curves: metrics.csv is missing or has no rows.</p>\n"
        large = self.output_charts() + "".join(self.measure(m) for m in MEASURES if m.large)
        none = "" if any(len(run.metrics) for run in self.runs) else none
        return '%s<div class="large">\n%s</div>\n' % (none, large)

    def details(self):
        small = [m for m in MEASURES if not m.large and not (self.one and m.by_time)]
        charts = '<div class="charts">\n%s</div>\n' % "".join(map(self.measure, small))
        return charts + self.each(self.values)

    def values(self, run, _):
        """The values of the curves at up to 100 evaluations; without evaluations at 20 rows."""
        evaluated = bool(run.rows["val"])
        rows = run.rows["val" if evaluated else "train"]
        most = 100 // (1 + len(self.runs) // 8) if evaluated else 20
        each = max(-(-len(rows) // most), 1)
        rows = rows[(len(rows) - 1) % each :: each]
        train = [None] + run.rows["train"]
        before = {row: train[bisect.bisect(run.rows["train"], row)] for row in rows}
        columns = [("step", "count", run.metrics.numbers("step").__getitem__)]
        for measure in MEASURES:
            if measure.by_time:
                continue
            values, title = measure_values(run, measure), self.measure_title(measure)
            at_train = {row: values[at] for row, at in before.items() if at is not None}
            if measure.evaluated and evaluated:
                columns.append((title + ", validation", measure.kind, values.__getitem__))
                title += ", training"
            columns.append((title, measure.kind, at_train.get))
        return Sheet("Values", "ranks", rows, columns).html()

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
        note = "Of the %s split and the %s: true classes in rows, predictions in columns."
        shown = self.note(note % (SPLIT_WORDS[found["split"]], run.weights_text(found["step"])))
        if count > 32:
            picture = matrix_picture(names, rows, letters(at)) if count <= 200 else ""
            return shown + picture + confusions(names, rows).html(), count

        def cell(row, column):
            share = known(ratio(rows[row][column], sum(rows[row])), 0.0)
            return Html('<b style="--v:%.2f">%.0f</b>' % (share, rows[row][column]))

        columns = [("", "text", names.__getitem__)]
        columns += [(n, "as is", lambda row, c=c: cell(row, c)) for c, n in enumerate(names)]
        table = Sheet("Confusion matrix", "confusion", range(count), columns).html()
        return shown + '<div id="confusion-%s">%s</div>\n' % (letters(at), table), count

    def errors(self):
        parts = ['<div class="pair">\n']
        for at, run in enumerate(self.runs if len(self.runs) <= 2 else ()):
            shown, count = self.matrix(at)
            if 0 < count <= 20:
                longest = max(len(text(c.get("name"))) for c in run.detailed()["classes"])
                wide = ' class="wide"' if min(longest, 25) * 7 + count * 40 > 580 else ""
                title = "<h2>Confusion matrix</h2>\n" + self.run_title(at)
                parts.append("<div%s>%s%s</div>\n" % (wide, title, shown))
        if self.one:
            run = self.runs[0]
            note = ": class, prediction and its probability."
            found = run.misclassified
            parts.append(self.samples(found, "Most confident errors", note, "images", self.image))
            note = ", from left to right: input (if any), target, prediction, error. Grey: missing."
            parts.append(self.samples(run.planes, "Samples", note, "planes", self.plane))
        return "".join(parts) + "</div>\n"

    def samples(self, found, title, note, style, show_sample):
        """Pictures of misclassified.json or planes.json."""
        samples = [s for s in array(found.get("samples")) if is_png(get(s, "png"))]
        if not samples:
            return ""
        split = found.get("split")
        evaluations = self.runs[0].evaluations("test" if split == "test" else "val")
        weights = [" and the " + self.runs[0].weights_text(e["step"]) for e in evaluations[-1:]]
        note = "Of the %s split" % SPLIT_WORDS.get(split, "validation") + "".join(weights) + note
        picture = '<div><img alt="%s" title="%s" src="data:image/png;base64,%s"><p>%s</p></div>\n'
        parts = []
        for sample in samples:
            about, name, shown = show_sample(sample)
            parts.append(picture % (about, esc(name), sample["png"], shown))
        wide = ' class="wide"' if style == "planes" else ""
        head = "<div%s><h2>%s</h2>\n%s" % (wide, title, self.note(note))
        return '%s<div class="%s">\n%s</div></div>\n' % (head, style, "".join(parts))

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
        wide = {1: "", 2: " two"}.get(len(self.runs), " wide")
        parts = ["" if self.one else self.note(COMPARED), '<div class="groups%s">\n' % wide]
        columns = [("", "text", lambda fact: label(fact_name(fact, self.runs)))]
        for at, run in enumerate(self.runs):
            name = "" if self.one else self.key(at)
            columns.append((name, "as is", lambda fact, run=run: self.cell(fact, run)))
        for group in FACT_TABLE:
            facts = [f for f in FACTS if f.group == group and fact_known(f, self.runs)]
            if facts:
                parts.append("<div>%s</div>\n" % Sheet(group, "facts", facts, columns).html())
        parts.append("</div>\n")
        for at, run in enumerate(self.runs):
            speed = difference(run, self.runs[0])
            found = speed or difference(run, self.runs[0], SCALING_CONDITIONS)
            if found:
                what = "speed" if speed else "scaling efficiency"
                line = "%s not compared with %s: %s %s, not %s."
                parts.append(self.note(line % (what, self.runs[0].name, *found), self.key(at)))
        return "".join(parts)

    def classes(self, run, at):
        table = sheet_classes(run).html()
        parts = [sheet_splits(run).html(), sheet_outputs(run).html()]
        if not table and not run.outputs:
            parts.append("<p>Classes are unknown: result.json does not contain them.</p>\n")
        shown, count = self.matrix(at)
        matrix = "<div>%s</div>\n" % shown if count > 20 or len(self.runs) > 2 else ""
        return "".join(parts) + '<div class="pair">\n%s<div>%s</div></div>\n' % (matrix, table)

    def units(self, run, _):
        units = "".join(sheet.html() for sheet in sheets_units(run))
        return sheet_phases(run).html() + (units or unknown(run, "Time and memory by unit"))

    def ranks(self, run, _):
        return sheet_ranks(run).html() or unknown(run, "Measurements of ranks")

    def hardware(self, run, at):
        if not len(run.monitor):
            return "<p>Unknown: monitor.csv is missing or has no rows.</p>\n"
        times = [stamp_seconds(stamp) for stamp in run.monitor.texts("time")]
        ranks = [int(known(v, 0.0)) for v in run.monitor.numbers("rank")]
        good = [t for t in times if t == t] or [0.0]
        unit, unit_name = time_unit(max(good) - min(good))
        times, parts = [(t - min(good)) / unit for t in times], []
        for column, title, y_label, scale, y_zero, y_range in SENSOR_CHARTS:
            values = [scale * value for value in run.monitor.numbers(column)]
            rows = [row for row in zip(times, values, ranks) if not math.isnan(row[0] + row[1])]
            if rows:
                series = rank_series(rows, len(set(ranks)))
                chart = Chart(title, series, unit_name, y_label, x_whole=False)
                chart = chart._replace(y_zero=y_zero, y_range=y_range)
                parts.append(self.figure("sensor-%s-%s" % (column, letters(at)), chart))
        return '<div class="charts">\n%s</div>\n' % "".join(parts)

    def decks(self):
        none = "" if self.one else "<p>None besides the names.</p>\n"
        attempts = self.each(lambda run, _: sheet_attempts(run).html())
        return (sheet_options(self.runs).html() or none) + attempts

    def troubles(self, run, _):
        parts = []
        titles = [("From the log", run.trouble), ("Missing or damaged files", run.missing)]
        for title, lines in titles:
            more = len(lines) - 200
            items = ["<li><code>%s</code></li>\n" % esc(line) for line in lines[:200]]
            items += ["<li>and %d more</li>\n" % more] if more > 0 else []
            parts += ["<p>%s:</p>\n<ul>\n%s</ul>\n" % (title, "".join(items))] if lines else []
        return "".join(parts)

    def guarded(self, name, write):
        """A part of the page. Values that cannot be shown are damage of the files."""
        try:
            return write()
        except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as why:
            self.runs[0].missing.append("part %s of the page: damaged values (%s)" % (name, why))
            return "<p>Not shown: the values are damaged.</p>\n"

    def write(self):
        folder = os.path.dirname(os.path.abspath(__file__))
        style = read_text(os.path.join(folder, "report.css"))
        style += "".join(".s%d{color:#%s}\n" % pair for pair in enumerate(COLOURS))
        parts = [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
            '<meta name="color-scheme" content="light dark">\n<title>%s</title>\n<style>\n%s'
            "</style>\n</head>\n<body>\n" % (self.title(), style)
        ]
        parts += [self.guarded("head", self.head), "<main>\n"]
        parts += [self.guarded("curves", self.curves), self.guarded("errors", self.errors)]
        for name, title, title_of_several, write in [
            ("summary", "All figures", "All figures side by side", self.summary),
            ("details", "Learning rate, speed and waiting times", "", self.details),
            ("classes", "Quality by split and class", "", lambda: self.each(self.classes)),
            ("units", "Step time and memory", "", lambda: self.each(self.units)),
            ("ranks", "Ranks", "", lambda: self.each(self.ranks)),
            ("hardware", "Hardware over time", "", lambda: self.each(self.hardware)),
            ("decks", "Options and attempts", "Differing options and attempts", self.decks),
            ("trouble", "Warnings, errors and missing files", "", lambda: self.each(self.troubles)),
        ]:
            count = sum(len(run.trouble) + len(run.missing) for run in self.runs)
            count = "<small>%d</small>" % count if name == "trouble" else ""
            title = title if self.one else title_of_several or title
            head = '<details id="%s"><summary><h2>%s</h2>%s</summary>\n<div>\n'
            shown = self.guarded(name, write) or "<p>None.</p>\n"
            parts += [head % (name, title, count), shown, "</div></details>\n"]
        date = time.strftime("%Y-%m-%d %H:%M:%S %Z")
        end = "</main>\n<footer>Written %s by %s from the run folder%s. docs/outputs.md "
        end += "explains the numbers.</footer>\n</body>\n</html>\n"
        program = esc(printed("--version").strip() or "report.py (version unknown)")
        return "".join(parts) + end % (date, program, "" if self.one else "s")


SPLIT_WORDS = {"test": "test", "val": "validation"}
# Column of monitor.csv, title, unit, scale, whether the axis begins at 0, its range (None: by the data)
SENSOR_CHARTS = [
    ("gpu_busy", "GPU utilization", "%", 100, True, (0.0, 100.0)),
    ("gpu_power", "GPU power", "W", 1, True, None),
    ("gpu_temperature", "GPU temperature", "\u00b0C", 1, False, None),
    ("gpu_memory_used_bytes", "GPU memory in use", "GiB", 1 / 2**30, True, None),
    ("cores_busy", "CPU utilization of the node", "%", 100, True, (0.0, 100.0)),
    ("process_cores", "CPU cores used by the rank", "cores", 1, True, None),
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
    svg = '<svg class="matrix" id="confusion-%s" role="img" aria-label="Confusion matrix of %d '
    svg += 'classes" viewBox="0 0 %d %d" fill="none" stroke="currentColor" '
    svg += 'shape-rendering="crispEdges">\n'
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
    sheets = [sheet_splits(run), sheet_classes(run), sheet_outputs(run), sheet_phases(run)]
    sheets += [*sheets_units(run), sheet_ranks(run), sheet_options([run]), sheet_attempts(run)]
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
        export.write(run, form)
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
