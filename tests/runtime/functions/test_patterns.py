"""Patterns for llguidance, against Python's own matching of the same ones."""

from __future__ import annotations

import random
import re

import llguidance
import pytest

from runtime.errors import RunError
from runtime.functions.patterns import has_match, whole

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
_ATOMS: tuple[str, ...] = (
    *"abc-&~/]}# ",
    *(
        r"\d",
        r"\w",
        r"\s",
        r"\D",
        r"\W",
        r"\S",
        r"\.",
        r"\$",
        r"\/",
        r"\-",
        r"\u0062",
        r"\x63",
        "é",
    ),
)
_IN_CLASSES = ("a-c", "0-9", "&&", "~~", "+--", r"\d", r"\W", r"\D", ".", "$", "[", r"\]", "|", "é")
_QUANTIFIERS = ("", "", "", "*", "+", "?", "{2}", "{1,2}", "{0,}", "*?")
_CHARACTERS = "abc-&~^$./|]}{# 019_é\t\u00a0½६[+,"


def _atom(rng: random.Random, depth: int) -> str:
    if rng.random() < 0.2:
        return f"[{rng.choice(['', '^'])}{''.join(rng.choices(_IN_CLASSES, k=rng.randint(1, 3)))}]"
    if depth and rng.random() < 0.2:
        inner = "|".join(_sequence(rng, depth - 1) for _ in range(rng.randint(1, 2)))
        return f"{rng.choice(['(', '(?:'])}{inner})"
    return rng.choice(_ATOMS)


def _sequence(rng: random.Random, depth: int) -> str:
    parts = (_atom(rng, depth) + rng.choice(_QUANTIFIERS) for _ in range(rng.randint(0, 3)))
    return "".join(parts)


def _matches(pattern: str, text: str) -> bool:
    terminal = f"/(?s:.{{0,9}})/ & /{whole(pattern, 'p')}/"
    tokenizer = llguidance.LLTokenizer("byte")
    matcher = llguidance.LLMatcher(tokenizer, f"start: T\nT: {terminal}\n", log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    tokens = list(text.encode())
    return bool(matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting())


@pytest.mark.parametrize("seed", range(40))
def test_a_text_matches_where_python_finds_the_pattern_in_it(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(15):
        pattern = "|".join(
            rng.choice(["", "^"]) + _sequence(rng, 2) + rng.choice(["", "$"])
            for _ in range(rng.randint(1, 2))
        )
        try:
            compiled = re.compile(pattern, re.ASCII)
        except re.error:
            continue
        for _ in range(8):
            text = "".join(rng.choices(_CHARACTERS, k=rng.randint(0, 4)))
            assert _matches(pattern, text) == bool(compiled.search(text)), (pattern, text)


@pytest.mark.parametrize(
    "pattern",
    [
        "(^a|b)c",
        "(a|b$)",
        "a^",
        r"\bx",
        "(?=x)",
        "(?!x)",
        "(?i)a",
        r"(a)\1",
        "a{,3}",
        r"\cA",
        "a*+",
    ],
)
def test_what_cannot_be_said_is_refused_by_its_place(pattern: str) -> None:
    with pytest.raises(RunError, match=r"^f\.a: pattern .* cannot be held to"):
        whole(pattern, "f.a")


@pytest.mark.parametrize(
    ("terminal", "some"),
    [("/a/ & /b/", False), ("/a{5}/ & /(?s:.{0,3})/", False), ("/a?/", True), ("/a{0}/", True)],
)
def test_whether_anything_matches(terminal: str, some: bool) -> None:
    assert has_match(terminal) == some
