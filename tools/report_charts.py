# SPDX-License-Identifier: BSD-3-Clause
"""Charts as SVG."""

import bisect
import math
from typing import NamedTuple

from report_run import SENSOR_KINDS
from report_values import NAN, Row, esc, ratio, short, show

# Each colour has a contrast of 3:1 on white. Any two differ by at least 16 in CIELAB, also for
# protanopes, deuteranopes and tritanopes (Machado, Oliveira and Fernandes, IEEE TVCG 15, 2009).
COLOURS = "0067ac ce5400 22a868 a47b9b 60502c 043551 8200f9 343537".split()
LABEL, GRID = "#57606a", "#d5dbe1"
MOST = 1e30


class Series:
    """A curve."""

    def __init__(self, x, y, name="", colour=0, dashed=False):
        self.x, self.y, self.name, self.dashed = x, y, name, dashed
        self.colour = colour % len(COLOURS)
        self.stroke = "#" + COLOURS[self.colour]


class Chart(NamedTuple):
    title: str
    series: list
    x_label: str = "step"
    y_label: str = ""
    x_whole: bool = True
    x_log: bool = False
    y_log: bool = False
    y_zero: bool = False
    y_most: float = math.inf  # higher values are drawn at the top
    mark: float = NAN  # x of a line at the best weights


def drawable(value, log):
    return abs(value) <= MOST and (not log or value >= 1 / MOST)


def ticks_linear(least, most, wanted):
    rough = (most - least) / max(wanted, 1) * 0.8
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * next((f for f in (1, 2, 5) if rough / power <= f * 1.0001), 10)
    first = math.ceil(least / step - 1e-6)
    values = [i * step for i in range(first, first + 30) if i * step <= most + step * 1e-6]
    size, decimals = max(abs(least), abs(most)), max(-math.floor(math.log10(step) + 1e-9), 0)
    form = ".6g" if size >= 1e7 or size < 0.01 and step < 0.001 else f",.{decimals}f"
    return [(value, format(value + 0.0, form)) for value in values]


def ticks_log(least, most, wanted):
    decades, wanted = math.log10(most / least), max(wanted, 1)
    if decades < 0.7:
        return ticks_linear(least, most, wanted)
    factors = (1, 2, 5) if decades <= wanted / 3 + 0.5 else (1,)
    powers = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    powers = powers[:: math.ceil(max(decades / wanted, 1))]
    values = [factor * 10.0**power for power in powers for factor in factors]
    values = [value for value in values if least * 0.9999 <= value <= most * 1.0001]
    return [(value, f"{value:g}") for value in values]


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
        scale = math.log if self.log else float
        share = (scale(value) - scale(self.least)) / (scale(self.most) - scale(self.least))
        start, end = self.place
        return start + min(max(share, 0.0), 1.0) * (end - start)


