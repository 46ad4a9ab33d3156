"""Regular expressions of decimals in an interval, against exact fractions."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.functions.decimals import Interval, decimals

BOUNDS = st.none() | st.one_of(
    st.sampled_from([0, 1, -1, 9, 10, 99, 100, -10, 0.1, -0.5, 0.25, 99.99, 1.005]),
    st.integers(-2000, 2000),
    st.floats(-200, 200).map(lambda number: round(number, 3)),
)
STEPS = (0, 1, -1, 0.1, -0.1, 0.01, -0.01, 0.001, -0.001, 10, -10)


@settings(max_examples=1500, deadline=None)
@given(BOUNDS, BOUNDS, BOUNDS, BOUNDS, st.integers(0, 3), st.integers(-2200, 2200), st.data())
def test_a_decimal_matches_where_its_value_is_in_the_interval(
    least: float | None,
    most: float | None,
    above: float | None,
    below: float | None,
    places: int,
    free: int,
    data: st.DataObject,
) -> None:
    interval = Interval(least=least, most=most, above=above, below=below)
    pattern = re.compile(decimals(interval, places) or r"(?!)")
    for near in (bound for bound in (least, most, above, below, free) if bound is not None):
        number = near + data.draw(st.sampled_from(STEPS))
        for text in {f"{number:.{digits}f}" for digits in range(places + 1)}:
            value = Fraction(text)
            inside = (
                (least is None or value >= Fraction(str(least)))
                and (most is None or value <= Fraction(str(most)))
                and (above is None or value > Fraction(str(above)))
                and (below is None or value < Fraction(str(below)))
                and not (value == 0 and text.startswith("-"))
            )
            assert bool(pattern.fullmatch(text)) == inside, text


@pytest.mark.parametrize(
    "text", ["", "-", "01", "1.", ".5", "1.0000001", "+1", "1e2", "-0", "-0.0"]
)
def test_only_jsons_decimals_match(text: str) -> None:
    assert not re.fullmatch(decimals(Interval(least=-10, most=10), 6) or "", text)


@pytest.mark.parametrize(
    "interval",
    [
        Interval(least=5, most=3),
        Interval(above=1, below=2),
        Interval(least=0.2, most=0.8),
        Interval(most=-1e308),
        Interval(least=10**400),
    ],
)
def test_there_may_be_no_integer(interval: Interval) -> None:
    assert decimals(interval, 0) is None


def test_digits_come_to_an_end() -> None:
    pattern = re.compile(decimals(Interval(least=0.1), 6) or "")

    assert pattern.fullmatch(str(2**53 - 1))
    assert not pattern.fullmatch("9" * 17)
    assert not pattern.fullmatch("0." + "1" * 7)


def test_a_bound_of_nines_or_zeros_costs_no_digits() -> None:
    assert len(decimals(Interval(least=1, most=10**15 - 1), 6) or "") < 1200


def test_a_decimal_beside_an_excluded_bound_is_not_read_as_it() -> None:
    pattern = re.compile(decimals(Interval(above=2.0**52, most=2.0**52 + 3), 6) or "")

    assert not pattern.fullmatch("4503599627370496.000001")
    assert pattern.fullmatch("4503599627370497")
