"""Regular expressions of decimal numbers within bounds, whose digits come to an end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext

# Where a bound is missing: integers that float64, and so JSON elsewhere, holds.
_LARGE = 2**53 - 1
_LARGEST = 10**18
_FRACTION = 6
_MAX_FRACTION = 15


@dataclass(frozen=True, kw_only=True)
class Interval:
    """From `least` to `most`, both included, and between `above` and `below`; None for no bound."""

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None

    def scaled(self, places: int) -> tuple[int, int]:
        """The first and the last decimal of so many places within, in units of the last place."""
        lows = [] if self.least is None else [_scaled(_shown(self.least), places, ROUND_CEILING)]
        highs = [] if self.most is None else [_scaled(_shown(self.most), places, ROUND_FLOOR)]
        # Beyond the next float64, because a decimal closer than that is read as the bound itself.
        if self.above is not None:
            beyond = _next(self.above, math.inf)
            lows.append(_scaled(beyond, places, ROUND_CEILING))
        if self.below is not None:
            beyond = _next(self.below, -math.inf)
            highs.append(_scaled(beyond, places, ROUND_FLOOR))
        unit = 10**places
        low, high = max(lows, default=None), min(highs, default=None)
        if low is None:
            low = -unit * (_LARGE if high is None or high >= -unit * _LARGE else _LARGEST)
        if high is None:
            high = unit * (_LARGE if low <= unit * _LARGE else _LARGEST)
        return max(low, -unit * _LARGEST), min(high, unit * _LARGEST)

    @property
    def places(self) -> int:
        """Digits after the point: six, or as many as the bounds have, fifteen at most."""
        bounds = [self.least, self.most, self.above, self.below]
        wanted = [_places(bound) for bound in bounds if bound is not None]
        return min(max([_FRACTION, *wanted]), _MAX_FRACTION)


def decimals(interval: Interval, places: int) -> str | None:
    """Of the decimals in an interval with up to so many digits after the point; None for none."""
    low, high = interval.scaled(places)
    parts = []
    if low < 0 and low <= high:
        parts.append(f"-({_unsigned(max(1, -high), -low, places)})")
    if high >= max(low, 0):
        parts.append(_unsigned(max(0, low), high, places))
    return "|".join(parts) or None


def _shown(bound: float) -> Decimal:
    return Decimal(str(bound))


def _next(bound: float, toward: float) -> Decimal:
    return Decimal(math.nextafter(min(max(bound, -_LARGEST), _LARGEST), toward))


def _places(bound: float) -> int:
    exponent = _shown(bound).normalize().as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def _scaled(bound: Decimal, places: int, rounding: str) -> int:
    with localcontext() as context:
        context.prec = 2000
        return int(bound.scaleb(places).to_integral_value(rounding))


def _unsigned(low: int, high: int, places: int) -> str:
    """Cut where the integer part gains a digit, because it has no leading zeros."""
    parts = []
    while low <= high:
        whole = len(str(low // 10**places))
        top = min(high, 10 ** (whole + places) - 1)
        parts.append(_digits(_split(low, whole + places), _split(top, whole + places), whole, 0))
        low = top + 1
    return "|".join(parts)


def _split(number: int, width: int) -> list[int]:
    return [int(digit) for digit in str(number).zfill(width)]


def _digits(low: Sequence[int], high: Sequence[int], whole: int, at: int) -> str:
    """The rest of a number from its digit `at` on, `whole` of them before the point.

    low, high: the bounds' digits, or nothing where the digits before have left the bound behind.
    The number may end wherever zeros may follow.
    Digits that share a rest are neighbours: only the first and the last have a bound to keep.
    """
    width = max(len(low), len(high))
    if at == width:
        return ""
    first, last = low[at] if low else 0, high[at] if high else 9
    branches: dict[str, list[int]] = {}
    for digit in range(first, last + 1):
        inner_low = low if digit == first and any(low[at + 1 :]) else ()
        inner_high = high if digit == last and set(high[at + 1 :]) - {9} else ()
        rest = (
            _digits(inner_low, inner_high, whole, at + 1)
            if inner_low or inner_high
            else _free(width - at - 1, whole - at - 1)
        )
        branches.setdefault(rest, []).append(digit)
    body = "|".join(f"[{one[0]}-{one[-1]}]{rest}" for rest, one in branches.items())
    body = f"({body})"
    if at < whole:
        return body
    body = rf"\.{body}" if at == whole else body
    return body if any(low[at:]) else f"({body})?"


def _free(digits: int, whole: int) -> str:
    """Any so many digits, `whole` of them before the point, or none if that is passed."""
    if whole < 0:
        return f"[0-9]{{0,{digits}}}" if digits else ""
    before = f"[0-9]{{{whole}}}" if whole else ""
    after = digits - whole
    return before + (rf"(\.[0-9]{{1,{after}}})?" if after else "")
