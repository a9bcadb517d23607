# SPDX-License-Identifier: BSD-3-Clause
"""Charts as SVG."""

import bisect
import math
from typing import NamedTuple

from report_values import NAN, esc, known, ratio, short, show
from report_run import write_file

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


# ---- curves of a run


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
    """The curve of a split. Rows of training with few images share a point with their
    neighbours."""
    values, filled = measure_values(run, measure), run.metrics.texts(measure.column)
    at = run.metrics.numbers("elapsed_seconds" if measure.by_time else "step")
    extents = run.extents() if split == "train" else {}
    least = 0.75 * max((extent[2] for extent in extents.values() if extent[2] > 0), default=0)
    groups, images = [[]], 0.0
    for row in run.rows[split]:
        if filled[row] == "" or (math.isnan(values[row]) and measure.kind == "share"):
            continue
        groups[-1].append(row)
        images += known(extents.get(row, (NAN,) * 3)[2], 0.0)
        if split != "train" or images >= least:
            groups.append([])
            images = 0.0
    last = groups.pop()
    if last:
        groups.append((groups.pop() if groups else []) + last)

    def mean_of(rows):
        by = 1 if measure.mean == "seconds" else 2
        weights = [extents.get(row, (NAN,) * 3)[by] for row in rows]
        if measure.mean == "last" or not all(weight > 0 for weight in weights):
            return values[rows[-1]]
        return sum(w * values[row] for w, row in zip(weights, rows)) / sum(weights)

    scale = 100 if measure.kind == "share" else 1
    return [at[rows[-1]] / unit for rows in groups], [mean_of(rows) * scale for rows in groups]
