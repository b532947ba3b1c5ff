"""A small table with text, missing values, dates and more, and ways to run commands on it."""

from __future__ import annotations

import csv
import io
from datetime import date, timedelta

import numpy as np

from jointleaf.cli import main

HEADER = ("id", "sold", "city", "area", "balcony", "heating", "country", "price")


def make_rows(n=70, seed=0):
    """Rows as text; the price follows city, area and the day of the sale."""
    rng = np.random.default_rng(seed)
    rows = []
    for k in range(n):
        sold = date(2022, 1, 1) + timedelta(int(rng.integers(0, 700)))
        city, area, balcony = str(rng.choice(["Oslo", "Rome"])), rng.uniform(20, 90), rng.random()
        price = area * (5 if city == "Oslo" else 3) + 0.05 * (sold - date(2022, 1, 1)).days
        rows.append(
            [
                f"F{k:03d}",
                sold.isoformat(),
                city,
                "" if k % 11 == 3 else f"{area:.1f}",
                "yes" if balcony < 0.5 else "no",
                "NA" if k % 13 == 5 else str(rng.choice(["gas", "oil"])),
                "NO",
                f"{price + rng.normal(0, 5):.2f}",
            ]
        )
    return rows


def as_csv(rows, header=HEADER, delimiter=","):
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, lineterminator="\n").writerows([header, *rows])
    return out.getvalue()


def run(capsys, *arguments):
    """Run a command in this process; return exit code, output and errors."""
    capsys.readouterr()
    code = main([str(argument) for argument in arguments])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def fails(capsys, *arguments, code=1):
    """Run a command that must fail; return its one line of error."""
    actual, out, err = run(capsys, *arguments)
    assert actual == code, (actual, out, err)
    bars = ("validating [", "fitting all rows [")
    lines = [line for line in err.strip().splitlines() if not line.startswith(bars)]
    assert len(lines) == 1, err
    assert "Traceback" not in err
    assert lines[0].startswith("jointleaf: error: ")
    return lines[0]
