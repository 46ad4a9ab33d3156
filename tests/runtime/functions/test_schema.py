"""Functions from JSON: what is read, what is refused and where, and arguments checked."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.errors import RunError
from runtime.functions.check import check_arguments
from runtime.functions.schema import Function, load_functions


def one(parameters: dict[str, Any], name: str = "f") -> Function:
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


def _doubling(levels: int) -> dict[str, Any]:
    """References whose schema grows fourfold a level."""
    definitions: dict[str, Any] = {f"D{levels}": {"type": "string"}}
    for level in range(levels):
        inner = {"$ref": f"#/$defs/D{level + 1}"}
        definitions[f"D{level}"] = {"type": "object", "properties": dict.fromkeys("abcd", inner)}
    return {"type": "object", "$defs": definitions, "properties": {"a": {"$ref": "#/$defs/D0"}}}


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
    "a schema that is true": (
        [{"name": "f", "parameters": True}],
        "parameters: bool, a JSON Schema",
    ),
    "a reference to the whole": (
        [{"name": "f", "parameters": {"type": "object", "properties": {"a": {"$ref": "#"}}}}],
        "# refers to the whole",
    ),
    "a reference through a text": (
        [
            {
                "name": "f",
                "parameters": {"type": "object", "properties": {"a": {"$ref": "#/type/x"}}},
            }
        ],
        "'#/type/x' is not in the schema",
    ),
    "a reference that is contradicted": (
        [
            {
                "name": "f",
                "parameters": {
                    "type": "object",
                    "$defs": {"N": {"type": "integer", "maximum": 5}},
                    "properties": {"a": {"$ref": "#/$defs/N", "maximum": 9}},
                },
            }
        ],
        "properties.a: maximum is here and in #/\\$defs/N; say it once",
    ),
    "references that multiply": ([{"name": "f", "parameters": _doubling(12)}], "more than 2000"),
    "far too deep": ([{"name": "f", "parameters": _deep(300)}], "nested"),
    "an infinite constant": (
        [
            {
                "name": "f",
                "parameters": {"type": "object", "properties": {"a": {"const": float("inf")}}},
            }
        ],
        "inf is no number",
    ),
    "a constant with a name that is none": (
        [
            {
                "name": "f",
                "parameters": {"type": "object", "properties": {"a": {"const": {"x:": 1}}}},
            }
        ],
        "the name 'x:' has no place",
    ),
    "half a surrogate pair": (
        [
            {
                "name": "f",
                "parameters": {"type": "object", "properties": {"a": {"enum": ["\ud800"]}}},
            }
        ],
        "has no place in a call",
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
        r"parameters.properties.a: the text '<escape>' has no place",
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


@pytest.mark.parametrize("name", ["definitions", "$defs", "$ref", "$schema", "items", "anyOf"])
def test_an_argument_may_have_a_keywords_name(name: str) -> None:
    schema = {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}

    assert one(schema).parameters == schema


def test_references_may_lead_through_lists_and_escaped_names() -> None:
    found = one(
        {
            "type": "object",
            "$defs": {"a/b c": {"anyOf": [{"type": "null"}, {"type": "boolean"}]}},
            "properties": {
                "x": {"$ref": "#/$defs/a~1b%20c/anyOf/1"},
                "y": {"enum": [{"$ref": "a value"}]},
            },
        }
    )

    assert found.parameters["properties"] == {
        "x": {"type": "boolean"},
        "y": {"enum": [{"$ref": "a value"}]},
    }


def test_without_parameters_none_are_declared() -> None:
    function = load_functions([{"name": "f"}])[0]

    assert function.parameters == {}
    check_arguments(function, {})
    with pytest.raises(RunError, match="Additional properties"):
        check_arguments(function, {"a": 1})


def test_alternatives_may_require_what_is_declared_beside_them() -> None:
    function = one(
        {
            "type": "object",
            "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
            "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
        }
    )

    check_arguments(function, {"b": "x"})
    with pytest.raises(RunError, match="not valid under any"):
        check_arguments(function, {})


@pytest.mark.parametrize(
    ("schema", "fits", "not_so"),
    [
        ({"type": "number", "multipleOf": 0.1}, [0.3, 0.7, 1, 2.1], [0.35]),
        ({"type": "string", "pattern": r"^\d\w$"}, ["1a"], ["९a", "1ü"]),
        ({"type": "string", "nullable": True}, ["x", None], [1]),
        ({"enum": ["x"], "nullable": True}, ["x", None], ["y"]),
        ({"type": "string", "nullable": False}, ["x"], [None]),
    ],
)
def test_arguments_are_read_as_a_call_is_generated(
    schema: dict[str, Any], fits: list[Any], not_so: list[Any]
) -> None:
    function = one({"type": "object", "properties": {"a": schema}})
    for value in fits:
        check_arguments(function, {"a": value})
    for value in not_so:
        with pytest.raises(RunError, match=r"f\.a: "):
            check_arguments(function, {"a": value})


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
