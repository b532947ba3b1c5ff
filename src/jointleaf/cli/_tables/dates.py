"""Dates and times, and the numbers that a model sees of them.

A column of times becomes up to six columns of numbers:

- ``day number``: days since 1970-01-01, with the time of day as fraction: trends;
- ``year``, ``month`` (1-12), ``day`` (1-31), ``weekday`` (0 is Monday), ``hour`` (0-23): seasons.

Those that have a single value in training are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timezone

import numpy as np
from numpy.typing import NDArray

__all__ = ["PARTS", "date_parts", "detect_format", "parse_dates"]

PARTS = ("day number", "year", "month", "day", "weekday", "hour")

_ISO = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?")
# In this order: where several match all values, the first is taken.
_DAYS = (
    "%Y/%m/%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%d %b %Y",
    "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%d-%b-%Y", "%d.%m.%y", "%d/%m/%y", "%m/%d/%y",
)  # fmt: skip
_TIMES = ("", " %H:%M", " %H:%M:%S", " %I:%M %p")
_FORMATS = ("iso", "%Y-%m", *(day + time for day in _DAYS for time in _TIMES))
_SAMPLE = 1000
_EPOCH = datetime(1970, 1, 1)


def detect_format(texts: list[str]) -> str | None:
    """Detect how dates are written: "iso", a format of strptime, or None for other text.

    Every one of up to 1000 different values must match. Where day and month are ambiguous, the
    day comes first.
    """
    sample = list(dict.fromkeys(texts))[:_SAMPLE]
    if not sample or not any(mark.isdigit() for mark in sample[0]):
        return None
    for form in _FORMATS:
        parse = _parser(form)
        if all(parse(text) is not None for text in sample):
            return form
    return None


def parse_dates(values: NDArray, form: str) -> NDArray[np.float64]:
    """Return seconds since 1970-01-01 (UTC) of texts or datetime64 (n,), NaN for other values.

    Parameters
    ----------
    values : array (n,)
    form : str
        Of `detect_format`, or "time" for a column of datetime64.
    """
    if values.dtype.kind == "M":
        micros = values.astype("datetime64[us]")
        return np.where(np.isnat(micros), np.nan, micros.astype(np.int64) / 1e6)
    parse = _parser("iso" if form == "time" else form)
    seconds: dict[str | None, float] = {None: np.nan}
    for text in dict.fromkeys(values.tolist()):
        if text is not None:
            time = parse(text)
            seconds[text] = np.nan if time is None else (time - _EPOCH).total_seconds()
    return np.array([seconds[text] for text in values.tolist()], dtype=float)


def date_parts(seconds: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """Return all of `PARTS` of times in seconds since 1970-01-01 (n,), NaN where missing."""
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


def _parser(form: str) -> Callable[[str], datetime | None]:
    """Return a function from text to time, in UTC and without zone, or None."""
    if form == "iso":
        return _parse_iso

    def parse(text: str) -> datetime | None:
        try:
            return datetime.strptime(text, form)
        except ValueError:
            return None

    return parse


def _parse_iso(text: str) -> datetime | None:
    if not _ISO.fullmatch(text):
        return None
    try:
        time = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return time if time.tzinfo is None else time.astimezone(timezone.utc).replace(tzinfo=None)
