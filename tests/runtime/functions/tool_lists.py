"""Lists of functions: some made by hand for what is hard about them, and random ones."""

from __future__ import annotations

import random
import string
from typing import Any

# By what is particular about each.
BY_HAND: dict[str, list[dict[str, Any]]] = {
    "a description that ends in a period": [
        {
            "name": "set_torch",
            "description": "Turn the torch on or off.",
            "parameters": {
                "type": "object",
                "properties": {"on": {"type": "boolean", "description": "Torch state"}},
                "required": ["on"],
            },
        }
    ],
    "unsorted keys of both cases": [
        {
            "name": "route",
            "description": "Finds a way",
            "parameters": {
                "required": ["zoo", "Alpha"],
                "properties": {
                    "zoo": {"type": "string", "description": "z"},
                    "beta": {"type": "number", "description": "b"},
                    "Alpha": {"description": "a", "type": "integer"},
                    "alpha2": {"type": "string", "description": "a2"},
                },
                "type": "object",
            },
        }
    ],
    "an enumeration": [
        {
            "name": "light",
            "description": "Sets a lamp",
            "parameters": {
                "type": "object",
                "properties": {
                    "colour": {
                        "type": "string",
                        "description": "Which",
                        "enum": ["red", "grün", 'say "hi"', "a,b:{c}"],
                    }
                },
            },
        }
    ],
    "objects in objects": [
        {
            "name": "book",
            "description": "Books a trip",
            "parameters": {
                "type": "object",
                "properties": {
                    "trip": {
                        "type": "object",
                        "description": "The trip",
                        "properties": {
                            "to": {"type": "string", "description": "Where"},
                            "guest": {
                                "type": "object",
                                "description": "Who",
                                "properties": {"name": {"type": "string", "description": "n"}},
                                "required": ["name"],
                            },
                        },
                        "required": ["to", "guest"],
                    }
                },
                "required": ["trip"],
            },
        }
    ],
    "lists of texts and of objects": [
        {
            "name": "shop",
            "description": "Buys",
            "parameters": {
                "type": "object",
                "properties": {
                    "tags": {
                        "type": "array",
                        "description": "Tags",
                        "items": {"type": "string"},
                    },
                    "goods": {
                        "type": "array",
                        "description": "Goods",
                        "items": {
                            "type": "object",
                            "description": "One",
                            "properties": {
                                "count": {"type": "integer", "description": "How many"},
                                "article": {"type": "string", "description": "What"},
                            },
                            "required": ["article"],
                        },
                    },
                },
            },
        }
    ],
    "unicode": [
        {
            "name": "wetter",
            "description": "Wie wird das Wetter? 天気 ☂ 👩‍👩‍👧",
            "parameters": {
                "type": "object",
                "properties": {"stadt": {"type": "string", "description": "Größe 東京"}},
            },
        }
    ],
    "nothing to give": [
        {"name": "now", "description": "The time", "parameters": {"type": "object"}},
        {"name": "stop", "description": "Ends it"},
    ],
}


def random_functions(seed: int, count: int = 3) -> list[dict[str, Any]]:
    """Functions with nested arguments of every kind that calls may hold."""
    rng = random.Random(seed)
    return [
        {
            "name": f"{_word(rng)}_{index}",
            "description": _sentence(rng),
            "parameters": _object(rng, 3),
        }
        for index in range(rng.randint(1, count))
    ]


def _word(rng: random.Random) -> str:
    return "".join(rng.choices(string.ascii_letters, k=rng.randint(1, 8)))


def _sentence(rng: random.Random) -> str:
    return " ".join(
        rng.choice(["the", "größte", "list,", "{of}", "天気", "a:b.", "☂"]) for _ in range(5)
    )


def _object(rng: random.Random, depth: int) -> dict[str, Any]:
    names = sorted({f"{_word(rng)}x" for _ in range(rng.randint(0, 4))})
    rng.shuffle(names)
    properties = {name: _value(rng, depth) for name in names}
    required = [name for name in names if rng.random() < 0.5]
    return {"type": "object", "properties": properties, "required": required}


def _value(rng: random.Random, depth: int) -> dict[str, Any]:
    kinds = ["string", "enum", "integer", "number", "boolean", "pattern", "union", "bounded"]
    kind = rng.choice(kinds + (["object", "array"] * 2 if depth else []))
    described = {"description": _sentence(rng)}
    match kind:
        case "enum":
            return {**described, "type": "string", "enum": ["a", "ü{}", 'q"u,o:te', "", "<b>"]}
        case "pattern":
            return {**described, "type": "string", "pattern": r"^\d{2}:[0-5]\d$"}
        case "union":
            return {**described, "anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 4}]}
        case "bounded":
            low = rng.randint(-50, 50)
            return {**described, "type": "integer", "minimum": low, "maximum": low + 30}
        case "string":
            low = rng.randint(0, 4)
            return {**described, "type": "string", "minLength": low, "maxLength": low + 5}
        case "object":
            return {**described, **_object(rng, depth - 1)}
        case "array":
            low = rng.randint(0, 2)
            items = _value(rng, depth - 1)
            return {
                **described,
                "type": "array",
                "items": items,
                "minItems": low,
                "maxItems": low + 2,
            }
    return {**described, "type": [kind, "null"] if rng.random() < 0.2 else kind}
