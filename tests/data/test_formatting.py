"""Numbers and dates as people read them."""

import pytest

from jointleaf._data.formatting import day_text, number, short_number, signed, term


@pytest.mark.parametrize(
    ("value", "long", "short"),
    [
        (-263_087.3, "-263,087", "-263,087"), (64.3, "64.30", "64.3"), (1984.0, "1984", "1984"),
        (13222.0, "13,222", "13,222"), (0.061696, "0.06170", "0.0617"),
        (2.5e9, "2,500,000,000", "2.5e+09"),
        (float("nan"), "-", "nan"),
    ],
)  # fmt: skip
def test_numbers(value, long, short):
    assert number(value) == long
    assert short_number(value) == short


def test_terms_of_a_sum():
    """What no digit of the largest term shows is 0; sums of small numbers stay as they are."""
    assert [term(value, 1.7) for value in (-2.29e-06, 1e-3, 1.7)] == ["0", "0.001000", "1.700"]
    assert term(-2.29e-06, 3e-06) == "-2.29e-06"
    assert term(0.0, 0.0) == "0"


def test_few_digits_are_no_powers_of_ten():
    assert [short_number(value, 2) for value in (1300, 99.6, 99.4, 12_345)] == [
        "1300", "100", "99", "12,345",
    ]  # fmt: skip
    assert [short_number(value, 3) for value in (-2920.4, 22_924, 0.0123)] == [
        "-2920", "22,924", "0.0123",
    ]  # fmt: skip
    assert short_number(9999.7) == "10,000"


def test_signs_and_dates():
    assert [signed(text) for text in ("1", "-1")] == ["+1", "-1"]
    assert day_text(13222) == "2006-03-15"
    assert day_text(13222.5) == "2006-03-15 12:00"
    assert day_text(-1) == "1969-12-31"
    assert day_text(1e9) == "1,000,000,000"  # beyond the calendar
    assert day_text(float("nan")) == "-"
