"""Random schemas of every kind that a call may be held to, and random arguments that fit one."""

from __future__ import annotations

import random
from typing import Any

from runtime.functions.values import Json

_NAMES = (
    "a",
    "B",
    "b",
    "ab",
    "aB",
    "größe",
    "天気",
    "x y",
    "n-1",
    "d.e",
    "_",
    "%",
    "$ref",
    '"',
    "\\",
)
_TEXTS = (
    "",
    "a",
    "ab",
    "abc",
    "}",
    "{a:1}",
    '"',
    "\\",
    "<",
    "<esc",
    "ü☂",
    "天気",
    "true",
    "1",
    " ",
    "\n",
    "\x7f",
    "\x01",
)
# Each with texts that match.
_PATTERNS: dict[str, tuple[str, ...]] = {
    "^[a-z]{2,4}$": ("ab", "abcd"),
    r"^\d{2}:[0-5]\d$": ("07:30", "99:59"),
    "b": ("b", "abc", "x\nb"),
    r"^\S+$": ("a", "}{"),
    r"^[^\W\d]+$|": ("",),
    r"\D$": ("a", "1a"),
    r"^\W*$": ("", "-- "),
    r"^(a|bc)\.?$": ("a", "bc."),
    r"[&~]{2}": ("&&", "~~x", "&~"),
    r"^[+--]$": (",", "-", "+"),
    "/": ("/", "a/b"),
}


def random_tools(seed: int, depth: int = 3) -> list[dict[str, Any]]:
    """One to three functions, some with names that begin like another's."""
    rng = random.Random(seed)
    names = rng.sample(["f", "fo", "foo", "f.o", "g-1"], rng.randint(1, 3))
    return [{"name": name, "parameters": _object(rng, depth)} for name in names]


def random_arguments(schema: Json, rng: random.Random) -> Json:
    """A value that fits a schema of `random_tools`."""
    if "const" in schema or "enum" in schema:
        return rng.choice(schema["enum"]) if "enum" in schema else schema["const"]
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return random_arguments(rng.choice(schema[union]), rng)
    kind = schema["type"]
    kind = rng.choice(kind) if isinstance(kind, list) else kind
    makers = {
        "string": _text,
        "integer": _whole,
        "number": _decimal,
        "boolean": lambda _schema, rng: rng.random() < 0.5,
        "null": lambda _schema, _rng: None,
        "array": _items,
        "object": _members,
    }
    return makers[kind](schema, rng)


