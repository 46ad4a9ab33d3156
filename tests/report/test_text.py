"""How the report says numbers and hostile text."""

from __future__ import annotations

import html
import math
import re
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.report import text

WORDINGS = (text.cosine, text.share, text.small, text.perplexity, text.count, text.megabytes)


@pytest.mark.parametrize(
    ("say", "value", "said"),
    [
        (text.cosine, 0.99996, "0.999960"),
        (text.cosine, 0.9999999, "0.999999"),
        (text.cosine, 1.0, "1.000000"),
        (text.cosine, -0.5, "−0.500000"),
        (text.share, 0.9995, "99.95 %"),
        (text.share, 0.999999, "99.99 %"),
        (text.share, 1.0, "100.00 %"),
        (text.small, 0.0, "0"),
        (text.small, 0.0081, "0.0081"),
        (text.small, 1.234e-5, "1.23 × 10⁻⁵"),
        (text.small, 123456.0, "1.23 × 10⁵"),
        (text.perplexity, 23.41712, "23.4171"),
        (text.count, 40960, "40,960"),
        (text.megabytes, 94371840, "94.4 MB"),
        (text.megabytes, 43520, "43.5 kB"),
        (text.megabytes, 12, "12 B"),
    ],
)
def test_a_number_is_said_with_its_precision_and_unit(
    say: Callable[[float | None], str], value: float, said: str
) -> None:
    assert say(value) == said


@pytest.mark.parametrize("say", WORDINGS)
def test_what_is_no_number_is_said_to_be_none(say: Callable[[float | None], str]) -> None:
    assert [say(value) for value in (None, math.nan, math.inf, -math.inf)] == [
        "–",
        "NaN",
        "∞",
        "−∞",
    ]


def test_a_value_is_said_with_the_digits_that_tell_it_from_its_limit() -> None:
    assert text.beside(0.99899999, 0.999) == "0.99899999"
    assert text.beside(0.999, 0.999) == "0.999"
    assert text.beside(0.5, None) == "0.5"
    assert text.beside(None, 0.999) == "–"
    assert text.beside(math.nan, 0.999) == "NaN"


@given(st.floats(0, 2), st.floats(0, 2))
def test_values_that_differ_are_said_differently(value: float, limit: float) -> None:
    assert (text.beside(value, limit) == text.beside(limit, value)) == (value == limit)


@pytest.mark.parametrize(
    ("hidden", "shown"),
    [
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\x00\x1b", "⟨U+0000⟩⟨U+001B⟩"),
        ("\u202eabc", "⟨U+202E⟩abc"),
        ("\u200b\u2028\ufeff", "⟨U+200B⟩⟨U+2028⟩⟨U+FEFF⟩"),
        ("\ud800", "⟨U+D800⟩"),
        ("\u0301", "◌\u0301"),
        ("مرحبا, ж, 語", "مرحبا, ж, 語"),
    ],
)
def test_what_hides_in_text_is_shown(hidden: str, shown: str) -> None:
    assert text.visible(hidden) == shown


@given(st.text(st.characters(), max_size=80))
def test_no_token_breaks_out_of_its_element(token: str) -> None:
    said = str(text.token(token))

    inner = re.sub(r"</?(bdi|span)( class=\"(token|odd)\")?>", "", said)
    assert "<" not in inner
    assert not {unicodedata.category(character) for character in html.unescape(inner)} & {
        "Cc",
        "Cf",
        "Cs",
        "Zl",
        "Zp",
    }


def test_a_label_of_a_plot_is_short_and_never_empty() -> None:
    assert text.label("Q4_1") == "Q4_1"
    assert text.label("x" * 50) == "x" * 13 + "…"
    assert text.label("") == "unnamed"
    assert text.label("\n") == "\\n"


def test_a_long_token_is_cut_and_says_so() -> None:
    assert "x" * 24 + '<span class="odd">… 4,976 more</span>' in text.token("x" * 5000)


def test_spaces_of_a_token_are_drawn_and_an_empty_one_is_named() -> None:
    assert text.token(" a") == '<bdi class="token"><span class="odd">␣</span>a</bdi>'
    assert text.token("") == '<span class="odd">empty</span>'
    assert text.token(None) == "–"
