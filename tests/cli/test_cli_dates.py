"""Dates as they are written, the forms that are read, and what is said of others."""

from datetime import datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jointleaf._data.kinds import detect_kind
from jointleaf._data.raw_table import RawColumn, object_array
from jointleaf._data.texts import date_parts, detect_format, parse_dates

moments = st.datetimes(datetime(1950, 1, 1), datetime(2090, 12, 31))


@given(st.lists(moments, min_size=1, max_size=10))
@settings(max_examples=100, deadline=None)
def test_parts_of_dates_are_those_of_the_standard_library(times):
    times = [time.replace(microsecond=0) for time in times]
    written = object_array([time.isoformat(" ") for time in times])
    assert detect_format(written.tolist()) == "iso"
    parts = date_parts(parse_dates(written, "iso"))
    for k, time in enumerate(times):
        seconds = time.replace(tzinfo=timezone.utc).timestamp()
        assert parts["day number"][k] == pytest.approx(seconds / 86400, abs=1e-9)
        expected = (time.year, time.month, time.day, time.weekday(), time.hour)
        found = [parts[name][k] for name in ("year", "month", "day", "weekday", "hour")]
        assert tuple(found) == expected


@pytest.mark.parametrize(
    "form",
    [
        "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y %H:%M", "%b %d, %Y", "%d %B %Y", "%Y/%m/%d", "%d-%b-%y",
        "%d-%b-%Y", "%b %d %Y", "%B %d %Y", "%b %Y", "%B %Y",
    ],
)  # fmt: skip
def test_formats_of_dates_are_found(form):
    times = [datetime(2023, 1, 31, 5, 10), datetime(2024, 2, 29, 23, 59), datetime(2021, 12, 5)]
    written = [time.strftime(form) for time in times]
    assert detect_format(written) == form
    found = parse_dates(object_array(written), form)
    expected = [
        datetime.strptime(w, form).replace(tzinfo=timezone.utc).timestamp() for w in written
    ]
    np.testing.assert_array_equal(found, expected)


def test_zones_are_brought_to_utc():
    found = parse_dates(object_array(["2024-01-01T00:30:00+02:00", "2023-12-31T22:30:00Z"]), "iso")
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("given", "noun"),
    [
        (["19th Sept 2003", "20th Sept 2003", "1st October 2004"], "dates"),
        (["2003-09-19", "0000-00-00", "2003-09-21"], "dates"),
        (["19.9.2003", "31.9.2003", "1.10.2003"], "dates"),
        (["14:30", "9:05", "later"], "times"),
        (["Mon 14:30", "Tue 9:05", "Tue 9:10"], "times"),
        (["Jan", "Feb", "Mar"], None),  # a category
        (["market 1", "mayor 2", "Decca 3"], None),
        (["1.2.10", "1.2.11", "1.3.0"], None),
        (["12 kg", "13 kg", "14 kg"], None),
        (["16:9", "4:3", "1:1"], None),
    ],
)
def test_texts_that_look_like_dates_and_are_not_read_are_told(given, noun):
    kind = detect_kind(RawColumn("x", object_array(given)))
    told = f"may hold {noun} in a form that is not read"
    assert (told in kind.note) == (noun is not None)
    assert ("in a form" in kind.note) == (noun is not None)
    if noun:
        assert kind.holds == "left out: text"


def days(form="%d.%m.%Y", n=100):
    return [(datetime(2003, 9, 19) + timedelta(days=k)).strftime(form) for k in range(n)]


def test_a_twentieth_of_a_column_of_dates_may_be_something_else():
    kind = detect_kind(RawColumn("x", object_array(["unknown", *days()])))
    assert (kind.kind, kind.notation) == ("date", "%d.%m.%Y")
    assert kind.note.endswith("1 not a date, such as 'unknown' in row 1: taken as missing")
    others = [f"unknown {k}" for k in range(6)]
    kind = detect_kind(RawColumn("x", object_array([*days(), *others])))
    assert kind.kind == "identifier"
    assert "(most are day.month.year, 'unknown 0' is not): write them as 2003-09-19" in kind.note


def test_dates_with_the_year_first_are_read_in_columns_of_every_form():
    mixed = [*days(n=50), "2003-09-19T12:00:00.000", "2003/09/19"]
    assert detect_format(mixed) == "%d.%m.%Y"
    noon, day = parse_dates(object_array(mixed), "%d.%m.%Y")[-2:]
    assert (noon - day, day) == (43_200, parse_dates(object_array(["19.09.2003"]), "%d.%m.%Y")[0])
    assert detect_format(["2003-09-19", "2003/09/20"]) == "iso"


@pytest.mark.parametrize("marks", ["%Y/%m/%d", "%m/%d/%Y", "%d/%m/%Y"])
def test_forms_are_told_apart_where_some_values_are_no_dates(marks):
    assert detect_format(["unknown", *days(marks)]) == marks


def test_numbers_that_look_like_days_are_told():
    compact = np.array([float(day) for day in days("%Y%m%d")])
    epoch = 86_400_000.0 * np.arange(15_000, 15_100)
    for values, told in ((compact, "without marks"), (epoch, "in milliseconds since 1970")):
        kind = detect_kind(RawColumn("x", values), is_kept=True)
        assert kind.kind == "number"
        assert f"looks like days {told}" in kind.note
        kind = detect_kind(RawColumn("x", values + 0.5))
        assert "looks like" not in kind.note
    assert "looks like" not in detect_kind(RawColumn("x", compact + 30)).note  # 20030949


@pytest.mark.parametrize("given", [["2024-13-01"], ["2024-02-30"], ["soon"], ["20240101"], ["1-2"]])
def test_other_texts_are_no_dates(given):
    assert detect_format(given) is None
