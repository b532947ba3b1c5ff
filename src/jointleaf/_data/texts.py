"""Values written as text: numbers, yes and no, dates, and the numbers a model sees of dates.

Numbers are written 1.5, 1,5, 1,234.5, 1.234,5, $5 or 5 %. A column of times becomes up to six
columns of numbers, of which those with a single value in training are left out:

- ``day number``: days since 1970-01-01, with the time of day as fraction: trends;
- ``year``, ``month`` (1-12), ``day`` (1-31), ``weekday`` (0 is Monday), ``hour`` (0-23): seasons.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable
from datetime import datetime, timezone

import numpy as np
from numpy.typing import NDArray


def present(values: NDArray) -> list[str]:
    """Return the texts of an array (n,) that are not None."""
    return [value for value in values.tolist() if value is not None]


# -- numbers -------------------------------------------------------------------------------------

_BOOLEANS = dict.fromkeys(("true", "yes", "t", "y"), 1.0)
_BOOLEANS |= dict.fromkeys(("false", "no", "f", "n"), 0.0)
_CURRENCY = r"(?:[$€£¥₹₽₩₺₴₦₫฿¢]|EUR|USD|GBP|CHF)"
_MARKED = re.compile(
    rf"(?P<sign>[+-]?)\s*(?:{_CURRENCY}\s*)?(?P<number>[+-]?[.,]?\d[\d.,]*(?:[eE][+-]?\d+)?)"
    rf"\s*(?:{_CURRENCY}|%)?"
)
_SIGN = re.compile(_CURRENCY)
_PATTERNS = {
    "comma": re.compile(r"[+-]?\d*(,\d+)?([eE][+-]?\d+)?"),
    "thousands": re.compile(r"[+-]?\d{1,3}(,\d{3})*(\.\d*)?|[+-]?\d*(\.\d*)?"),
    "points": re.compile(r"[+-]?\d{1,3}(\.\d{3})*(,\d*)?|[+-]?\d*(,\d*)?"),
}
# In groups of three digits throughout, as whole numbers with thousands are.
_GROUPS = {mark: re.compile(rf"[+-]?[1-9]\d{{0,2}}([{mark}]\d{{3}})+") for mark in ",."}
#: How numbers may be written; see `detect_notation`.
NOTATIONS = tuple(name + mark for name in ("plain", *_PATTERNS) for mark in ("", "%"))
_SMALL = re.compile(r"[+-]?\d{1,3}")
# Digits with marks between them, and perhaps a sign before and a short unit behind.
_UNIT = r"[^\W\d]{1,3}[23]?"
_NUMBER_LIKE = re.compile(rf"[^\w\s]{{0,2}}\s*\d[\d.,'’\s]*(?:{_UNIT}(?:/{_UNIT})?)?[^\w\s]{{0,2}}")
_MOST_BOOLEANS = 3 * len(_BOOLEANS)  # in small, large and mixed letters
_MOST_OTHERS = 0.05  # share of values that may be something else, and then count as missing


def detect_notation(values: NDArray) -> str | None:
    """Detect how numbers are written: the notation, or None if too many values are no numbers.

    It is "plain" (1.5), "comma" (1,5), "thousands" (1,234.5) or "points" (1.234,5), whichever reads
    most values, followed by "%" where most have that sign. Currencies are allowed everywhere.
    """
    texts = present(values)
    if not texts:
        return None
    if are_floats(texts):
        return "plain"
    best, n_others = _best_notation(texts)
    return best if best and n_others <= _MOST_OTHERS * len(texts) else None


def _best_notation(texts: list[str]) -> tuple[str, int]:
    """Return the notation that reads most texts, "" if none reads any, and how many it does not."""
    percent = "%" if 2 * sum(text.endswith("%") for text in texts) > len(texts) else ""
    best, fewest = "", len(texts)
    for notation in _likely_notations(texts):
        others = sum(math.isnan(_parse(text, notation + percent)) for text in texts)
        if others < fewest:
            best, fewest = notation + percent, others
        if not others:
            break
    return best, fewest


def _likely_notations(texts: list[str]) -> list[str]:
    """Return the notations that the marks in the values allow, the likelier ones first."""
    bare = [_bare(text) for text in texts if _MARKED.fullmatch(text)]
    commas, points = ([v for v in bare if mark in v] for mark in ",.")
    priced = any(_SIGN.search(text) for text in texts)
    if not commas:
        several = any(v.count(".") > 1 for v in points)
        # Prices in euros have no three decimals: € 1.234 has thousands. Fuel in dollars has.
        euros = any("€" in v or "EUR" in v for v in texts) and _grouped(points, ".")
        return ["points", "plain"] if several or euros else ["plain"]
    # 1,234 alone may be either. Thousands have a point or several commas somewhere, or small
    # numbers without any comma beside them.
    small = [v for v in bare if "," not in v]
    both = any("." in v or v.count(",") > 1 for v in commas) or bool(points)
    are_small = bool(small) and all(map(_SMALL.fullmatch, small))
    alone = _grouped(commas, ",") and (priced or are_small)
    order = ["thousands", "comma"] if both or alone else ["comma", "thousands"]
    return ["plain", *order, "points"]


def _grouped(bare: list[str], mark: str) -> bool:
    return bool(bare) and all(map(_GROUPS[mark].fullmatch, bare))


def notation_remarks(values: NDArray, notation: str) -> list[str]:
    """Return how numbers (n,) of text are read, where that is not evident."""
    if notation == "plain" and are_floats(present(values)):
        return []
    read = [v for v in present(values) if not math.isnan(_parse(v, notation))]
    remarks = []
    if notation.endswith("%"):
        example = next(v for v in read if "%" in v)
        remarks.append(f"percent: {example!r} is {_parse(example, notation):g}")
        bare = without_percent(values, notation)
        if bare:
            remarks.append(f"{len(bare):,} without the sign, such as {bare[0]!r}, are percent too")
    signs = sorted({match[0] for v in read if (match := _SIGN.search(v))})
    if len(signs) == 1:
        remarks.append(f"the sign {signs[0]} is left out")
    elif signs:
        remarks.append(f"several currencies, {' and '.join(signs)}, read as if they were one")
    marked = [v for v in read if "," in v or "." in v]
    bare = [_bare(v) for v in marked]
    if any(_grouped(bare, mark) and all(v.count(mark) == 1 for v in bare) for mark in ",."):
        remarks.append(f"{marked[0]!r} is {_parse(marked[0], notation):g}")  # might be otherwise
    return remarks


def without_percent(values: NDArray, notation: str) -> list[str]:
    """Return the numbers without a percent sign in a column whose numbers have one."""
    if not notation.endswith("%"):
        return []
    texts = present(values)
    return [v for v in texts if "%" not in v and not math.isnan(_parse(v, notation))]


def look_like_numbers(values: NDArray) -> bool:
    """Whether most texts look like numbers, with unknown marks or units."""
    texts = present(values)
    return 2 * sum(_NUMBER_LIKE.fullmatch(text) is not None for text in texts) > len(texts)


#: How the remark on such texts begins.
LIKE_NUMBERS = "looks like numbers"


def number_like_remark(values: NDArray) -> str:
    """Return what keeps texts (n,) that look like numbers from being read, and the remedy."""
    texts = present(values)
    notation, _ = _best_notation(texts)
    if notation:
        unread = next((v for v in texts if math.isnan(_parse(v, notation))), texts[0])
    else:
        unread = next(filter(_NUMBER_LIKE.fullmatch, texts), texts[0])
    has_digit = any(mark.isdigit() for mark in unread)
    remedy = (
        "write the numbers without units and spaces"
        if has_digit
        else "if it means missing, name it with --na (missing_values= in Python)"
    )
    return f"{LIKE_NUMBERS}, but {unread!r} cannot be read as one: {remedy}"


def parse_numbers(values: NDArray, notation: str) -> NDArray[np.float64]:
    """Return floats of texts (n,), NaN for None and what is not a finite number."""
    if notation == "plain":
        with contextlib.suppress(ValueError):  # the usual case, in one go
            numbers = np.array([np.nan if v is None else v for v in values.tolist()], dtype=float)
            return np.where(np.isfinite(numbers), numbers, np.nan)
    return np.array([_parse(v, notation) for v in values.tolist()], dtype=float)


def parse_booleans(values: NDArray) -> NDArray[np.float64] | None:
    """Return 1 and 0 of texts (n,) for true and false, NaN for None; None for other texts."""
    different = set(values.tolist()) - {None}
    if len(different) > _MOST_BOOLEANS:
        return None
    numbers = {v: _BOOLEANS.get(v.lower()) for v in different}
    if not numbers or None in numbers.values():
        return None
    return np.array([np.nan if v is None else numbers[v] for v in values.tolist()], dtype=float)


def parse_boolean(text: str) -> float | None:
    """Return 1 or 0 of a text in a column of booleans, where 1 and 0 are accepted too, or None."""
    if are_floats([text]) and float(text) in (0.0, 1.0):
        return float(text)
    return _BOOLEANS.get(text.lower())


def are_floats(texts: list[str]) -> bool:
    """Whether all texts are plain finite numbers: the usual case, detected quickly."""
    try:
        return all(map(math.isfinite, map(float, texts)))
    except ValueError:
        return False


def _bare(value: str) -> str:
    """Return a number without signs of currency and percent around it, other texts unchanged."""
    match = _MARKED.fullmatch(value)
    return value if match is None else match["sign"] + match["number"]


def _parse(value: str | None, notation: str) -> float:
    # A percent sign where training had none, or in the middle, is not a number of this column.
    if value is None or ("%" in value and not notation.endswith("%")):
        return math.nan
    value, notation = _bare(value), notation.removesuffix("%")
    pattern = _PATTERNS.get(notation)
    if pattern is not None:
        decimal, group = (".", ",") if notation == "thousands" else (",", ".")
        is_fine = pattern.fullmatch(value) is not None
        value = value.replace(group, "").replace(decimal, ".") if is_fine else ""
    try:
        number = float(value)
    except ValueError:
        return math.nan
    return number if math.isfinite(number) else math.nan


# -- dates ---------------------------------------------------------------------------------------

DATE_PARTS = ("day number", "year", "month", "day", "weekday", "hour")

_ISO = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?")
# In this order: where several match all values, the first is taken.
_DAYS = (
    "%Y/%m/%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%d %b %Y",
    "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%b %d %Y", "%B %d %Y", "%d-%b-%Y", "%d-%b-%y",
    "%d.%m.%y", "%d/%m/%y", "%m/%d/%y",
)  # fmt: skip
_MONTHS = ("%Y-%m", "%b %Y", "%B %Y")
_TIMES = ("", " %H:%M", " %H:%M:%S", " %I:%M %p")
#: How dates may be written.
DATE_FORMATS = ("iso", *_MONTHS, *(day + time for day in _DAYS for time in _TIMES))
_MONTH_NAME = re.compile(
    r"(?<![^\W\d_])(jan(uary)?|feb(ruary)?|mar(ch)?|apr(il)?|may|june?|july?|aug(ust)?"
    r"|sept?(ember)?|oct(ober)?|nov(ember)?|dec(ember)?)(?![^\W\d_])",
    re.IGNORECASE,
)
_DAY_LIKE = re.compile(r"\d{4}([-/.])\d\d?\1\d\d?(?!\d)|(?<!\d)\d\d?([-/.])\d\d?\2\d{4}")
_TIME_LIKE = re.compile(r"(?<!\d)\d\d?:\d\d(?!\d)")
_SAMPLE = 1000
_FEWEST_READ = 6  # texts, of which half may be no dates before a form is given up
#: Forms that cannot be mistaken for another, in which values are read whatever their column's is.
_YEAR_FIRST = ("iso", *("%Y/%m/%d" + time for time in _TIMES))
_EPOCH = datetime(1970, 1, 1)
_FEWEST_DAYS = 5
_MILLISECONDS_2100 = 4_102_444_800_000


def detect_format(texts: list[str]) -> str | None:
    """Detect how dates are written: "iso", a format of strptime, or None for other text.

    It is the first in which all of up to 1000 different values are written (the day comes before
    the month where either may), else that which reads most, if these are 95 % at least.
    """
    sample = list(dict.fromkeys(texts))[:_SAMPLE]
    most = int(_MOST_OTHERS * len(sample))
    if sum(not any(map(str.isdigit, text)) for text in sample) > most:
        return None
    strict = (f for f in DATE_FORMATS if _count_unread(sample, f, 0, _parse_date) == 0)
    form = next(strict, None)
    if form is not None or not sample:
        return form
    return next(iter(_forms_by_unread(sample, most)), None)


def _forms_by_unread(texts: list[str], most: int) -> list[str]:
    """Return the forms that at most so many texts are not in, those that read most first."""
    counts = {form: _count_unread(texts, form, most, read_date) for form in DATE_FORMATS}
    forms = [form for form, n_unread in counts.items() if n_unread <= most]
    n = len(texts)  # some forms read what is written in others
    return sorted(forms, key=lambda f: (counts[f], _count_unread(texts, f, n, _parse_date)))


def _count_unread(texts: list[str], form: str, most: int, read: Callable) -> int:
    """Return how many texts are no dates of a form, or any larger number than `most`."""
    n_unread = 0
    for n_read, text in enumerate(texts):
        n_unread += read(text, form) is None
        if n_unread > most or 2 * n_unread > n_read + _FEWEST_READ:
            return max(n_unread, most + 1)
    return n_unread


#: What remarks on such texts have in common.
LIKE_DATES = "in a form that is not read"


def date_like_remarks(texts: list[str]) -> list[str]:
    """Return at most one remark, on texts of which most look like dates or times."""
    sample = texts[:_SAMPLE]
    n_days = sum(map(_is_day_like, sample))
    n_times = sum(_TIME_LIKE.search(text) is not None for text in sample)
    if 2 * n_days > len(sample):
        return [f"may hold dates {LIKE_DATES}{_unread_date(sample)}: write them as 2003-09-19"]
    if 2 * n_times > len(sample):
        remedy = "write dates as 2003-09-19 14:30, times alone as numbers"
        return [f"may hold times {LIKE_DATES}: {remedy}"]
    return []


def _unread_date(texts: list[str]) -> str:
    """Return the form in which most texts are dates, and one that is not; "" if there is none."""
    forms = _forms_by_unread(texts, len(texts) // 2)
    if not forms:
        return ""
    form = forms[0]
    unread = next(text for text in texts if read_date(text, form) is None)
    return f" (most are {form_in_words(form)}, {unread!r} is not)"


def looks_like_days(numbers: NDArray[np.float64]) -> str:
    """Return what days whole numbers (n,) seem to be; "" if they do not seem to be any.

    Days are of the years 1900 to 2100, at least five different ones.
    """
    if len(np.unique(numbers[:_SAMPLE])) < _FEWEST_DAYS or (numbers % 1 != 0).any():
        return ""
    low, high = numbers.min(), numbers.max()
    if 0 < low <= high < _MILLISECONDS_2100 and (numbers % 86_400_000 == 0).all():
        return "days in milliseconds since 1970"
    if not 19_000_101 <= low <= high <= 21_001_231:
        return ""
    days = {f"{number:.0f}" for number in numbers[:_SAMPLE].tolist()}
    return "days without marks" if all(_parse_date(day, "%Y%m%d") for day in days) else ""


def _is_day_like(text: str) -> bool:
    has_month = _MONTH_NAME.search(text) and any(mark.isdigit() for mark in text)
    return bool(has_month or _DAY_LIKE.search(text))


def parse_dates(values: NDArray, form: str) -> NDArray[np.float64]:
    """Return seconds since 1970-01-01 (UTC) of texts or datetime64 (n,), NaN for other values.

    The form is that of `detect_format`, or "time" for a column of datetime64.
    """
    if values.dtype.kind == "M":
        micros = values.astype("datetime64[us]")
        return np.where(np.isnat(micros), np.nan, micros.astype(np.int64) / 1e6)
    form = "iso" if form == "time" else form
    times = {text: read_date(text, form) for text in set(present(values))}
    seconds = {text: (time - _EPOCH).total_seconds() for text, time in times.items() if time}
    return np.array([seconds.get(text, np.nan) for text in values.tolist()], dtype=float)


def from_days(days: NDArray[np.float64]) -> NDArray[np.datetime64]:
    """Return days since 1970-01-01 as times, to the second."""
    return np.round(days * 86400.0).astype("datetime64[s]")


def as_days(times: NDArray) -> NDArray[np.float64]:
    """Return times as days since 1970-01-01; numbers as they are."""
    is_time = times.dtype.kind == "M"
    return times.astype("datetime64[s]").astype(np.float64) / 86400.0 if is_time else times


def date_parts(seconds: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """Return all of `DATE_PARTS` of times in seconds since 1970-01-01 (n,), NaN where missing."""
    missing = np.isnan(seconds)
    times = np.where(missing, 0.0, seconds).astype("datetime64[s]")
    days, months = times.astype("datetime64[D]"), times.astype("datetime64[M]")
    number = days.astype(np.int64)
    parts = {
        "day number": np.where(missing, 0.0, seconds) / 86400.0,
        "year": times.astype("datetime64[Y]").astype(np.int64) + 1970,
        "month": months.astype(np.int64) % 12 + 1,
        "day": number - months.astype("datetime64[D]").astype(np.int64) + 1,
        "weekday": (number + 3) % 7,  # 1970-01-01 was a Thursday
        "hour": (times - days).astype(np.int64) // 3600,
    }
    return {name: np.where(missing, np.nan, part.astype(float)) for name, part in parts.items()}


def read_date(text: str, form: str) -> datetime | None:
    """Return the time of a text in a column of dates, also where the year comes first; or None."""
    times = (_parse_date(text, f) for f in (form, *_YEAR_FIRST))
    return next(filter(None, times), None)


def form_in_words(form: str) -> str:
    """Return how dates of a form are written, such as day.month.year; "" for a column of times."""
    words = {
        "Y": "year", "y": "year", "m": "month", "b": "month", "B": "month", "d": "day",
        "H": "hour", "I": "hour", "M": "minute", "S": "second", "p": "am/pm",
    }  # fmt: skip
    known = {"iso": "year-month-day", "time": ""}
    return known[form] if form in known else re.sub("%(.)", lambda mark: words[mark[1]], form)


def _parse_date(text: str, form: str) -> datetime | None:
    """Return a time in UTC and without zone, or None."""
    if form == "iso" and not _ISO.fullmatch(text):
        return None
    try:
        if form != "iso":
            return datetime.strptime(text, form)
        time = datetime.fromisoformat(text.replace("Z", "+00:00"))
        return time if time.tzinfo is None else time.astimezone(timezone.utc).replace(tzinfo=None)
    except (ValueError, OverflowError):  # of the year 0 or 10000 in UTC
        return None
