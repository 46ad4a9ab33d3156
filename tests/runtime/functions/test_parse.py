"""Replies read back: values with anything in them, ends of a turn, and what cannot be read."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime import segments
from runtime.functions import functiongemma
from runtime.functions.parse import Call, CallError, parse

KEYS = st.text(
    st.characters(exclude_characters=":{}[],<>", exclude_categories=("Cs", "Z", "C")), min_size=1
)
TEXTS = st.text(st.characters(codec="utf-8")).filter(lambda text: "<escape>" not in text)
NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    TEXTS | NUMBERS | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


def written(name: str, arguments: dict[str, Any]) -> str:
    return segments.text(functiongemma.call(name, arguments))


@settings(max_examples=500, deadline=None)
@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_what_is_written_is_read_back(arguments: dict[str, Any]) -> None:
    assert parse(written("f", arguments)).calls == (Call("f", arguments),)


@pytest.mark.parametrize(
    "text",
    [
        "}",
        "{",
        "a:b",
        "a,b",
        "]",
        '"',
        "'",
        "\n\n",
        " padded ",
        "",
        "<end_function_call>",
        "ü☂👩‍👩‍👧",
        "<end_of_turn>",
    ],
)
def test_a_text_may_hold_what_is_syntax_elsewhere(text: str) -> None:
    arguments = {"t": text, "u": [text, {"k": text}]}

    assert parse(written("f", arguments)).calls[0].arguments == arguments


@pytest.mark.parametrize(
    "end", ["", "<end_of_turn>", "<start_function_response>", "<end_of_turn>\nmore"]
)
def test_each_end_of_a_turn_ends_it(end: str) -> None:
    reply = parse(written("f", {"a": 1}) + end)

    assert reply.calls == (Call("f", {"a": 1}),)
    assert reply.text == ""
    assert reply.stopped_by == (end.removesuffix("\nmore") or None)


def test_parallel_calls_and_text_around_them() -> None:
    reply = parse("Well: " + written("f", {"a": 1}) + written("g", {}) + " done<end_of_turn>no")

    assert reply.text == "Well:  done"
    assert [call.name for call in reply.calls] == ["f", "g"]


def test_text_without_a_call_is_text() -> None:
    assert parse("I cannot help with that.").text == "I cannot help with that."
    assert parse("").calls == ()


def test_spaces_and_escaped_keys_are_read() -> None:
    inside = "\ncall:f{ a : 1 , <escape>b c<escape>: [ true , null ] }\n"
    text = f"<start_function_call>{inside}<end_function_call>"

    assert parse(text).calls == (Call("f", {"a": 1, "b c": [True, None]}),)


def test_numbers_keep_their_type() -> None:
    found = parse("<start_function_call>call:f{a:1,b:1.0,c:-0,d:1e3,e:-2.5E-3}<end_function_call>")
    arguments = found.calls[0].arguments

    assert arguments == {"a": 1, "b": 1.0, "c": 0, "d": 1000.0, "e": -0.0025}
    assert [type(value) for value in arguments.values()] == [int, float, int, float, float]


# The text after the call's start, where the error is in it, and what was expected.
BROKEN: dict[str, tuple[str, int, str]] = {
    "nothing": ("", 0, "'call:' was expected"),
    "no name": ("call:{", 5, "a function's name was expected"),
    "an invented sentence": ("call: turn off", 5, "a function's name"),
    "no brace": ("call:f", 6, "'{' was expected"),
    "an open object": ("call:f{", 7, "an argument's name"),
    "no colon": ("call:f{a}", 8, "':' was expected"),
    "no value": ("call:f{a:", 9, "a number, true, false, null or text"),
    "a bare word": ("call:f{a:seven}", 9, "a number, true"),
    "an open text": ("call:f{a:<escape>x", 17, "the text's closing <escape>"),
    "an open list": ("call:f{a:[1", 11, "',' or ']'"),
    "a list that ends as an object": ("call:f{a:[1}", 11, "',' or ']'"),
    "a comma too many": ("call:f{a:1,}", 11, "an argument's name"),
    "no end": ("call:f{a:1}", 11, "'<end_function_call>' was expected"),
    "an end too early": ("call:f{a:1<end_function_call>", 10, "',' or '}'"),
    "a name twice": ("call:f{a:1,a:2}", 11, "another name than 'a'"),
    "a number beyond all": ("call:f{a:1e999}", 9, "a number, true"),
    "not a number": ("call:f{a:NaN}", 9, "a number, true"),
    "a leading zero": ("call:f{a:01}", 9, "a number, true"),
    "too deep": ("call:f{a:" + "[" * 100, 73, "at most 64 levels"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_cannot_be_read_is_named_with_its_offset(case: str) -> None:
    text, at, expected = BROKEN[case]
    start = "Well <start_function_call>"

    with pytest.raises(CallError) as caught:
        parse(start + text)
    assert caught.value.offset == len(start) + at
    assert expected in str(caught.value)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                "<start_function_call>",
                "call:",
                "f",
                "{",
                "}",
                "a:",
                "1",
                ",",
                "[",
                "]",
                "<escape>",
                "x",
                "<end_function_call>",
                "-",
                ".",
            ]
        ),
        max_size=30,
    )
)
def test_garbage_is_read_or_named_and_never_anything_else(parts: list[str]) -> None:
    offset = 0
    try:
        parse("".join(parts))
    except CallError as error:
        offset = error.offset
    assert 0 <= offset <= len("".join(parts))


@pytest.mark.parametrize("number", ["9" * 5000, "1" + "0" * 400])
def test_a_number_of_thousands_of_digits_is_no_hang_and_no_crash(number: str) -> None:
    with pytest.raises(CallError):
        parse(f"<start_function_call>call:f{{a:{number}}}<end_function_call>")
    assert math.isfinite(
        parse("<start_function_call>call:f{a:1e300}<end_function_call>").calls[0].arguments["a"]
    )
