"""Replaces the references of a JSON Schema by what they name; names and values stay as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from runtime.errors import RunError
from runtime.functions.values import Json

# Keywords whose value is a schema, a list of schemas, or schemas by name (draft 2020-12).
_ONE = frozenset(
    {"additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then"}
    | {"unevaluatedItems", "unevaluatedProperties"}
)

_MANY = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_NAMED = frozenset({"dependentSchemas", "patternProperties", "properties"})
_DROPPED = frozenset({"$defs", "$schema", "definitions"})
_NOTES = frozenset({"default", "deprecated", "description", "examples", "title"})
_MAX_DEPTH = 16
_MAX_SCHEMAS = 2000


def resolved(schema: Mapping[str, Any], place: str) -> dict[str, Any]:
    """The schema without references and definitions.

    Raises RunError, naming the place, for a reference to nothing, to itself or beside a keyword
    that contradicts it, and for a schema that grows beyond what a prompt could hold.
    """
    whole: dict[str, Any] = _Resolver(schema).schema(schema, place, ())
    return whole


class _Resolver:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root, self._count = root, 0

    def schema(self, schema: Json, place: str, seen: tuple[str, ...], depth: int = 0) -> Json:
        if not isinstance(schema, Mapping):
            return schema
        self._count += 1
        if self._count > _MAX_SCHEMAS:
            raise RunError(f"{place}: more than {_MAX_SCHEMAS} schemas; references multiply them")
        if depth > _MAX_DEPTH:
            raise RunError(f"{place}: nested deeper than {_MAX_DEPTH}")
        if "$ref" in schema:
            reference = schema["$ref"]
            if reference in seen:
                raise RunError(f"{place}: {reference} refers to itself; a call cannot be endless")
            target = self._target(reference, place)
            rest = {key: value for key, value in schema.items() if key != "$ref"}
            both = {key for key in rest.keys() & target.keys() if rest[key] != target[key]}
            if clash := sorted(both - _NOTES):
                raise RunError(f"{place}: {clash[0]} is here and in {reference}; say it once")
            return self.schema({**target, **rest}, place, (*seen, reference), depth)
        return {
            key: self._inner(key, value, f"{place}.{key}", seen, depth + 1)
            for key, value in schema.items()
            if key not in _DROPPED
        }

    def _inner(self, key: str, value: Json, place: str, seen: tuple[str, ...], depth: int) -> Json:
        if key in _ONE:
            return self.schema(value, place, seen, depth)
        if key in _MANY:
            return [self.schema(one, f"{place}[{i}]", seen, depth) for i, one in enumerate(value)]
        if key in _NAMED:
            return {
                name: self.schema(one, f"{place}.{name}", seen, depth)
                for name, one in value.items()
            }
        return value

    def _target(self, reference: str, place: str) -> Mapping[str, Any]:
        found: Any = self._root
        if reference == "#":
            raise RunError(f"{place}: # refers to the whole; a call cannot be endless")
        for part in unquote(reference.removeprefix("#/")).split("/"):
            name = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            else:
                found = found.get(name) if isinstance(found, Mapping) else None
        if not reference.startswith("#/") or not isinstance(found, Mapping):
            raise RunError(f"{place}: {reference!r} is not in the schema; write #/$defs/NAME")
        return found
