#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Write an HTML page about one run, or about several side by side.

    report.py RUN... [report.output=FILE] [report.csv=FILE] [report.format=FORMAT]
              [output.logbook=FOLDER]
    report.py FIND_LR.csv [report.output=FILE]

RUN is a run folder of format 1 or 2 (docs/outputs.md), also of a run that failed, was interrupted
or is still running. The page is RUN/report.html, or report.html in the working directory for
several runs, or report.output. report.csv is a table with one row per run. report.format=course,
imagenet or lightning also writes log lines and files of another program to each run folder. The
pages of the runs in their log book are updated. The second form writes a page with the curve of
`vittrain find lr`, find_lr.html beside the table.
Exit codes: 2 wrong arguments, 5 a file cannot be read or written.
"""

import csv
import io
import os
import re
import sys
import time

import export
import report_tables as tables
from report_charts import COLOURS, CURVE_COLOURS, MEASURES, SENSORS
from report_charts import Chart, Drawing, Measure, Series, points, time_unit
from report_run import OUTPUT, Failure, Run, printed, read_text, write_file
from report_tables import FACT, SPLITS, Sheet, fact_known, fact_name, markdown, note_html
from report_tables import top1_name, weight_groups
from report_values import CONTROL, NAN, Html, array, esc, get, known
from report_values import letters, num, ratio, show, text

# ---- the page


# Facts that describe a run in one line
KIND = "model init data data_used epochs optimizer learning_rate strategy ranks nodes precision"
DOT = " &middot; "
COMPARED = "Speed-up is relative to run A, and empty for another model or image size."


class Page:
    """The page about the runs. Methods return HTML."""

    def __init__(self, runs):
        self.runs, self.one = runs, len(runs) == 1

    def letter(self, run):
        """The key of a run: its letter on its colour."""
        at, name = self.runs.index(run), esc(run.name)
        colour = f"s{at % len(COLOURS)}"
        return Html(f'<span class="key {colour}" title="{name}"><b>{letters(at)}</b></span>')

    def sheets(self, section):
        """The tables of a section; those of several runs are under their titles."""
        parts = []
        for run in self.runs:
            part = "".join(sheet(run).html() for sheet in tables.SHEETS.get(section, ()))
            if section == "classes" and not self.one:
                part += self.matrix(run)
            if part and not self.one:
                parts.append(f"<h3>{self.letter(run)}{esc(run.name)}</h3>\n")
            parts.append(part)
        return "".join(parts)

    # -- the head

    def title(self):
        names = [esc(run.name) for run in self.runs]
        return f"{len(names)} runs" if len(names) > 3 else " and ".join(names)

    def kinds(self):
        """Parts of a line about all runs, and of lines about each run: what differs, its state."""
        kinds, own = [], []
        for run in self.runs:
            facts = [(FACT[key].name.lower(), FACT[key].cell(run, run)) for key in KIND.split()]
            parts = [f"{name} {value.rstrip('/').split('/')[-1]}" for name, value in facts if value]
            kinds.append([words for part in parts for words in part.split(", ")])
        shared = [part for part in kinds[0] if all(part in parts for parts in kinds)]
        for run, parts in zip(self.runs, kinds):
            status = run.status()
            colour = {"finished": "ok", "failed": "no"}.get(status, "open")
            state = Html(f'<span class="state {colour}">{status}</span>')
            own.append([part for part in parts if part not in shared] + [state])
        return shared, own

    def head(self):
        shared, own = self.kinds()
        kind = DOT.join(map(esc, shared + (own[0] if self.one else [])))
        parts = [f'<header>\n<h1>{self.title()}</h1>\n<p class="kind">{kind}</p>\n']
        if self.one:
            run = self.runs[0]
            if run.status() != "finished" and run.reason():
                parts.append(f'<p class="reason">{esc(run.reason())}</p>\n')
            parts.append(note_html(run.resume_text()))
        return "".join(parts) + self.figures(own) + "</header>\n"

    def figures(self, kinds):
        """The key figures: of one run side by side, of several as a table."""
        main = "miou map rmse persistence r2 top1".split()
        keys = [f"{split}_{name}" for name in main for split in SPLITS]
        pairs = [("val_loss", "train_loss"), ("without_setup_seconds", "total_seconds")]
        for pair in pairs + [("images_per_second",), ("peak_share",), ("peak_bytes",)]:
            keys += [key for key in pair if fact_known(FACT[key], self.runs)][:1]
        shown = [FACT[key] for key in keys if fact_known(FACT[key], self.runs)]
        groups = weight_groups(shown, self.runs)
        if self.one:
            run, parts = self.runs[0], []
            for facts, weights in groups:
                pairs = [(fact_name(fact, self.runs), fact.cell(run, run)) for fact in facts]
                tiles = [f"<div><dt>{esc(n)}</dt><dd>{esc(v)}</dd></div>\n" for n, v in pairs]
                parts.append(f"<div><dl>\n{''.join(tiles)}</dl>\n{note_html(weights[0])}</div>\n")
            return f'<div class="tiles">\n{"".join(parts)}</div>\n' if parts else ""

        def name_of(run):
            kind = DOT.join(map(esc, kinds[self.runs.index(run)]))
            return Html(f"{self.letter(run)}<b>{esc(run.name)}</b> <small>{kind}</small>")

        columns = [("run", "text", name_of)]
        for facts, weights in groups:
            for fact in facts:
                find = lambda run, fact=fact: fact.cell(run, self.runs[0])
                columns.append((fact_name(fact, self.runs), "as is", find))
            columns.append(("", "text", dict(zip(self.runs, weights)).get))
        return Sheet("Key figures", "figures", self.runs, columns).html()

    # -- charts

    def figure(self, name, chart, large=False):
        coarse = 1 + len(self.runs) // 8  # pages of many runs stay small
        width, height, enlarged, places = (600, 330, 1.6, 100) if large else (400, 220, 1.2, 60)
        named = [("dash" if s.dashed else "line", s.colour, s.name) for s in chart.series]
        if self.one:
            entries = [(f"{style} s{colour}", name) for style, colour, name in named]
        else:  # the letters of the runs, and one name for all curves of a style
            entries = [(f"line s{colour}", name.partition(" ")[0]) for _, colour, name in named]
            entries += [(f"{style} any", name.partition(" ")[2]) for style, _, name in named]
        entries = [entry for entry in dict.fromkeys(entries) if entry[1]]
        lines = [f'<span><i class="{style}"></i>{esc(words)}</span>\n' for style, words in entries]
        legend = f'<p class="legend">{"".join(lines)}</p>' if lines else ""
        unit = f" <small>{esc(chart.y_label)}</small>" if chart.y_label else ""
        drawing = Drawing(chart, name, width, height, enlarged, places // coarse, coarse)
        head = f"<figure><figcaption>{esc(chart.title)}{unit}</figcaption>\n{legend}"
        return head + drawing.svg() + "</figure>\n"

    def measure(self, measure):
        longest = max(known(run.last("elapsed_seconds"), 0) for run in self.runs)
        unit, unit_name = time_unit(longest) if measure.by_time else (1, "step")
        all_ranks = self.one and self.runs[0].number("world_size") > 1
        curves = measure.curves if all_ranks or measure not in SENSORS else measure.curves[:1]
        series = []
        for at, run in enumerate(self.runs):
            for second, (kind, column, name) in enumerate(curves):
                xs, ys = points(run, measure, kind, column, unit)
                if any(y == y and (y or not measure.from_zero) for y in ys):
                    place = CURVE_COLOURS[name] if self.one else second
                    colour, key = (place, "") if self.one else (at, letters(at))
                    shown = f"{key} {name if len(curves) > 1 else ''}".strip()
                    series.append(Series(xs, ys, shown, colour, place > 0))
        if not series:
            return ""
        title = measure.title.replace("Top-1", top1_name(self.runs).partition(" ")[0].capitalize())
        kind, step = self.runs[0].used()
        mark = step if self.one and measure.large and kind == "best" else NAN
        log, zero = "log" in measure.flags, measure.from_zero
        chart = Chart(title, series, unit_name, measure.unit, not measure.by_time, mark=mark)
        return self.figure(measure.name, chart._replace(y_log=log, y_zero=zero), measure.large)

    def curves(self):
        outputs = [key for run in self.runs for key in run.rows if key.startswith(OUTPUT)]
        measures = []
        for at, key in enumerate(list(dict.fromkeys(outputs))[:8]):
            curves = [(key, "rmse", "validation"), (key, "persistence_rmse", "persistence")]
            title = "RMSE of " + key[len(OUTPUT) :]
            measures.append(Measure(f"output-{at}", title, curves, "", "large"))
        measures += [measure for measure in MEASURES if measure.large]
        without = [run.name for run in self.runs if not run.metrics]
        why = f"No curves of {' and '.join(without)}: metrics.csv is missing or has no rows."
        return self.charts("large", measures) + note_html(why if without else "")

    def details(self):
        small = [m for m in MEASURES if not m.large and not (self.one and m.by_time)]
        return self.charts("charts", small)

    def charts(self, style, measures):
        charts = "".join(map(self.measure, measures))
        return f'<div class="{style}">\n{charts}</div>\n' if charts else ""

    # -- confusion matrices, misclassified images, planes

    def matrix(self, run):
        """A confusion matrix in a box; empty without one."""
        found = run.detailed()
        names = [text(get(c, "name")) or "?" for c in array(found["classes"])]
        rows = [array(row) for row in array(found["confusion_matrix"])]
        rows = [[known(value, 0.0) for value in row] for row in rows]
        count = len(names)
        if not count or len(rows) != count or any(len(row) != count for row in rows):
            return ""
        if count > 32:
            sheet = tables.sheet_confusions(names, rows)
            about = f"the {len(sheet.rows)} most frequent confusions of {count} classes."
        else:
            share = lambda row, c: known(ratio(rows[row][c], sum(rows[row])), 0.0)
            cell = lambda row, c: f'<b style="--v:{share(row, c):.2f}">{rows[row][c]:.0f}</b>'
            columns = [("", "text", names.__getitem__)]
            for c, name in enumerate(names):
                columns.append((name, "as is", lambda row, c=c: Html(cell(row, c))))
            sheet = Sheet("Confusion matrix", "confusion", range(count), columns)
            about = "true classes in rows, predictions in columns."
        note = f"Of the {SPLITS[found['split']].lower()} split and the "
        note = note_html(f"{note}{run.weights_text(found['step'])}: {about}")
        wide, title = " wide" * (10 < count <= 32), f"<h2>{sheet.title}</h2>\n" * self.one
        name = f"confusion-{letters(self.runs.index(run))}"
        return f'<div class="{wide}">{title}{note}<div id="{name}">{sheet.html()}</div></div>\n'

    def errors(self):
        """The matrix and pictures of the first run."""
        run, title = self.runs[0], "Most confident errors"
        note = ": class, prediction and its probability."
        errors = self.pictures(run.misclassified, title, note, "images", self.image)
        note = ", from left to right: input (if any), target, prediction, error. Grey: missing."
        planes = self.pictures(run.planes, "Samples", note, "planes", self.plane)
        return f'<div class="pair">\n{self.matrix(run)}{errors}{planes}</div>\n'

    def pictures(self, found, title, note, style, caption):
        """Pictures of misclassified.json or planes.json; `caption` returns name and HTML."""
        samples = [s for s in array(found.get("samples")) if BASE64.match(text(get(s, "png")))]
        if not samples:
            return ""
        split = "test" if found.get("split") == "test" else "val"
        evaluations = self.runs[0].evaluations(split)[-1:]
        weights = [f" and the {self.runs[0].weights_text(e['step'])}" for e in evaluations]
        parts = [f'<div class="{"wide" if style == "planes" else ""}"><h2>{title}</h2>\n']
        parts.append(note_html(f"Of the {SPLITS[split].lower()} split{''.join(weights)}{note}"))
        parts.append(f'<div class="{style}">\n')
        for sample in samples:
            name, shown = map(esc, caption(sample))
            picture = f'<img alt="{name}" title="{name}" src="data:image/png;base64,'
            parts.append(f'<div>{picture}{sample["png"]}"><p>{shown}</p></div>\n')
        return "".join(parts) + "</div></div>\n"

    def image(self, sample):
        classes = array(self.runs[0].detailed()["classes"])
        keys = (sample.get("class"), sample.get("predicted"))
        one, other = (esc(text(get(classes, f"{key}.name")) or "?") for key in keys)
        probability = show("share", num(sample.get("probability")))
        shown = f"<b>{one}</b><span>as {other}</span><span>{probability}</span>"
        return text(sample.get("name")), Html(shown)

    def plane(self, sample):
        error, low, high = (num(sample.get(key)) for key in ("error", "low", "high"))
        name = f"sample {num(sample.get('record')):.0f}, {text(sample.get('output')) or '?'}"
        bars = [(low, "values", high), (-error, "errors", error)]
        shown = "".join('<span>%.4g <i class="%s"></i> %.4g</span>' % bar for bar in bars)
        return name, Html(f"<b>{esc(name)}</b>{shown}")

    # -- sections, initially closed

    def summary(self):
        wide = {1: "", 2: " two"}.get(len(self.runs), " wide")
        names = [""] if self.one else list(map(self.letter, self.runs))
        sheets = [tables.sheet_facts(group, self.runs, names) for group in tables.FACT_TABLE]
        groups = "".join(f"<div>{sheet.html()}</div>\n" for sheet in sheets if sheet.rows)
        compared = "" if self.one else note_html(COMPARED)
        return f'{compared}<div class="groups{wide}">\n{groups}</div>\n'

    def guarded(self, name, write):
        """A part of the page. Values that cannot be shown are damage of the files."""
        try:
            return write()
        except DAMAGE as why:
            self.runs[0].missing.append(f"part {name} of the page: damaged values ({why})")
            return "<p>Not shown: the values are damaged.</p>\n"

    def write(self):
        parts = [self.guarded("head", self.head), "<main>\n"]
        parts.append(self.guarded("curves", self.curves))
        parts.append(self.guarded("errors", self.errors) if self.one else "")
        for name, title, write in [
            ("summary", "All figures", self.summary),
            ("details", "Learning rate, speed and waiting times", self.details),
            ("classes", "Quality by class and output", None),
            ("units", "Step time and memory", None),
            ("ranks", "Ranks", None),
            ("hardware", "Hardware over time", lambda: self.charts("charts", SENSORS)),
            ("decks", "Options and attempts", lambda: tables.sheet_options(self.runs).html()),
            ("trouble", "Warnings, errors and missing files", None),
        ]:
            shown = self.guarded(name, write) if write else ""
            shown += self.guarded(name, lambda name=name: self.sheets(name))
            count = sum(len(run.trouble) + len(run.missing) for run in self.runs)
            count = f"<small>{count}</small>" if name == "trouble" else ""
            head = f'<details id="{name}"><summary><h2>{title}</h2>{count}</summary>\n<div>\n'
            parts += [head, shown, "</div></details>\n"] if shown else []
        date = time.strftime("%Y-%m-%d %H:%M:%S %Z")
        program = esc(printed("--version").strip() or "report.py (version unknown)")
        parts.append(
            f"</main>\n<footer>Written {date} by {program} from the run folder"
            f"{'' if self.one else 's'}. docs/outputs.md explains the numbers.</footer>\n"
        )
        return document(self.title(), "".join(parts))


BASE64 = re.compile(r"[A-Za-z0-9+/]+=*$")  # text that can be part of an attribute
DAMAGE = (ArithmeticError, LookupError, TypeError, ValueError, AttributeError)


def document(title, body):
    """A whole page."""
    style = read_text(os.path.join(os.path.dirname(os.path.abspath(__file__)), "report.css"))
    style += "".join(f".s{at}{{color:#{colour}}}\n" for at, colour in enumerate(COLOURS))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{title}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        f"{body}</body>\n</html>\n"
    )


# ---- the log book: pages whose text between two marks is generated

BEGIN, END = "<!-- vittrain: begin", "<!-- vittrain: end"


def logbook_add(run, logbook):
    """Write the run's page. A run is known by its name and start, also if its folder is moved."""
    started = text(get(run.attempts, "0.started")) or "unknown"
    name = re.sub("[-<>]", "_", CONTROL.sub("_", run.name))
    mark = f"<!-- vittrain: run {name} of {started} -->"
    base = run.name.lstrip(".") or "run"
    base = "run" if base.lower() == "readme" else base[:200]
    os.makedirs(logbook, exist_ok=True)
    for number in range(1, 10000):
        path = os.path.join(logbook, f"{base}-{number}.md" if number > 1 else base + ".md")
        old = read_text(path) if os.path.exists(path) else ""
        if not old or mark in old:
            break
    before, begins, generated = old.rpartition(BEGIN)
    _, ends, after = generated.partition(END)
    if not begins or not ends:
        title = f"# {markdown(run.name)}\n\nNotes (text outside the marks is kept):"
        before, after = (old or title).rstrip("\n") + "\n\n", ""
    sheets = [tables.sheet_facts(group, [run], [run.name]) for group in tables.FACT_TABLE]
    sheets += [sheet(run) for section in tables.SHEETS.values() for sheet in section]
    sheets.append(tables.sheet_options([run]))
    page = f"Run folder: {markdown(run.path)}\n{''.join(sheet.markdown() for sheet in sheets)}"
    generated = f"{BEGIN}, generated -->\n{mark}\n\n{page}\n{END} -->\n"
    write_file(path, before + generated + after.partition("\n")[2])
    return path


