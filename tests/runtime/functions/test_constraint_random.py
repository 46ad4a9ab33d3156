"""Constrained decoding on random functions: what comes out is valid, what is valid may come out."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import numpy as np
import pytest

from runtime import segments
from runtime.errors import RunError
from runtime.functions import functiongemma
from runtime.functions.check import check_arguments
from runtime.functions.constraint import CallConstraint, OnceCalled, Vocabulary
from runtime.functions.grammar import Bounds
from runtime.functions.parse import Call, parse
from runtime.functions.schema import Function, load_functions
from runtime.functions.values import Json
from tests.runtime.functions.byte_tokens import CONTROL, PLAIN, USER_DEFINED, ByteTokens
from tests.runtime.functions.random_schemas import random_arguments, random_tools

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
KINDS = {"control": CONTROL, "user defined": USER_DEFINED, "text": PLAIN}
SMALL = Bounds(calls=2, text=12, items=3)


@cache
def vocabulary(tokens: ByteTokens) -> Vocabulary:
    named = {**tokens.control, **tokens.user_defined}
    stops = {
        named[name] for name in ("<start_function_response>", "<end_of_turn>") if name in named
    }
    return Vocabulary.of(tokens, stops | {tokens.eos})


def guard(functions: tuple[Function, ...], tokens: ByteTokens = CONTROL) -> CallConstraint:
    return CallConstraint(vocabulary(tokens), functions, tokens.size, SMALL)


def generated(functions: tuple[Function, ...], tokens: ByteTokens, seed: int) -> str:
    """The text of tokens chosen at random among those allowed."""
    rng = np.random.default_rng(seed)
    constraint, chosen = guard(functions, tokens), list[int]()
    while not constraint.finished:
        token = int(rng.choice(np.flatnonzero(constraint.allowed())))
        constraint.accept(token)
        if token in vocabulary(tokens).stops:
            break
        chosen.append(token)
    return tokens.shown(chosen)


def accepts(functions: tuple[Function, ...], text: str, tokens: ByteTokens = CONTROL) -> bool:
    constraint = guard(functions, tokens)
    for token in [*tokens.encode(text, special=True), tokens.eos]:
        if not constraint.allowed()[token]:
            return False
        constraint.accept(token)
    return True


def written(name: str, arguments: dict[str, Any]) -> str:
    return segments.text(functiongemma.call(name, arguments))


# 4 × 84 × 3 = 1,008 generations.
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", range(4))
def test_whatever_is_chosen_is_read_back_and_valid(kind: str, block: int) -> None:
    for seed in range(84 * block, 84 * (block + 1)):
        functions = load_functions(random_tools(seed))
        reply = parse(generated(functions, KINDS[kind], seed))
        by_name = {function.name: function for function in functions}
        assert reply.calls
        assert not reply.text
        for call in reply.calls:
            check_arguments(by_name[call.name], call.arguments)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(100))
def test_valid_arguments_are_let_through(kind: str, seed: int) -> None:
    rng = random.Random(seed)
    functions = load_functions(random_tools(10_000 + seed))
    for function in functions:
        arguments = random_arguments(function.parameters, rng)
        check_arguments(function, arguments)
        text = written(function.name, arguments)
        strings = text.split("<escape>")[1::2]
        # Beyond the bound, or with the character that a marker begins with where it is text.
        if max(map(len, strings), default=0) > 12 or (kind == "text" and "<" in "".join(strings)):
            continue
        assert parse(text).calls == (Call(function.name, arguments),)
        assert accepts(functions, text, KINDS[kind]), text


@pytest.mark.parametrize("seed", range(20))
def test_forced_tokens_are_the_only_text_that_is_allowed(seed: int) -> None:
    functions = load_functions(random_tools(seed))
    rng = np.random.default_rng(seed)
    constraint, forced = guard(functions), 0
    while not constraint.finished:
        for token in constraint.forced():
            text = CONTROL.token_bytes(token)
            allowed = np.flatnonzero(constraint.allowed())
            assert token in allowed
            assert all(
                text.startswith(CONTROL.token_bytes(int(other))[: len(text)]) for other in allowed
            )
            constraint.accept(token)
            forced += 1
        if constraint.finished:
            break
        token = int(rng.choice(np.flatnonzero(constraint.allowed())))
        constraint.accept(token)
        if token in vocabulary(CONTROL).stops:
            break
    assert forced


# A schema of the argument `a`, values that are let in, and texts that are not.
RULES: dict[str, tuple[Any, list[Any], list[str]]] = {
    "different items": (
        {"type": "array", "items": {"enum": ["x", "y", 1]}, "uniqueItems": True, "minItems": 1},
        [["x"], ["y", "x"], [1, "x", "y"]],
        ["[]", "[1,1]", "[1,<escape>x<escape>,1]"],
    ),
    "a bound on different items": (
        {"type": "array", "items": {"type": "boolean"}, "uniqueItems": True, "maxItems": 1},
        [[], [True]],
        ["[true,false]"],
    ),
    "items that are one value": (
        {"type": "array", "items": {"enum": [1, 1.0, True]}, "uniqueItems": True},
        [[1, True]],
        ["[1,1.0]", "[1.0,1]"],
    ),
    "few members": (
        {
            "type": "object",
            "properties": {"x": {"const": 1}, "y": {"const": 2}, "z": {"const": 3}},
            "minProperties": 1,
            "maxProperties": 2,
        },
        [{"x": 1}, {"y": 2}, {"x": 1, "z": 3}],
        ["{}", "{x:1,y:2,z:3}", "{y:2,x:1}"],
    ),
    "an explicit length beyond the default": (
        {"type": "array", "items": {"type": "null"}, "maxItems": 5},
        [[None] * 5],
        ["[null,null,null,null,null,null]"],
    ),
    "null by OpenAPI": ({"type": "string", "nullable": True}, ["x", None], ["true"]),
    "null beside an enumeration": (
        {"enum": ["x"], "nullable": True},
        ["x", None],
        ["<escape><escape>"],
    ),
    "an enumeration of one type": (
        {"type": "integer", "enum": [1, "x", 2.5]},
        [1],
        ["<escape>x<escape>", "2.5"],
    ),
    "an enumeration with exceptions": ({"enum": [1, 2, 3], "not": {"const": 2}}, [1, 3], ["2"]),
    "a type beside alternatives": (
        {"type": ["integer", "string"], "anyOf": [{"type": "number"}, {"minLength": 2}]},
        [5, "xy"],
        ["5.5", "<escape>x<escape>", "true"],
    ),
    "one of several types": (
        {"oneOf": [{"type": "integer"}, {"enum": ["x"]}, {"type": "null"}]},
        [3, "x", None],
        ["3.5"],
    ),
    "one of several objects": (
        {
            "oneOf": [
                {"type": "object", "properties": {"k": {"const": kind}}, "required": ["k"]}
                for kind in ("p", "q")
            ]
        },
        [{"k": "p"}, {"k": "q"}],
        ["{}", "{k:<escape>r<escape>}"],
    ),
    "multiples": (
        {"type": "integer", "multipleOf": 7, "minimum": 8, "maximum": 21},
        [14, 21],
        ["7", "28", "15"],
    ),
    "hundredths": (
        {"type": "number", "multipleOf": 0.01, "minimum": 0},
        [0, 0.07, 12.5],
        ["0.001", "-1"],
    ),
    "fractions as bounds of an integer": (
        {"type": "integer", "minimum": 0.5, "exclusiveMaximum": 3},
        [1, 2],
        ["0", "3", "1.0"],
    ),
    "a half-open number": (
        {"type": "number", "exclusiveMinimum": 0},
        [0.5, 5],
        ["0", "-1", "1e400", "9" * 400],
    ),
    "a control character": (
        {"enum": ['\x7f\x00\u2028\\"\n']},
        ['\x7f\x00\u2028\\"\n'],
        ["<escape><escape>"],
    ),
    "anything": (True, ["x", 1, True, None], ["[1]"]),
    "a keyword of another type": ({"type": "boolean", "minLength": 3}, [True], ["1"]),
}


@pytest.mark.parametrize("case", RULES)
def test_a_rule_is_held_to(case: str) -> None:
    schema, inside, outside = RULES[case]
    tools = [{"name": "f", "parameters": {"type": "object", "properties": {"a": schema}}}]
    functions = load_functions(tools)
    for value in inside:
        check_arguments(functions[0], {"a": value})
        assert accepts(functions, written("f", {"a": value})), value
    for text in outside:
        assert not accepts(
            functions, f"<start_function_call>call:f{{a:{text}}}<end_function_call>"
        ), text


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (
            {"oneOf": [{"type": "integer"}, {"type": "number"}]},
            r"f.a: oneOf\[0\] and oneOf\[1\] could both",
        ),
        ({"oneOf": [{"type": "string"}, {"maxLength": 3}]}, "could both fit"),
        ({"anyOf": [{}], "oneOf": [{}]}, "f.a: anyOf beside oneOf"),
        ({"type": "string", "anyOf": [{"type": "integer"}]}, "f.a: no alternative of anyOf"),
        ({"anyOf": [{"type": "integer"}], "minLength": 2}, "f.a: the keyword minLength"),
        ({"type": "string", "enum": [1]}, r"f.a: none of \[1\] fits"),
        (
            {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
            "f.a: uniqueItems cannot",
        ),
        ({"type": "array", "items": {"enum": list(range(7))}, "uniqueItems": True}, "here are 7"),
        (
            {"type": "array", "items": {"const": 1}, "uniqueItems": True, "minItems": 2},
            "f.a: there are no 2 different items",
        ),
        ({"type": "object", "minProperties": 1}, "f.a: no object fits"),
        ({"type": "integer", "minimum": 5, "maximum": 3}, 'f.a: no integer fits {"minimum": 5'),
        ({"type": "integer", "multipleOf": 7, "minimum": 8, "maximum": 13}, "f.a: no integer fits"),
        ({"type": "number", "minimum": 5, "maximum": 3}, "f.a: no number fits"),
        ({"type": "number", "minimum": float("inf")}, "f.a: a bound of .* is no number"),
        ({"type": "number", "multipleOf": 0.3}, "f.a: multiples of 0.3 cannot"),
        ({"type": "string", "pattern": "^a{20}$", "maxLength": 9}, "f.a: no text of 0 to 9"),
    ],
)
def test_what_nothing_fits_or_holds_is_named(schema: Json, words: str) -> None:
    tools = [{"name": "f", "parameters": {"type": "object", "properties": {"a": schema}}}]

    with pytest.raises(RunError, match=words):
        guard(load_functions(tools))


@pytest.mark.parametrize("kind", ["control", "user defined"])
def test_a_marker_is_its_token_and_not_its_text(kind: str) -> None:
    tokens = KINDS[kind]
    functions = load_functions([{"name": "f"}])
    constraint = guard(functions, tokens)
    marker = {**tokens.control, **tokens.user_defined}["<start_function_call>"]

    assert np.flatnonzero(constraint.allowed()).tolist() == [marker]
    assert OnceCalled(constraint, tokens).allowed() is None


@pytest.mark.parametrize("kind", ["control", "user defined"])
def test_within_a_text_a_marker_only_ends_it(kind: str) -> None:
    tokens = KINDS[kind]
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    functions = load_functions([{"name": "f", "parameters": schema}])
    constraint = CallConstraint(vocabulary(tokens), functions, tokens.size)
    markers = {**tokens.control, **tokens.user_defined}
    for token in tokens.encode("<start_function_call>call:f{a:<escape>x", special=True):
        constraint.accept(token)

    allowed = set(np.flatnonzero(constraint.allowed()).tolist())
    assert allowed & set(markers.values()) == {markers["<escape>"]}


def test_every_stop_may_end_a_reply() -> None:
    constraint = guard(load_functions([{"name": "f"}]))
    for token in CONTROL.encode(written("f", {}), special=True):
        constraint.accept(token)

    assert vocabulary(CONTROL).stops <= set(np.flatnonzero(constraint.allowed()).tolist())
    assert not constraint.finished


def test_many_functions_with_many_arguments_are_no_burden() -> None:
    properties = {f"p{i}": {"type": "string", "maxLength": 100} for i in range(40)}
    parameters = {"type": "object", "properties": properties}
    tools = [{"name": f"f{i}", "parameters": parameters} for i in range(50)]

    assert accepts(load_functions(tools), written("f49", {"p0": "x", "p39": "y"}))
