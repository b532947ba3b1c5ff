"""Write the tables of the command line's example: made-up flats with text and missing values.

    python examples/make_flats.py [--output examples]

flats.csv has 500 sales with their prices, flats_new.csv twenty flats that are not sold yet.
"""

from __future__ import annotations

import argparse
import csv
from datetime import date, timedelta
from pathlib import Path

import numpy as np

CITIES = {"Oslo": 7.2, "Rome": 4.1, "Lima": 1.9, "Riga": 2.6, "Porto": 3.3}  # thousands per m2
COLUMNS = ("flat", "sold", "city", "area", "rooms", "built", "floor", "balcony", "heating", "price")


def make_row(number: int, rng: np.random.Generator) -> list:
    """Return one flat; some values are missing."""
    sold = date(2021, 1, 4) + timedelta(int(rng.integers(0, 1400)))
    city = str(rng.choice(list(CITIES)))
    area = float(np.clip(rng.gamma(6.0, 12.0), 18, 220))
    rooms = max(1, round(area / 26 + rng.normal(0, 0.6)))
    built = int(rng.integers(1895, 2021))
    floor = int(rng.integers(0, 9))
    balcony = bool(rng.random() < 0.45)
    heating = str(rng.choice(["gas", "district", "electric"], p=[0.5, 0.3, 0.2]))
    price = CITIES[city] * area * (1 - 0.0011 * area)
    price *= 1 + 0.05 * (sold - date(2021, 1, 4)).days / 365  # prices rise
    price *= 1 + 0.03 * np.cos(2 * np.pi * (sold.month - 5) / 12)  # and are best in May
    price += 0.25 * max(0, built - 1970) + (12 if balcony else 0) - (10 if floor == 0 else 0)
    price *= np.exp(rng.normal(0, 0.05))
    return [
        f"F{number:04d}",
        sold.isoformat(),
        city,
        "" if rng.random() < 0.06 else f"{area:.1f}",
        rooms,
        "?" if rng.random() < 0.1 else built,
        floor,
        "yes" if balcony else "no",
        "NA" if rng.random() < 0.08 else heating,
        f"{price:.1f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("examples"))
    folder = parser.parse_args().output
    rng = np.random.default_rng(0)
    rows = [make_row(k + 1, rng) for k in range(520)]
    for name, columns, part in (
        ("flats.csv", COLUMNS, rows[:500]),
        ("flats_new.csv", COLUMNS[:-1], [row[:-1] for row in rows[500:]]),
    ):
        with open(folder / name, "w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows([columns, *part])


if __name__ == "__main__":
    main()
