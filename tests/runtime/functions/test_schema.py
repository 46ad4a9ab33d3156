"""Functions from JSON: what is read, what is refused and where, and arguments checked."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.errors import RunError
from runtime.functions.schema import Function, check_arguments, load_functions


def one(parameters: Any, name: Any = "f") -> Function:
    return load_functions([{"name": name, "description": "d", "parameters": parameters}])[0]


def test_openais_form_and_the_bare_one_are_the_same() -> None:
    bare = {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}

    assert load_functions([{"type": "function", "function": bare}]) == load_functions([bare])


def test_references_are_resolved() -> None:
    found = one(
        {
            "type": "object",
            "$defs": {
                "City": {"type": "string", "enum": ["Rom"]},
                "List": {"type": "array", "items": {"$ref": "#/$defs/City"}},
            },
            "properties": {"cities": {"$ref": "#/$defs/List", "description": "Which"}},
        }
    )

    assert found.parameters == {
        "type": "object",
        "properties": {
            "cities": {
                "type": "array",
                "items": {"type": "string", "enum": ["Rom"]},
                "description": "Which",
            }
        },
    }


def _deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


LOOP = {
    "type": "object",
    "$defs": {"T": {"type": "object", "properties": {"t": {"$ref": "#/$defs/T"}}}},
    "properties": {"t": {"$ref": "#/$defs/T"}},
}
WRONG: dict[str, tuple[Any, str]] = {
    "no list": ({"name": "f"}, "tools: dict was found"),
    "a number": ([3], r"tools\[0\]: int was found"),
    "another type": ([{"type": "retrieval", "function": {}}], r"tools\[0\].type: 'retrieval'"),
    "no name": ([{"description": "x"}], r"tools\[0\].name: None"),
    "a name with a space": ([{"name": "a b"}], r"tools\[0\].name: 'a b'"),
    "a long name": ([{"name": "a" * 65}], "1 to 64 letters"),
    "a name twice": ([{"name": "f"}, {"name": "f"}], r"tools\[1\].name: 'f' is there twice"),
    "a description of numbers": ([{"name": "f", "description": 3}], "description: int, text"),
    "no schema": (
        [{"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "text"}}}}],
        r"tools\[0\].parameters.properties.a.type: no JSON Schema",
    ),
    "arguments that are a list": (
        [{"name": "f", "parameters": {"type": "array"}}],
        "are an object",
    ),
    "an endless reference": ([{"name": "f", "parameters": LOOP}], "#/\\$defs/T refers to itself"),
    "a reference to nothing": (
        [{"name": "f", "parameters": {"type": "object", "properties": {"a": {"$ref": "#/no"}}}}],
        "'#/no' is not in the schema",
    ),
    "a reference elsewhere": (
        [
            {
                "name": "f",
                "parameters": {"type": "object", "properties": {"a": {"$ref": "http://x/y"}}},
            }
        ],
        "is not in the schema",
    ),
    "too deep": ([{"name": "f", "parameters": _deep(20)}], "nested deeper than 16"),
    "a required argument that is none": (
        [{"name": "f", "parameters": {"type": "object", "required": ["a"]}}],
        r"parameters.required: 'a' is no property",
    ),
    "an enumeration with an escape": (
        [
            {
                "name": "f",
                "parameters": {"type": "object", "properties": {"a": {"enum": ["<escape>"]}}},
            }
        ],
        r"parameters.a: a value that holds <escape>",
    ),
    **{
        f"an argument named {name!r}": (
            [
                {
                    "name": "f",
                    "parameters": {"type": "object", "properties": {name: {"type": "string"}}},
                }
            ],
            words,
        )
        for name, words in {
            "a:b": "has no place in a call",
            "a}": "has no place in a call",
            "": "has no place in a call",
            " a": "has no place in a call",
            "<escape>": "has no place in a call",
            "type": "a word of the form",
            "description": "a word of the form",
        }.items()
    },
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_a_function_is_named_by_its_place(case: str) -> None:
    value, words = WRONG[case]

    with pytest.raises(RunError, match=words):
        load_functions(value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "f: 'a' is a required property"),
        ({"a": "x"}, "f.a: 'x' is not of type 'integer'"),
        ({"a": 1, "b": "z"}, "f.b: 'z' is not one of"),
        ({"a": 1, "c": 1}, r"f: Additional properties are not allowed \('c'"),
        ({"a": True}, "f.a: True is not of type 'integer'"),
        ({"a": 1, "o": {"n": 3}}, "f.o.n: 3 is not of type 'string'"),
    ],
)
def test_arguments_that_are_not_as_declared_are_named(
    arguments: dict[str, Any], words: str
) -> None:
    function = one(
        {
            "type": "object",
            "properties": {
                "a": {"type": "integer"},
                "b": {"enum": ["x", "y"]},
                "o": {"type": "object", "properties": {"n": {"type": "string"}}},
            },
            "required": ["a"],
        }
    )
    check_arguments(function, {"a": 1, "b": "x", "o": {"n": "s"}})

    with pytest.raises(RunError, match=words):
        check_arguments(function, arguments)
