"""Constrained decoding: whatever is chosen, a valid call comes out; nothing else is let in."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from runtime import segments
from runtime.backends.iree_cpu import IreeBackend
from runtime.bundle import Bundle
from runtime.decoder import Decoder
from runtime.dialogue import Dialogue, Turn
from runtime.errors import RunError
from runtime.functions import functiongemma
from runtime.functions.check import check_arguments
from runtime.functions.constraint import CallConstraint, OnceCalled, Vocabulary
from runtime.functions.grammar import Bounds
from runtime.functions.parse import Call, parse
from runtime.functions.schema import load_functions
from runtime.functions.values import Json
from runtime.generate import Limits
from runtime.prompting import Form
from runtime.sampling import Sampler, Sampling
from tests.runtime.functions.tool_lists import BY_HAND, random_functions
from tests.runtime.toy_bundle import toy_file


@cache
def bundle() -> Bundle:
    return Bundle.open(toy_file("toy_chat_torq"))


@cache
def form() -> Form:
    return Form.of(bundle())


@cache
def vocabulary() -> Vocabulary:
    return Vocabulary.of(bundle().tokenizer, form().stops)


@cache
def plain() -> Vocabulary:
    """The same vocabulary without FunctionGemma's tokens: markers are text."""
    tokenizer = bundle().tokenizer
    kept = {name: index for name, index in tokenizer.control.items() if index < 4}
    return Vocabulary.of(replace(tokenizer, control=kept), {tokenizer.eos})


def constraint(tools: list[dict[str, Any]], **bounds: int) -> CallConstraint:
    return CallConstraint(
        vocabulary(), load_functions(tools), bundle().vocabulary, Bounds(**bounds)
    )


def check(text: str, tools: list[dict[str, Any]]) -> tuple[Call, ...]:
    """The calls of a reply, all of them declared and as declared."""
    functions = {function.name: function for function in load_functions(tools)}
    reply = parse(text)
    assert reply.calls
    assert not reply.text
    for call in reply.calls:
        check_arguments(functions[call.name], call.arguments)
    return reply.calls


def test_1000_generations_of_random_weights_give_no_invalid_call() -> None:
    dialogue = Dialogue(
        decoder=Decoder(bundle(), IreeBackend(bundle())),
        sampler=Sampler(Sampling(temperature=1.0, seed=5)),
        form=form(),
        cut=True,
    )
    calls = 0
    for seed in range(50):
        tools = random_functions(seed, 2)
        for _ in range(20):
            turn = Turn()
            limits = Limits(max_tokens=10_000, stops=form().stops)
            guard = constraint(tools, calls=2, text=8, items=2)
            # What random weights say does not depend on a prompt worth its time.
            for _ in dialogue.pieces([bundle().tokenizer.bos], limits, turn, guard):
                pass
            assert turn.stats.finish == "stop"
            calls += len(check(form().shown(turn.tokens), tools))
    assert calls >= 1000


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("seed", range(30))
def test_whatever_is_chosen_of_what_is_allowed_is_valid(seed: int, marked: bool) -> None:
    tools = random_functions(1000 + seed)
    guide = vocabulary() if marked else plain()
    rng = np.random.default_rng(seed)
    for _ in range(4):
        guard = CallConstraint(guide, load_functions(tools), bundle().vocabulary, Bounds(text=20))
        tokens: list[int] = []
        while not guard.finished:
            token = int(rng.choice(np.flatnonzero(guard.allowed())))
            guard.accept(token)
            if token in guide.stops:
                break
            tokens.append(token)
        check(form().shown(tokens), tools)


def accepts(guard: CallConstraint, text: str) -> bool:
    """Whether a call, written as tokens, is let in to its end."""
    trusted = [segments.Segment(text, trusted=True)]
    for token in segments.encode(bundle().tokenizer, trusted):
        if not guard.allowed()[token]:
            return False
        guard.accept(token)
    return bool(guard.allowed()[bundle().tokenizer.eos])


TOOL = {
    "name": "plan",
    "description": "",
    "parameters": {
        "type": "object",
        "properties": {
            "day": {"type": "string", "enum": ["mo", "di}"]},
            "hour": {"type": "integer", "minimum": 0, "maximum": 23},
            "note": {"type": "string", "maxLength": 3},
            "share": {"type": "number"},
            "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
            "where": {
                "type": "object",
                "properties": {"x": {"type": ["integer", "null"]}},
                "required": ["x"],
            },
        },
        "required": ["hour"],
    },
}
VALID: list[dict[str, Any]] = [
    {"hour": 0},
    {"hour": 23, "day": "di}"},
    {"hour": 7, "note": ""},
    {"hour": 7, "note": "ü☂:"},
    {"hour": 7, "share": -0.5, "tags": []},
    {"hour": 7, "tags": [True, False], "where": {"x": -3}},
]
INVALID: dict[str, str] = {
    "an undeclared function": "call:other{}",
    "a longer name": "call:planner{hour:1}",
    "no required argument": "call:plan{}",
    "an undeclared argument": "call:plan{hour:1,zoo:1}",
    "an argument twice": "call:plan{hour:1,hour:1}",
    "text for a number": "call:plan{hour:<escape>1<escape>}",
    "a number for text": "call:plan{day:1,hour:1}",
    "a fraction": "call:plan{hour:1.5}",
    "above the maximum": "call:plan{hour:24}",
    "below the minimum": "call:plan{hour:-1}",
    "a value beside the enumeration": "call:plan{day:<escape>so<escape>,hour:1}",
    "a text too long": "call:plan{hour:1,note:<escape>four<escape>}",
    "three items": "call:plan{hour:1,tags:[true,true,true]}",
    "an item of another type": "call:plan{hour:1,tags:[1]}",
    "an object without its member": "call:plan{hour:1,where:{}}",
    "an object with another member": "call:plan{hour:1,where:{x:1,y:2}}",
    "a leading zero": "call:plan{hour:01}",
    "words": "I think call:plan{hour:1}",
}


