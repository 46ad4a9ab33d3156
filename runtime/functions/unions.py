"""Alternatives of a schema: what each of them allows, and whether two can be told apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from runtime.errors import RunError
from runtime.functions.check import fits
from runtime.functions.values import Json

# A number is an integer or it is not; JSON Schema's `number` is both.
_KINDS = {
    "array": {"array"},
    "boolean": {"boolean"},
    "integer": {"integer"},
    "null": {"null"},
    "number": {"integer", "fraction"},
    "object": {"object"},
    "string": {"string"},
}
_EVERY = frozenset().union(*_KINDS.values())
_MAX_DISTINCT = 6


def branches(schema: Mapping[str, Any], place: str) -> list[tuple[str, Any]]:
    """The alternatives of anyOf or oneOf and their places, held to the types beside them.

    Raises RunError, naming the place, where both are there, where a value could fit two of oneOf,
    and where nothing is left.
    """
    if "anyOf" in schema and "oneOf" in schema:
        raise RunError(f"{place}: anyOf beside oneOf cannot be held to; write one of them")
    union = "anyOf" if "anyOf" in schema else "oneOf"
    inner = [
        (f"{union}[{index}]", _typed({} if one is True else one, schema.get("type")))
        for index, one in enumerate(schema[union])
    ]
    left = [(where, one) for where, one in inner if one is not False]
    if not left:
        raise RunError(f"{place}: no alternative of {union} can be; a call cannot be made")
    if union == "oneOf":
        for (where, one), (other_where, other) in combinations(left, 2):
            if not _disjoint(one, other):
                raise RunError(
                    f"{place}: {where} and {other_where} could both fit a value, which oneOf "
                    "excludes; write anyOf, or types or constants that tell them apart"
                )
    return left


def distinct_values(schema: Json, place: str) -> list[Any]:
    """The values of the items of a set, of which there must be few.

    Raises RunError, naming the place, where there are many.
    """
    values = _values(schema)
    if values is None:
        raise RunError(
            f"{place}: uniqueItems cannot be held to for these items while a call is generated; it "
            f"can for an enumeration of at most {_MAX_DISTINCT}, or with maxItems 1"
        )
    found: list[Any] = []
    for value in values:
        if not any(fits(value, {"const": other}) for other in found):
            found.append(value)
    if len(found) > _MAX_DISTINCT:
        raise RunError(
            f"{place}: uniqueItems can be held to for at most {_MAX_DISTINCT} values, here are "
            f"{len(found)}"
        )
    return found


def _typed(schema: Json, kinds: str | Sequence[str] | None) -> Json:
    """The schema held to some types as well; False where nothing is left."""
    if kinds is None or schema is False:
        return schema
    outer = [kinds] if isinstance(kinds, str) else kinds
    own = schema.get("type", list(_KINDS))
    own = [own] if isinstance(own, str) else own
    own = [*own, "null"] if schema.get("nullable") is True else own
    both = {
        one if _KINDS[one] <= _KINDS[other] else other
        for one in own
        for other in outer
        if _KINDS[one] & _KINDS[other]
    }
    return {**schema, "type": sorted(both), "nullable": False} if both else False


def _disjoint(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether no value fits both; False where that is not plain to see."""
    for schema, against in ((one, other), (other, one)):
        values = _values(schema)
        if values is not None and not any(fits(value, against) for value in values):
            return True
    common = _kinds(one) & _kinds(other)
    if common != {"object"}:
        return not common
    return any(
        _disjoint(one["properties"][key], other["properties"][key])
        for key in set(one.get("required", ())) & set(other.get("required", ()))
        if all(isinstance(side.get("properties", {}).get(key), Mapping) for side in (one, other))
    )


def _kinds(schema: Mapping[str, Any]) -> frozenset[str]:
    kinds = schema.get("type")
    if kinds is None:
        return _EVERY
    kinds = [kinds] if isinstance(kinds, str) else kinds
    nullable = {"null"} if schema.get("nullable") is True else set()
    return frozenset(nullable.union(*(_KINDS[kind] for kind in kinds)))


def _values(schema: Json) -> list[Any] | None:
    """Every value that fits, where there are few; None where there are not."""
    if not isinstance(schema, Mapping):
        return None
    if "enum" in schema or "const" in schema:
        values = schema["enum"] if "enum" in schema else [schema["const"]]
    elif _kinds(schema) <= {"boolean", "null"}:
        values = [True, False, None]
    else:
        return None
    return [value for value in values if fits(value, schema)]
