"""How the report's values are said: numbers with their precision and unit, and hostile text.

Every function takes None for what was not measured, and gives an en dash for it.
"""

from __future__ import annotations

import functools
import math
import unicodedata
from collections.abc import Callable

from markupsafe import Markup, escape

NOT_MEASURED = "–"
_LONGEST_TOKEN = 24
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_NAMED_CONTROLS = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _measured(say: Callable[[float], str]) -> Callable[[float | None], str]:
    """Wraps the wording of a number in what is said of no number, and of one that is not finite."""

    @functools.wraps(say)
    def wording(value: float | None) -> str:
        if value is None:
            return NOT_MEASURED
        if math.isnan(value):
            return "NaN"
        if math.isinf(value):
            return "∞" if value > 0 else "−∞"
        return say(value)

    return wording


def _signed(text: str) -> str:
    return text.replace("-", "−")


@_measured
def cosine(value: float) -> str:
    """Six decimals, cut and not rounded: only what is 1 reads as 1."""
    return _signed(f"{math.floor(value * 1e6 + 1e-6) / 1e6:.6f}")


@_measured
def share(value: float) -> str:
    """A share of positions in percent with two decimals; only all of them reads as 100.00 %."""
    return _signed(f"{math.floor(value * 1e4 + 1e-6) / 1e2:.2f} %")


@_measured
def small(value: float) -> str:
    """Three significant digits; below 0.001 and from 100,000 on, with a power of ten."""
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e5:
        return _signed(f"{value:,.0f}" if abs(value) >= 1e3 else f"{value:.3g}")
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{_signed(mantissa)} × {power(int(exponent))}"


@_measured
def perplexity(value: float) -> str:
    """Six significant digits: two perplexities are told apart by their last ones."""
    return f"{value:,.6g}"


@_measured
def count(value: float) -> str:
    """A whole number, its thousands apart; a fraction keeps two decimals."""
    return _signed(f"{value:,.0f}" if value == int(value) else f"{value:,.2f}")


@_measured
def megabytes(value: float) -> str:
    """Bytes as megabytes of 1,000,000 bytes; below one, as kilobytes of 1,000 or bytes."""
    if abs(value) >= 1e6:
        return _signed(f"{value / 1e6:,.1f} MB")
    return _signed(f"{value / 1e3:.1f} kB" if abs(value) >= 1e3 else f"{value:.0f} B")


def power(exponent: int) -> str:
    """A power of ten, in characters of full size's font."""
    return f"10{str(exponent).translate(_SUPERSCRIPTS)}"


def beside(value: float | None, limit: float | None) -> str:
    """A value with as many digits as tell it from a limit: 0.99896 is not said as 0.999."""
    if value is None or limit is None or not math.isfinite(value):
        return small(value) if value is None or not math.isfinite(value) else f"{value:.6g}"
    digits = next(
        (n for n in range(6, 17) if value == limit or f"{value:.{n}g}" != f"{limit:.{n}g}"), 17
    )
    return _signed(f"{value:.{digits}g}")


def visible(text: str) -> str:
    """Text in which nothing hides: controls, marks of direction and odd spaces by code point."""
    return "".join(_shown(character) for character in text)


def label(text: str) -> str:
    """Text for an axis or a legend: nothing hides in it, and it is cut after 14 characters."""
    shown = visible(text) or "unnamed"
    return shown if len(shown) <= 14 else f"{shown[:13]}…"


def _shown(character: str) -> str:
    if character in _NAMED_CONTROLS:
        return _NAMED_CONTROLS[character]
    category = unicodedata.category(character)
    if character != " " and category in {"Cc", "Cf", "Cs", "Co", "Cn", "Zs", "Zl", "Zp"}:
        return f"⟨U+{ord(character):04X}⟩"
    # A mark has a circle to sit on, so that it does not reach into what is before it.
    return f"◌{character}" if category in {"Mn", "Me"} else character


def token(text: str | None) -> Markup:
    """A token as HTML: escaped, isolated from the direction around it, its oddities marked.

    Spaces are drawn, and a text longer than 24 characters is cut and says so.
    """
    if text is None:
        return Markup(NOT_MEASURED)
    if not text:
        return Markup('<span class="odd">empty</span>')
    pieces = []
    for character in text[:_LONGEST_TOKEN]:
        shown = "␣" if character == " " else _shown(character)
        odd = shown != character and not shown.startswith("◌")
        pieces.append(Markup('<span class="odd">{}</span>').format(shown) if odd else escape(shown))
    if (left := len(text) - _LONGEST_TOKEN) > 0:
        pieces.append(Markup('<span class="odd">… {:,} more</span>').format(left))
    return Markup('<bdi class="token">{}</bdi>').format(Markup("").join(pieces))
