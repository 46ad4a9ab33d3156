"""Functions as a grammar of llguidance: what a valid call may be, token by token.

The grammar is Lark with llguidance's additions: `<[48]>` is a token by its id, `%json` a JSON
schema (here of multiples alone), `&` and `~` combine regular expressions. Arguments come in the
order in which FunctionGemma's template sorts them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from runtime.errors import RunError
from runtime.functions.check import fits
from runtime.functions.decimals import Interval, decimals
from runtime.functions.markers import END_CALL, ESCAPE, START_CALL
from runtime.functions.members import member_rules, set_rules
from runtime.functions.patterns import has_match, whole
from runtime.functions.schema import Function
from runtime.functions.unions import branches, distinct_values
from runtime.functions.values import Json

_NOTES = frozenset(
    {"description", "title", "default", "examples", "format", "additionalProperties", "nullable"}
    | {"$comment", "deprecated", "readOnly", "writeOnly"}
)

_OF_NUMBERS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
_KEYWORDS: dict[str, set[str]] = {
    "string": {"minLength", "maxLength", "pattern"},
    "number": _OF_NUMBERS,
    "integer": _OF_NUMBERS,
    "boolean": set(),
    "null": set(),
    "array": {"items", "minItems", "maxItems", "uniqueItems"},
    "object": {"properties", "required", "minProperties", "maxProperties"},
}
_KNOWN = set().union(*_KEYWORDS.values())
_ANYTHING = ["string", "number", "boolean", "null"]
# Models write JSON's word, and the one that chat templates print.
_NULL = '"null" | "None"'
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

    markers: ids of the markers that the vocabulary has as tokens; others are written as text.

    Raises RunError, naming the place, for a keyword that cannot be held to, and for a schema that
    nothing fits.
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
        calls = [
            f"{_text(f'call:{function.name}')} {self._object(function.parameters, function.name)}"
            for function in functions
        ]
        start = f"start: call{{1,{self._bounds.calls}}}"
        call = f"call: {self._start} ( {' | '.join(calls)} ) {self._end}"
        return "\n".join([start, call, *self._rules]) + "\n"

    def _rule(self, body: str) -> str:
        name = f"r{len(self._rules)}"
        self._rules.append(f"{name}: {body}")
        return name

    def _terminal(self, body: str) -> str:
        name = f"T{len(self._rules)}"
        self._rules.append(f"{name}: {body}")
        return name

    def _either(self, rules: Sequence[str]) -> str:
        return rules[0] if len(rules) == 1 else self._rule(" | ".join(rules))

    def _value(self, schema: Json, place: str) -> str:
        """The rule of a value."""
        if schema is True:
            schema = {}
        if not isinstance(schema, Mapping):
            raise RunError(f"{place}: no value is allowed here; a call cannot be made")
        if "const" in schema or "enum" in schema:
            return self._listed(schema, place)
        rules = [self._rule(_NULL)] if schema.get("nullable") is True else []
        if "anyOf" in schema or "oneOf" in schema:
            _refuse_unknown(schema, {"anyOf", "oneOf"}, place)
            inner = branches(schema, place)
            rules += [self._value(one, f"{place}.{where}") for where, one in inner]
            return self._either(rules)
        kinds = schema.get("type", _inferred(schema))
        kinds = kinds if isinstance(kinds, list) else [kinds]
        # A keyword of another type says nothing about values of these.
        _refuse_unknown(schema, _KNOWN, place)
        return self._either(rules + [self._typed(kind, schema, place) for kind in kinds])

    def _listed(self, schema: Mapping[str, Any], place: str) -> str:
        """Of an enumeration or a constant, the values that the other keywords allow."""
        values = schema["enum"] if "enum" in schema else [schema["const"]]
        values = [*values, None] if schema.get("nullable") is True else values
        allowed = [value for value in values if fits(value, schema)]
        if not allowed:
            raise RunError(f"{place}: none of {values!r} fits what else is said of it")
        return self._either([self._literal(value) for value in allowed])

    def _typed(self, kind: str, schema: Mapping[str, Any], place: str) -> str:
        makers: dict[str, Callable[[Mapping[str, Any], str], str]] = {
            "string": self._string,
            "integer": self._integer,
            "number": self._number,
            "array": self._array,
            "object": lambda schema, place: self._rule(self._object(schema, place)),
            "boolean": lambda _schema, _place: self._rule('"true" | "false"'),
            "null": lambda _schema, _place: self._rule(_NULL),
        }
        return makers[kind](schema, place)

    def _string(self, schema: Mapping[str, Any], place: str) -> str:
        least, most = self._span(schema, ("minLength", "maxLength"), self._bounds.text, place)
        parts = [f"/{self._character}{{{least},{most}}}/", *self._without]
        if "pattern" in schema:
            parts.append(f"/{whole(schema['pattern'], place)}/")
            if not has_match(" & ".join(parts)):
                raise RunError(
                    f"{place}: no text of {least} to {most} characters matches the pattern "
                    f"{schema['pattern']!r}"
                )
        return self._rule(f"{self._escape} {self._terminal(' & '.join(parts))} {self._escape}")

    def _integer(self, schema: Mapping[str, Any], place: str) -> str:
        step = Fraction(str(schema.get("multipleOf", 1))).numerator
        interval = _interval(schema, place)
        low, high = interval.scaled(0)
        if -(-low // step) * step > high:
            raise RunError(f"{place}: no integer fits {_said(schema, _OF_NUMBERS)}")
        if step == 1:
            return self._rule(self._terminal(f"/{decimals(interval, 0)}/"))
        multiples = {"type": "integer", "multipleOf": step, "minimum": low, "maximum": high}
        return self._rule(f"%json {json.dumps(multiples)}")

    def _number(self, schema: Mapping[str, Any], place: str) -> str:
        if not _OF_NUMBERS & schema.keys():
            return self._rule(self._terminal(_PLAIN_NUMBER))
        interval = _interval(schema, place)
        places = interval.places
        if "multipleOf" in schema:
            step = Fraction(str(schema["multipleOf"]))
            if step.denominator == 1:
                return self._integer(schema, place)
            places = len(str(step.denominator)) - 1
            if step != Fraction(1, 10**places):
                raise RunError(
                    f"{place}: multiples of {schema['multipleOf']} cannot be held to while a call "
                    "is generated; multiples of integers, 0.1, 0.01 … can"
                )
        body = decimals(interval, places)
        if body is None:
            raise RunError(f"{place}: no number fits {_said(schema, _OF_NUMBERS)}")
        return self._rule(self._terminal(f"/{body}/"))

    def _array(self, schema: Mapping[str, Any], place: str) -> str:
        least, most = self._span(schema, ("minItems", "maxItems"), self._bounds.items, place)
        if most == 0:
            return self._rule('"[]"')
        items = schema.get("items", True)
        if schema.get("uniqueItems") and most > 1:
            literals = [self._literal(one) for one in distinct_values(items, place)]
            if least > len(literals):
                raise RunError(f"{place}: there are no {least} different items")
            body = set_rules(literals, least, min(most, len(literals)), self._rule)
            return self._rule(f'"[" {body} "]"')
        item = self._value(items, f"{place}[]")
        more = f'("," {item}){{{max(least - 1, 0)},{most - 1}}}'
        some = f'"[" {item} {more} "]"' if most > 1 else f'"[" {item} "]"'
        return self._rule(some if least else f'{some} | "[]"')

    def _span(
        self, schema: Mapping[str, Any], names: tuple[str, str], default: int, place: str
    ) -> tuple[int, int]:
        """A length's bounds: the schema's, and the default where it has none above."""
        least = schema.get(names[0], 0)
        most = schema.get(names[1], max(default, least))
        if least > most:
            raise RunError(f"{place}: {names[0]} {least} is above {names[1]} {most}")
        return int(least), int(most)

    def _object(self, schema: Mapping[str, Any], place: str) -> str:
        """The members between braces: required ones always, each at most once, sorted."""
        _refuse_unknown(schema, _KNOWN, place)
        required = set(schema.get("required", ()))
        members = sorted(schema.get("properties", {}).items(), key=lambda item: item[0].lower())
        pairs = [
            (f"{_text(f'{key}:')} {self._value(inner, f'{place}.{key}')}", key in required)
            for key, inner in members
        ]
        least, most = schema.get("minProperties", 0), schema.get("maxProperties")
        body = member_rules(pairs, least, most, self._rule)
        if body is None:
            raise RunError(f"{place}: no object fits {_said(schema, _KEYWORDS['object'])}")
        return f'"{{" {body} "}}"' if body else '"{}"'

    def _literal(self, item: Json) -> str:
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
        return self._rule(_NULL if item is None else _text(json.dumps(item)))


def _text(text: str) -> str:
    """A literal of Lark, whose lexer takes printable ASCII."""
    return json.dumps(text)


def _refuse_unknown(schema: Mapping[str, Any], known: set[str], place: str) -> None:
    if unknown := schema.keys() - known - _NOTES - {"type"}:
        raise RunError(
            f"{place}: the keyword {', '.join(sorted(unknown))} cannot be held to while a call is "
            "generated; say it otherwise, or turn constrained decoding off (--noconstrained)"
        )


def _inferred(schema: Mapping[str, Any]) -> list[str]:
    """The types that a schema without one must mean by its keywords."""
    kinds = [kind for kind, keywords in _KEYWORDS.items() if keywords & schema.keys()]
    return [kind for kind in kinds if kind != "integer"] or _ANYTHING


def _interval(schema: Mapping[str, Any], place: str) -> Interval:
    names = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
    least, most, above, below = bounds = [schema.get(name) for name in names]
    if any(bound is not None and bound - bound != 0 for bound in bounds):
        raise RunError(f"{place}: a bound of {_said(schema, _OF_NUMBERS)} is no number")
    return Interval(least=least, most=most, above=above, below=below)


def _said(schema: Mapping[str, Any], keywords: set[str]) -> str:
    """What the schema says by these keywords, for a message."""
    return json.dumps({key: schema[key] for key in schema if key in keywords}, ensure_ascii=False)
