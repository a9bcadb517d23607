# SPDX-License-Identifier: BSD-3-Clause
"""Values of a run folder that may be missing or damaged, and how a page shows them."""

import calendar
import html
import math
import re
import time

NAN = float("nan")


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
    return short(value, 3, {"ratio": "x", "W": " W"}.get(kind, ""))


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


class Html(str):
    """Text that is HTML already."""


def esc(value):
    return value if isinstance(value, Html) else html.escape(CONTROL.sub("\ufffd", str(value)))


def letters(run):
    """A to Z, AA to AZ, BA, ..."""
    return (letters(run // 26 - 1) if run >= 26 else "") + chr(65 + run % 26)