@pytest.mark.parametrize("arguments", VALID)
def test_a_valid_call_is_let_through(arguments: dict[str, Any]) -> None:
    assert accepts(constraint([TOOL]), segments.text(functiongemma.call("plan", arguments)))


@pytest.mark.parametrize("case", INVALID)
def test_an_invalid_call_is_not(case: str) -> None:
    text = f"<start_function_call>{INVALID[case]}<end_function_call>"

    assert not accepts(constraint([TOOL]), text)


def test_parallel_calls_up_to_the_bound() -> None:
    call = segments.text(functiongemma.call("plan", {"hour": 1}))

    assert accepts(constraint([TOOL], calls=2), call * 2)
    assert not accepts(constraint([TOOL], calls=2), call * 3)


@pytest.mark.parametrize("tools", BY_HAND)
def test_functions_made_by_hand_can_be_called(tools: str) -> None:
    rng = np.random.default_rng(0)
    guard = constraint(BY_HAND[tools], text=10, items=2)
    tokens: list[int] = []
    while not guard.finished:
        token = int(rng.choice(np.flatnonzero(guard.allowed())))
        guard.accept(token)
        if token in vocabulary().stops:
            break
        tokens.append(token)
    check(form().shown(tokens), BY_HAND[tools])


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("b", ["b", "abc", "ab\n"], ["a", ""]),
        ("^b", ["b", "bc"], ["ab"]),
        ("b$", ["b", "ab"], ["bc"]),
        ("^b$", ["b"], ["ab", "bc"]),
        ("a|b", ["xay", "b"], ["c"]),
        ("^a|b$", ["ax", "xb"], ["xa", "bx"]),
        ("^(a|bc)$", ["a", "bc"], ["abc"]),
        (r"^\d+$", ["12"], ["1९", "a"]),
        (r"^[\d,.]+$", ["1,2."], ["९", "a"]),
        (r"^[^\d]$", ["a", "९"], ["1"]),
        (r"^[\D]$", ["a", "९"], ["1"]),
        (r"^\w\s\S\D\W$", ["a .a-"], ["ü .a-", "a .1-", "a  a-"]),
        (r"^a/b\/c$", ["a/b/c"], ["abc"]),
        (r"^\$\.\[\]$", ["$.[]"], ["a.[]"]),
        (r"^[$^\].[]{2}$", ["$^", "[]"], ["ab"]),
        (r"^x{2,3}?y*$", ["xx", "xxxyy"], ["x"]),
        (r"\$", ["a$b"], ["ab"]),
        ("", ["", "x"], []),
    ],
)
def test_patterns_are_json_schemas(pattern: str, inside: list[str], outside: list[str]) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}}
    tools = [{"name": "f", "parameters": schema}]
    for text in inside + outside:
        call = segments.text(functiongemma.call("f", {"a": text}))
        assert accepts(constraint(tools), call) == (text in inside), text


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "string", "not": {"const": "x"}}, "f.a: the keyword not cannot be held to"),
        ({"type": "object", "patternProperties": {}}, "the keyword patternProperties"),
        ({"allOf": [{"type": "string"}]}, "the keyword allOf"),
        ({"type": "string", "minLength": 5, "maxLength": 2}, "minLength 5 is above maxLength 2"),
        ({"type": "array", "minItems": 3, "maxItems": 1}, "minItems 3 is above maxItems 1"),
        ({"type": "string", "pattern": "(^a|b)c"}, r"f.a: pattern .*: \^ cannot be held to"),
        ({"type": "string", "pattern": "^(?=x)y$"}, r"f.a: pattern .*: \(\? cannot be held to"),
        (False, "no value is allowed"),
    ],
)
def test_what_cannot_be_held_to_is_named(schema: Json, words: str) -> None:
    tools = [{"name": "f", "parameters": {"type": "object", "properties": {"a": schema}}}]

    with pytest.raises(RunError, match=words):
        constraint(tools).allowed()


def test_a_token_that_is_not_allowed_is_refused() -> None:
    guard = constraint([TOOL])

    with pytest.raises(RunError, match=r"constrained decoding|token 5 is not allowed"):
        guard.accept(5)


def test_without_functions_there_is_nothing_to_call() -> None:
    with pytest.raises(RunError, match="no function to call"):
        constraint([])


def test_once_a_call_is_begun_it_must_be_valid() -> None:
    tokenizer = bundle().tokenizer
    guard = OnceCalled(constraint([TOOL]), tokenizer)
    for token in tokenizer.encode("w1 w2", bos=False):
        assert guard.allowed() is None
        guard.accept(token)
    guard.accept(tokenizer.control["<start_function_call>"])

    allowed = guard.allowed()
    assert allowed is not None
    assert allowed[tokenizer.encode("call:", bos=False)[0]]
    assert not allowed[tokenizer.eos]