class Drawing:
    """A chart as SVG, with values to point at. The page has its title and legend."""

    def __init__(self, chart, name, width, height, enlarged, places, coarse):
        self.chart, self.name, self.coarse, self.places = chart, name, coarse, places
        self.width, self.height, self.parts = width, height, []
        points = [p for s in chart.series for p in zip(s.x, s.y) if drawable(p[0], chart.x_log)]
        marks = [] if math.isnan(chart.mark) else [chart.mark]
        self.x = Axis(marks + [x for x, _ in points], chart.x_log, True)
        ys = [min(y, chart.y_most) for _, y in points if drawable(y, chart.y_log)]
        self.y = Axis(ys, chart.y_log, chart.y_zero, 0.05)
        letter, line = 0.62 * 12 * enlarged, 1.35 * 12 * enlarged
        self.top = 8 + line * len(marks)
        self.bottom = height - 8 - line * 2
        self.y.place = self.bottom, self.top
        self.y_ticks = self.y.ticks(max(30, 24 * enlarged))
        wide = lambda ticks: math.ceil(letter * max((len(t) for _, t in ticks), default=0))
        self.left, self.right = wide(self.y_ticks) + 10, width - 14
        self.x.place = self.left, self.right
        label = wide(self.x.ticks(62))
        self.x_ticks = self.x.ticks(max(50, 1.5 * label), chart.x_whole)
        self.right = width - max(14, label / 2 + 2)
        self.x.place = self.left, self.right

    def text(self, x, y, words, more=""):
        place = f'x="{x:.4g}" y="{y:.4g}"'
        self.parts.append(f'<text {place}{more} fill="{LABEL}">{esc(words)}</text>\n')

    def path(self, places, colour, more=""):
        self.parts.append(f'<path d="{places}" stroke="{colour}"{more}/>\n')

    def line(self, x0, y0, x1, y1, colour, more=""):
        self.path(f"M{x0:.4g} {y0:.4g} {x1:.4g} {y1:.4g}", colour, more)

    def thin_out(self, series):
        """At most four points per column of pixels: first, lowest, highest, last. None: a gap."""
        width = self.coarse * max(1, len(self.chart.series) / 4)
        columns, gap = {}, 0
        for index, (x, y) in enumerate(zip(series.x, series.y)):
            if drawable(x, self.chart.x_log) and drawable(y, self.chart.y_log):
                x, y = self.x.at(x), self.y.at(y)
                columns.setdefault((gap, x // width), []).append((y, index, x))
            else:
                gap = index
        points, gap = [], 0
        for (after, _), column in columns.items():
            points += [None] if after != gap and points else []
            kept = {min(column), max(column), column[0], column[-1]}
            points += [(x, y) for y, _, x in sorted(kept, key=lambda point: point[1])]
            gap = after
        return points

    def curve(self, series):
        points, path = self.thin_out(series), []
        for before, point, after in zip([None] + points, points, points[1:] + [None]):
            if point:
                path.append(("" if before else "M") + "%.4g %.4g" % point)
                path += [] if before or after else ["h0"]
        if not path:
            return
        later = self.chart.series[self.chart.series.index(series) + 1 :]
        wider = sum(other.dashed == series.dashed for other in later)  # shows below equal curves
        width = 1 if len(series.x) > 600 else 1.7 + 1.2 * min(wider, 2)
        dashes = ' stroke-dasharray="5 4" stroke-linecap="butt"' if series.dashed else ""
        self.path(" ".join(path), series.stroke, f' stroke-width="{width:.3g}"{dashes}')
        if len(series.x) <= 40:
            dots = " ".join("M%.4g %.4gh0" % point for point in points if point)
            self.path(dots, series.stroke, ' stroke-width="4.5"')

    def x_text(self, x):
        label = self.chart.x_label
        return f"{label} {show('count', x)}" if self.chart.x_whole else f"{short(x, 4)} {label}"

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
                shown = f"{show('number', series.y[at])} {self.chart.y_label}".rstrip()
            other = series.x[at] != x and self.chart.x_whole
            place = " at " + self.x_text(series.x[at]) if other else ""
            lines.append(f"{series.name or self.chart.title} {shown}{place}")
        return "\n".join(esc(line) for line in lines)

    def hover(self):
        """Rectangles around points of the longest curve; browsers show their titles."""
        xs = max((series.x for series in self.chart.series), key=len)
        count = min(len(xs), max(self.places // (1 + len(self.chart.series) // 8), 8))
        chosen = [xs[i * (len(xs) - 1) // max(count - 1, 1)] for i in range(count)]
        chosen = [x for x in chosen if drawable(x, self.chart.x_log)]
        edges = [(self.x.at(a) + self.x.at(b)) / 2 for a, b in zip(chosen, chosen[1:])]
        for x, start, end in zip(chosen, [self.left] + edges, edges + [self.right]):
            place = f'x="{start:.1f}" y="{self.top:.0f}" width="{max(end - start, 0):.1f}"'
            size = f'{place} height="{self.bottom - self.top:.0f}"'
            self.parts.append(f'<rect class="at" {size}><title>{self.values(x)}</title></rect>\n')

    def svg(self):
        chart, left, right, top, bottom = self.chart, self.left, self.right, self.top, self.bottom
        about = esc(f"{chart.title} by {chart.x_label}")
        self.parts.append(
            f'<svg class="chart" id="{self.name}" role="img" aria-label="{about}" '
            f'viewBox="0 0 {self.width} {self.height}" fill="none" font-size="12" '
            'font-family="system-ui,sans-serif" stroke-linejoin="round" stroke-linecap="round">\n'
        )
        for value, words in self.y_ticks:
            y = self.y.at(value)
            self.line(left, y, right, y, GRID)
            self.text(left - 6, y, words, ' text-anchor="end" dy=".35em"')
        for value, words in self.x_ticks:
            x = self.x.at(value)
            self.line(x, top, x, bottom, GRID)
            self.text(x, bottom + 4, words, ' text-anchor="middle" dy="1em"')
        self.line(left, bottom, right, bottom, LABEL)
        self.text(right, bottom + 4, chart.x_label, ' text-anchor="end" dy="2.3em"')
        if not math.isnan(chart.mark):
            x = self.x.at(chart.mark)
            self.line(x, top, x, bottom, LABEL, ' stroke-dasharray="2 3"')
            anchor = "end" if x > (left + right) / 2 else "start"
            self.text(x, top - 5, "best weights", f' text-anchor="{anchor}"')  # above all curves
        for series in sorted(chart.series, key=lambda series: series.dashed):
            self.curve(series)
        if any(series.x for series in chart.series):
            self.hover()
        else:
            self.text((left + right) / 2, (top + bottom) / 2, "no data", ' text-anchor="middle"')
        return "".join(self.parts) + "</svg>"


# ---- curves of a run


class Measure(NamedTuple):
    """A chart of columns of metrics.csv and monitor.csv."""

    name: str
    title: str
    curves: list  # kind of rows, column, name of the curve
    unit: str = ""
    flags: str = ""  # large; log, zero: the y axis

    large = property(lambda self: "large" in self.flags)
    from_zero = property(lambda self: "zero" in self.flags)
    by_time = property(lambda self: self.name.endswith("-time"))


trained = lambda column: [("train", column, "training")]
evaluated = lambda column: trained(column) + [("val", column, "validation")]
sensed = lambda column: [(kind, column, kind) for kind in SENSOR_KINDS]
# Curves of one run have the same colour in all charts.
CURVE_COLOURS = dict(training=0, validation=1, persistence=2, mean=0, lowest=1, highest=2)
STEP = "% of step time"
WAITING = "exposed_comm_seconds"
SCALES = {"": 1, "MiB": 2**-20, "GiB": 2**-30, "%": 100, STEP: 100}
MEASURES = [
    Measure("miou-steps", "Mean IoU", evaluated("miou"), "%", "large"),
    Measure("map-steps", "mAP", evaluated("map"), "%", "large"),
    Measure("loss-steps", "Loss", evaluated("loss"), "", "large"),
    Measure("accuracy-steps", "Top-1 accuracy", evaluated("top1"), "%", "large"),
    Measure("rate-steps", "Learning rate", trained("lr"), "", "zero"),
    Measure("gradient-steps", "Gradient norm", trained("grad_norm"), "", "log"),
    Measure("speed-steps", "Images/s", trained("images_per_second"), "", "zero"),
    Measure("peak-steps", "MFU", trained("peak_share"), "%", "zero"),
    Measure("data-steps", "Waiting for data", trained("data_seconds"), STEP, "zero"),
    Measure("waiting-steps", "Waiting for communication", trained(WAITING), STEP, "zero"),
    Measure("loss-time", "Loss over time", evaluated("loss")),
    Measure("accuracy-time", "Top-1 accuracy over time", evaluated("top1"), "%"),
]
SENSORS = [
    Measure("busy-time", "GPU utilization", sensed("gpu_busy"), "%", "zero"),
    Measure("power-time", "GPU power", sensed("gpu_power"), "W", "zero"),
    Measure("temperature-time", "GPU temperature", sensed("gpu_temperature"), "\u00b0C"),
    Measure("memory-time", "GPU memory in use", sensed("gpu_memory_used_bytes"), "GiB", "zero"),
    Measure("cores-time", "CPU utilization of the node", sensed("cores_busy"), "%", "zero"),
    Measure("process-time", "CPU cores used by a rank", sensed("process_cores"), "cores", "zero"),
    Measure("resident-time", "Memory of a rank", sensed("resident_bytes"), "MiB", "zero"),
]


def time_unit(seconds):
    if seconds < 300:
        return 1, "seconds"
    return (60, "minutes") if seconds < 4 * 3600 else (3600, "hours")


def points(run, measure, kind, column, unit):
    """A curve. Rows that cover few steps, as at an epoch's end, are left out, except the last."""
    rows = [row for row in run.rows.get(kind, []) if column in row]
    few = [row["count"] < 0.75 * before["count"] for before, row in zip([Row()] + rows, rows)]
    rows = [row for row, left_out in zip(rows, few[:-1] + [False]) if not left_out]
    ys = [row[column] for row in rows]
    if measure.unit == STEP:
        ys = [ratio(y, row["step_seconds"]) for y, row in zip(ys, rows)]
        ys = [NAN if y > 1 else y for y in ys]  # an error of measurement
    at = "elapsed_seconds" if measure.by_time else "step"
    return [row[at] / unit for row in rows], [y * SCALES.get(measure.unit, 1) for y in ys]
