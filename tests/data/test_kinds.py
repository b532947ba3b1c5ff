"""What columns hold: counters of rows, and texts that are nearly numbers."""

import numpy as np
import pytest

from jointleaf._data.kinds import detect_kind, row_counters
from jointleaf._data.raw_table import RawColumn, RawTable, closest_name, text_column
from jointleaf.cli._columns import detect_target
from jointleaf.cli._output import CliError


def kind_of(values, name="x", **options):
    """Return the kind of a column of numbers, or of text."""
    if isinstance(values[0], str):
        return detect_kind(text_column(name, list(values)), **options)
    return detect_kind(RawColumn(name, np.asarray(values, float)), **options)


SHUFFLED = np.random.default_rng(0).permutation(60)


@pytest.mark.parametrize(
    ("values", "name"),
    [
        (SHUFFLED, "x"),
        (SHUFFLED + 1, "x"),
        (SHUFFLED + 7, "row_number"),
        (np.random.default_rng(0).permutation(100)[:80], "nr"),  # a shuffled split
    ],
)
def test_numbers_of_rows_in_any_order_count_them(values, name):
    kind = kind_of(values, name)
    assert kind.kind == "identifier"
    assert kind.note == "counts the rows, in another order, or ranks them"
    assert kind_of(np.arange(80), name).note == "counts the rows"
    assert kind_of(values, name, is_kept=True).kind == "number"


@pytest.mark.parametrize(
    ("values", "name"),
    [
        (SHUFFLED + 1960, "x"),  # years
        (SHUFFLED[:40] % 40, "x"),  # repeated, and few
        (np.argsort(SHUFFLED[:40]), "x"),  # few
        (np.random.default_rng(0).permutation(100)[:80], "x"),  # cannot be known
        (7 * SHUFFLED, "no"),
        (SHUFFLED + 1, "world_rank"),  # without ties
    ],
)
def test_other_whole_numbers_do_not(values, name):
    assert kind_of(values, name).kind == "number"


def test_counters_are_found_in_numbers_and_plain_text():
    columns = (
        text_column("nr", ["1", "2", "3"]),
        text_column("gap", ["1", "2", ""]),
        text_column("word", ["1", "2", "three"]),
        RawColumn("x", np.arange(3.0)),
        RawColumn("day", np.arange(3).astype("datetime64[D]")),
    )
    assert row_counters(RawTable("a.csv", columns)) == {"nr", "x"}


@pytest.mark.parametrize(
    ("values", "culprit", "remedy"),
    [
        (["$1,000.00", "$2,000.50", "-", "$30.00"], "-", r"--na (missing_values= in Python)"),
        (["64.3 m2", "20.9 m2", "78.5 m2"], "64.3 m2", "without units"),
        (["64.3", "20.9 m3", "78.5"], "20.9 m3", "without units"),
        (["new kr", "20.9 kr", "78.5 kr"], "20.9 kr", "without units"),
    ],
)
def test_what_cannot_be_read_is_named_with_the_remedy(values, culprit, remedy):
    note = kind_of(values).note
    assert f"looks like numbers, but {culprit!r} cannot be read as one" in note
    assert remedy in note


def test_a_target_with_units_is_told_to_look_like_numbers():
    column = text_column("price", [f"{k}.4 kr" for k in range(200)])
    message = "too many to be classes; it looks like numbers, but '0.4 kr' cannot be read as one"
    with pytest.raises(CliError, match=message):
        detect_target(column, "a.csv")


def test_similar_names_are_found():
    names = ["price", "area", "Sold on"]
    assert closest_name("pricee", names) == closest_name(" PRICE", names) == "price"
    assert closest_name("soldon", names) == "Sold on"
    assert closest_name("cost", names) is None
    assert closest_name("fule", ["id", "fuel"]) == "fuel"
    assert closest_name("yaer", ["day", "year"]) == "year"
    assert closest_name("x12", ["x21", "x13"]) is None  # numbers, which may well be meant
    assert closest_name("pricee", [*names, *map(str, range(1000))]) is None  # takes too long


@pytest.mark.parametrize("values", [["few", "many"] * 5, ["1", "2"] * 20 + ["many"]])
def test_a_loss_of_numbers_does_not_speak_of_the_task(values):
    column = text_column("claims", values)
    with pytest.raises(CliError, match=r"'few'.*leave --loss poisson out$|use --na 'many'$"):
        detect_target(column, "a.csv", "regression", "--loss poisson").read(column, "a.csv")