# ---- the command


def find_lr_page(path):
    """The page with the curve of `vittrain find lr`. Losses above `most` are drawn at the top."""
    try:
        table = list(csv.DictReader(io.StringIO(read_text(path))))
        rates, losses, smooth = ([float(r[k]) for r in table] for k in ("rate", "loss", "smoothed"))
        lowest = smooth.index(min(smooth))
    except (OSError, csv.Error, KeyError, TypeError, ValueError) as why:
        line = "cannot read %s: %s; specify a run folder, or the table of vittrain find lr"
        raise Failure(5, line % (path, getattr(why, "strerror", None) or "not such a table"))
    most = max(losses[: lowest + 1] + smooth[: lowest + 1])
    series = [Series(rates, smooth, "smoothed"), Series(rates, losses, "loss", 1)]
    title = "Learning-rate range test"
    chart = Chart(title, series, "learning rate", x_whole=False, x_log=True, y_most=most)
    figure = Page([]).figure("find-lr", chart, True)
    return document(title, f'<main>\n<div class="large">\n{figure}</div>\n</main>\n')


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
    forms = ["html", *export.FORMATS]
    if form not in forms:
        raise Failure(2, "report.format=%s is not one of %s" % (form, ", ".join(forms)))
    if len(folders) == 1 and folders[0].endswith(".csv"):
        path = output or folders[0][:-4] + ".html"
        write_file(path, find_lr_page(folders[0]))
        print("report: " + path)
        return
    runs = [Run(folder) for folder in folders]
    path = output or (runs[0].file("report.html") if len(runs) == 1 else "report.html")
    write_file(path, Page(runs).write())
    print("report: " + path)
    if options["report.csv"]:
        write_file(options["report.csv"], tables.facts_csv(runs))
    for run in runs if form != "html" else ():
        export.FORMATS[form](run)
        print("report: files of report.format=%s are in %s" % (form, run.path))
    for run in runs:
        given = options["output.logbook"]
        logbook = run.option("output.logbook") if given is None else given
        if logbook and (given or os.path.isdir(logbook)):
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
        print(f"report: error: {why}", file=sys.stderr)
        return why.code
    except DAMAGE as why:
        print(f"report: error: damaged values in the run folder: {why!r}", file=sys.stderr)
        return 5
    return 0


if __name__ == "__main__":
    sys.exit(main())
