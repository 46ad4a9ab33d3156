"""Functions as a grammar of llguidance: what a valid call may be, token by token.

The grammar is Lark with llguidance's additions: `<[48]>` is a token by its id, `%json` a JSON
schema (here of numbers alone, because text stands between escapes), `&` and `~` combine regular
expressions. Arguments come in the order in which FunctionGemma's template sorts them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runtime.errors import RunError
from runtime.functions.markers import END_CALL, ESCAPE, START_CALL
from runtime.functions.patterns import whole
from runtime.functions.schema import Function

# Checked when a call is whole: no regular expression says them.
_CHECKED_LATER = frozenset({"uniqueItems", "minProperties", "maxProperties"})
_NO_CONSTRAINT = frozenset(
    {"description", "title", "default", "examples", "format", "additionalProperties", "nullable"}
    | {"$comment", "deprecated", "readOnly", "writeOnly"}
)
_KEYWORDS = {
    "string": {"minLength", "maxLength", "pattern"},
    "integer": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
    "number": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
    "boolean": set(),
    "null": set(),
    "array": {"items", "minItems", "maxItems"},
    "object": {"properties", "required"},
}
_BOUNDS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
# Integers that a float64, and so JSON elsewhere, holds.
_MAX_INTEGER = 2**53 - 1
_PLAIN_NUMBER = r"/-?(0|[1-9][0-9]{0,14})(\.[0-9]{1,15})?([eE][+-]?[0-9]{1,2})?/"


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What keeps a call finite where its schema does not.

    calls: in one reply. text: characters of a string. items: of an array.
    """

    calls: int = 4
    text: int = 256
    items: int = 8


def grammar(functions: Sequence[Function], markers: Mapping[str, int], bounds: Bounds) -> str:
    """The grammar of one to `bounds.calls` calls of the functions.

    markers: ids of the control tokens that the vocabulary has; others are written as text.

    Raises RunError, naming the place, for a keyword that cannot be held to.
    """
    if not functions:
        raise RunError("there is no function to call; pass at least one")
    return _Grammar(markers, bounds).of(functions)


