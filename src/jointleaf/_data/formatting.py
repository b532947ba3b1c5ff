"""Numbers and dates as people read them, the same in texts, pictures and reports."""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta

_LEAST_OF_SUM = 1e-5


def number(value: float, digits: int = 4) -> str:
    """Format a number: a few digits, with commas between thousands from 10,000 on."""
    if value is None or not math.isfinite(value):
        return "-"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}" if abs(value) >= 10_000 else f"{int(value)}"
    size = abs(value)
    if size >= 1e6 or size < 1e-4:
        return f"{value:.{digits - 1}g}"
    places = max(0, digits - 1 - math.floor(math.log10(size)))
    return f"{value:,.{places}f}" if size >= 10_000 else f"{value:.{places}f}"


def term(value: float, largest: float) -> str:
    """Format a term of a sum: 0 where its digits are far behind those of the largest term."""
    return number(0.0 if abs(value) < _LEAST_OF_SUM * largest else value)


def short_number(value: float, digits: int = 4) -> str:
    """Format a number without zeros at its end, and without a power of ten below a billion."""
    size = abs(value)
    if not 10 ** min(digits, 4) - 0.5 <= size < 1e9:  # what rounds to more digits is whole
        return f"{value:.{digits}g}"
    return f"{value:,.0f}" if size >= 9_999.5 else f"{value:.0f}"


def signed(text: str) -> str:
    """Return the text of a number with its sign, also where it is positive."""
    return text if text.startswith(("-", "+")) else f"+{text}"


def natural_key(name: str) -> list[float | str]:
    """Return what sorts names with numbers in them by these: v2 comes before v10."""
    parts: list[float | str] = [*re.split(r"(\d+(?:\.\d+)?)", name)]
    parts[1::2] = [float(part) for part in parts[1::2]]
    return parts


def day_text(days: float) -> str:
    """Format days since 1970-01-01 as a date, with the time where there is one."""
    try:
        moment = datetime(1970, 1, 1) + timedelta(minutes=round(days * 1440))
    except (OverflowError, ValueError):  # beyond the calendar, or missing
        return number(days)
    return moment.strftime("%Y-%m-%d %H:%M").removesuffix(" 00:00")