def _whole(schema: dict[str, Any], rng: random.Random) -> int:
    low = schema.get("minimum", schema.get("exclusiveMinimum", -1001) + 1)
    high = schema.get("maximum", schema.get("exclusiveMaximum", low + 2001) - 1)
    step = schema.get("multipleOf", 1)
    return rng.randrange(-(-low // step) * step, high + 1, step)


def _decimal(schema: dict[str, Any], rng: random.Random) -> float:
    low, high = schema.get("minimum", -10), schema.get("maximum", 10)
    return float(rng.choice([low, high, round(rng.uniform(low, high), 2)]))


def _items(schema: dict[str, Any], rng: random.Random) -> list[Any]:
    count = rng.randint(schema.get("minItems", 0), schema.get("maxItems", 2))
    items = [random_arguments(schema["items"], rng) for _ in range(count)]
    different = [item for index, item in enumerate(items) if item not in items[:index]]
    return different if schema.get("uniqueItems") else items


def _members(schema: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    return {
        key: random_arguments(inner, rng)
        for key, inner in schema.get("properties", {}).items()
        if key in schema.get("required", ()) or rng.random() < 0.5
    }


def _text(schema: dict[str, Any], rng: random.Random) -> str:
    if "pattern" in schema:
        return rng.choice(_PATTERNS[str(schema["pattern"])])
    least, most = schema.get("minLength", 0), schema.get("maxLength", 6)
    text = "".join(rng.choice(_TEXTS) for _ in range(rng.randint(0, 3)))[:most]
    return text.ljust(int(least), "z")


def _object(rng: random.Random, depth: int) -> dict[str, Any]:
    names = rng.sample(_NAMES, rng.randint(0, 4))
    required = [name for name in names if rng.random() < 0.5]
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: _value(rng, depth) for name in names},
    }
    return {**schema, "required": required} if required else schema


def _value(rng: random.Random, depth: int) -> dict[str, Any]:
    leaves = (_string, _pattern, _enum, _const, _integer, _number, _plain, _nullable, _union)
    make = rng.choice([*leaves, *[None] * 6] if depth else leaves)
    if make is not None:
        return make(rng)
    nested = rng.choice([_array, _object])
    return rng.choice([_array_of_choices(rng), nested(rng, depth - 1)])


def _string(rng: random.Random) -> dict[str, Any]:
    low = rng.randint(0, 3)
    bounds = {"minLength": low, "maxLength": low + rng.randint(0, 5)}
    return {"type": "string", **{key: bounds[key] for key in bounds if rng.random() < 0.7}}


def _pattern(rng: random.Random) -> dict[str, Any]:
    return {"type": "string", "pattern": rng.choice(list(_PATTERNS))}


def _enum(rng: random.Random) -> dict[str, Any]:
    texts = rng.sample(_TEXTS, rng.randint(1, 5))
    if rng.random() < 0.5:
        return {"type": "string", "enum": texts}
    return {
        "enum": [
            *texts,
            rng.randint(-9, 99),
            1.5,
            1e16,
            None,
            True,
            [1, "a"],
            {"k": {}, "j": texts},
        ]
    }


def _const(rng: random.Random) -> dict[str, Any]:
    return {"const": rng.choice([*_TEXTS, 0, 10, -0.5, False, None, [], {}])}


def _integer(rng: random.Random) -> dict[str, Any]:
    low = rng.randint(-1000, 1000)
    high = low + rng.randint(20, 3000)
    schema: dict[str, Any] = {"type": "integer"}
    if rng.random() < 0.6:
        schema[rng.choice(["minimum", "exclusiveMinimum"])] = low
    if rng.random() < 0.6:
        schema[rng.choice(["maximum", "exclusiveMaximum"])] = high
    if rng.random() < 0.2:
        schema["multipleOf"] = rng.choice([1, 2, 5, 7, 10])
    return schema


def _number(rng: random.Random) -> dict[str, Any]:
    low = rng.choice([0, -0.25, -3, 0.1, 2.5])
    return rng.choice(
        [
            {"type": "number"},
            {"type": "number", "minimum": low, "maximum": low + rng.choice([1, 0.5, 100])},
        ]
    )


def _plain(rng: random.Random) -> dict[str, Any]:
    return {"type": rng.choice(["boolean", "null", "string", "number", "integer"])}


def _nullable(rng: random.Random) -> dict[str, Any]:
    kinds = rng.sample(["string", "integer", "boolean", "null"], rng.randint(2, 3))
    return {"type": kinds}


def _union(rng: random.Random) -> dict[str, Any]:
    integer = {"type": "integer", "minimum": 0, "maximum": 20}
    branches: list[dict[str, Any]] = [
        {"type": "string", "maxLength": 3},
        {"enum": ["on", "off", 5]},
        {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
        {"type": "object", "properties": {"k": {"const": 1}}, "required": ["k"]},
        {"type": "null"},
    ]
    if rng.random() < 0.5:
        return {"anyOf": rng.sample([*branches, integer, {"type": "number"}], 3)}
    return {"oneOf": [integer, *rng.sample(branches[2:], 2), {"type": "string", "minLength": 2}]}


def _array(rng: random.Random, depth: int) -> dict[str, Any]:
    low = rng.randint(0, 2)
    bounds = {"minItems": low, "maxItems": low + rng.randint(0, 2)}
    return {
        "type": "array",
        "items": _value(rng, depth),
        **(bounds if rng.random() < 0.7 else {}),
    }


def _array_of_choices(rng: random.Random) -> dict[str, Any]:
    items = rng.choice([{"enum": ["a", "b", "ab", 1]}, {"type": "boolean"}, {"const": "x"}])
    return {"type": "array", "items": items, "uniqueItems": True}