class _Grammar:
    """Rules by name, in the order in which they were made."""

    def __init__(self, markers: Mapping[str, int], bounds: Bounds) -> None:
        self._bounds = bounds
        self._rules: list[str] = []
        self._start, self._end, self._escape = (
            f"<[{markers[name]}]>" if name in markers else _text(name)
            for name in (START_CALL, END_CALL, ESCAPE)
        )
        # Where the marker is text too, a text must not begin it, or the lexer gets lost.
        self._character = "(?s:.)" if ESCAPE in markers else "[^<]"
        self._without = [f"~/(?s:.*){ESCAPE}(?s:.*)/"] if ESCAPE in markers else []

    def of(self, functions: Sequence[Function]) -> str:
        calls = []
        for function in functions:
            members = self._object(function.parameters, function.name)
            calls.append(f"{_text(f'call:{function.name}')} {members}")
        start = f"start: call{{1,{self._bounds.calls}}}"
        call = f"call: {self._start} ( {' | '.join(calls)} ) {self._end}"
        return "\n".join([start, call, *self._rules]) + "\n"

    def _rule(self, body: str) -> str:
        name = f"r{len(self._rules)}"
        self._rules.append(f"{name}: {body}")
        return name

    def _value(self, schema: Any, place: str) -> str:
        """The rule of a value."""
        if schema is True or schema == {}:
            schema = {"type": ["string", "number", "boolean", "null"]}
        if not isinstance(schema, Mapping):
            raise RunError(f"{place}: no value is allowed here; a call cannot be made")
        for union in ("anyOf", "oneOf"):
            if union in schema:
                rest = {key: item for key, item in schema.items() if key != union}
                self._refuse_unknown(rest, set(), place)
                return self._either(
                    [
                        self._value(item, f"{place}.{union}[{i}]")
                        for i, item in enumerate(schema[union])
                    ]
                )
        if "const" in schema or "enum" in schema:
            values = [schema["const"]] if "const" in schema else schema["enum"]
            return self._either([self._literal(item) for item in values])
        kinds = schema.get("type", _inferred(schema))
        kinds = kinds if isinstance(kinds, list) else [kinds]
        self._refuse_unknown(schema, set().union(*(_KEYWORDS[kind] for kind in kinds)), place)
        return self._either([self._typed(kind, schema, place) for kind in kinds])

    def _either(self, rules: Sequence[str]) -> str:
        return rules[0] if len(rules) == 1 else self._rule(" | ".join(rules))

    def _refuse_unknown(self, schema: Mapping[str, Any], known: set[str], place: str) -> None:
        every = {"type", "enum", "const"} | _NO_CONSTRAINT | _CHECKED_LATER | known
        if unknown := set(schema) - every:
            raise RunError(
                f"{place}: the keyword {', '.join(sorted(unknown))} cannot be held to while a call "
                "is generated; say it otherwise, or turn constrained decoding off"
            )

    def _typed(self, kind: str, schema: Mapping[str, Any], place: str) -> str:
        if kind == "string":
            return self._string(schema, place)
        if kind in ("integer", "number"):
            return self._number(kind, schema)
        if kind == "boolean":
            return self._rule('"true" | "false"')
        if kind == "null":
            return self._rule('"null"')
        if kind == "array":
            return self._array(schema, place)
        return self._rule(self._object(schema, place))

    def _string(self, schema: Mapping[str, Any], place: str) -> str:
        least = schema.get("minLength", 0)
        most = min(schema.get("maxLength", self._bounds.text), max(self._bounds.text, least))
        if least > most:
            raise RunError(f"{place}: minLength {least} is above maxLength {most}")
        parts = [f"/{self._character}{{{least},{most}}}/", *self._without]
        if "pattern" in schema:
            parts.append(f"/{whole(schema['pattern'], place)}/")
        name = f"T{len(self._rules)}"
        self._rules.append(f"{name}: {' & '.join(parts)}")
        return self._rule(f"{self._escape} {name} {self._escape}")

    def _number(self, kind: str, schema: Mapping[str, Any]) -> str:
        bounds = {key: schema[key] for key in _BOUNDS & set(schema)}
        if kind == "number" and not bounds:
            name = f"T{len(self._rules)}"
            self._rules.append(f"{name}: {_PLAIN_NUMBER}")
            return self._rule(name)
        if kind == "integer":
            if "exclusiveMinimum" not in bounds:
                bounds.setdefault("minimum", -_MAX_INTEGER)
            if "exclusiveMaximum" not in bounds:
                bounds.setdefault("maximum", _MAX_INTEGER)
        return self._rule(f"%json {json.dumps({'type': kind, **bounds}, sort_keys=True)}")

    def _array(self, schema: Mapping[str, Any], place: str) -> str:
        least = schema.get("minItems", 0)
        most = min(schema.get("maxItems", self._bounds.items), max(self._bounds.items, least))
        if least > most:
            raise RunError(f"{place}: minItems {least} is above maxItems {most}")
        if most == 0:
            return self._rule('"[]"')
        item = self._value(schema.get("items", True), f"{place}[]")
        more = f'("," {item}){{{max(least - 1, 0)},{most - 1}}}'
        items = f'"[" {item} {more} "]"' if most > 1 else f'"[" {item} "]"'
        return self._rule(items if least else f'{items} | "[]"')

    def _object(self, schema: Mapping[str, Any], place: str) -> str:
        """The members between braces: required ones always, each at most once, sorted."""
        self._refuse_unknown(schema, _KEYWORDS["object"], place)
        required = set(schema.get("required", ()))
        members = sorted(schema.get("properties", {}).items(), key=lambda item: item[0].lower())
        after, only = "", ""
        for key, inner in reversed(members):
            pair = f"{_text(f'{key}:')} {self._value(inner, f'{place}.{key}')}"
            # `after` is what may follow a member, `only` what may stand where none came before.
            first = f"{pair} {after}".strip()
            if key in required:
                only, after = first, f'"," {first}'
            else:
                only = f"({first} | {only})" if only else f"({first})?"
                after = f'("," {pair})? {after}'.strip()
            after, only = (self._rule(part) if part else "" for part in (after, only))
        return f'"{{" {only} "}}"' if only else '"{}"'

    def _literal(self, item: Any) -> str:
        """A fixed value, as functiongemma.value writes it."""
        if isinstance(item, str):
            inside = _text(item) if item else ""
            return self._rule(f"{self._escape} {inside} {self._escape}")
        if isinstance(item, Mapping):
            pairs = sorted(item.items(), key=lambda pair: pair[0].lower())
            inside = ' "," '.join(f"{_text(f'{key}:')} {self._literal(one)}" for key, one in pairs)
            return self._rule(f'"{{" {inside} "}}"')
        if isinstance(item, list):
            inside = ' "," '.join(self._literal(one) for one in item)
            return self._rule(f'"[" {inside} "]"')
        return self._rule(_text(json.dumps(item)))


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _inferred(schema: Mapping[str, Any]) -> list[str]:
    """The types that a schema without one must mean by its keywords."""
    kinds = [kind for kind, keywords in _KEYWORDS.items() if keywords & set(schema)]
    if "integer" in kinds and "number" in kinds:
        kinds.remove("integer")
    return kinds or ["string", "number", "boolean", "null"]
