# SPDX-License-Identifier: BSD-3-Clause
"""Values of a run folder that may be missing or damaged, and how a page shows them."""

import datetime
import html
import math
import re
import time

NAN = float("nan")


def num(value):
    """Return a number, NaN if the value is none."""
    try:
        return NAN if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return NAN


def known(*values):
    """The first number that is one."""
    return next((value for value in map(num, values) if not math.isnan(value)), NAN)


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


class Row(dict):
    """A row of a table or a JSON object. A value that is missing, empty or null is NaN."""

    def __missing__(self, key):
        return NAN


def record(value):
    """A JSON object without its nulls."""
    return Row((key, item) for key, item in value.items() if item is not None)


def records(value):
    """The JSON objects in a list."""
    return [record(item) for item in array(value) if isinstance(item, dict)]


def mean(values):
    values = [value for value in map(num, values) if not math.isnan(value)]
    return sum(values) / len(values) if values else NAN


def highest(values):
    return max((value for value in map(num, values) if not math.isnan(value)), default=NAN)


def ratio(one, other):
    return one / other if other else NAN


# ---- formats


def short(value, digits, unit=""):
    """Three or four significant digits; the integer part is not rounded."""
    size = abs(value)
    if size and (size < 0.001 or size >= 1e7):
        return f"{value:.{digits}g}{unit}"
    decimals = sum(size < 10**power for power in range(digits - 3, digits))
    return f"{value:.{decimals}f}{unit}"


def seconds_text(value):
    if abs(value) < 0.9995:
        return short(value * 1000, 3, " ms") if value else "0 s"
    if abs(value) < 99.95:
        return short(value, 3, " s")
    minutes, seconds = divmod(int(value + 0.5), 60)
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest:02d} min" if hours else f"{minutes} min {seconds:02d} s"


def scaled(value, step, units):
    unit, *larger = units.split()
    if abs(value) < step - 0.5:
        return f"{value:.0f} {unit}"
    while larger and abs(value) >= step - 0.5:
        value, unit = value / step, larger.pop(0)
    return short(value, 3, " " + unit)


KINDS = {
    "share": lambda value: f"{100 * value:.2f} %",
    "seconds": seconds_text,
    "bytes": lambda value: scaled(value, 1024, "B KiB MiB GiB TiB PiB"),
    "flops": lambda value: scaled(value, 1000, "flop kflop Mflop Gflop Tflop"),
    "ratio": lambda value: short(value, 3, "x"),
    "W": lambda value: short(value, 3, " W"),
}


def show(kind, value):
    """Format a value of KINDS, or a count, rate or number; NaN is an empty text."""
    if isinstance(value, str):
        return value
    if not math.isfinite(value):
        return "" if math.isnan(value) else str(value)
    if kind in KINDS:
        return KINDS[kind](value)
    if kind == "count" or 999.5 <= abs(value) < 1e7:
        return f"{value + 0.0:,.0f}"
    return short(value, 4 if kind == "number" else 3)


def stamp_seconds(stamp):
    """Seconds since 1970 of a time stamp such as 2026-11-21T04:05:06.789Z."""
    try:
        found = datetime.datetime.strptime(text(stamp), "%Y-%m-%dT%H:%M:%S.%fZ")
        return found.replace(tzinfo=datetime.timezone.utc).timestamp()
    except (ValueError, OverflowError):
        return NAN


def stamp_text(stamp):
    seconds = stamp_seconds(stamp)
    if math.isnan(seconds):
        return text(stamp)
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(seconds))


CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


class Html(str):
    """Text that is HTML already."""


def esc(value):
    return value if isinstance(value, Html) else html.escape(CONTROL.sub("\ufffd", str(value)))


def letters(run):
    """A to Z, AA to AZ, BA, ..."""
    return (letters(run // 26 - 1) if run >= 26 else "") + chr(65 + run % 26)
