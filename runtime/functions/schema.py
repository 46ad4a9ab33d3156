"""Functions that a model may call: read from JSON, and their arguments checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jsonschema

from runtime.errors import RunError
from runtime.functions.markers import ESCAPE

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
# What ends a key in a call, and what FunctionGemma's template leaves out of a declaration.
_KEY = re.compile(r"[^:{}\[\],<>\s][^:{}\[\],<>]*")
_NEVER_DECLARED = frozenset({"description", "type", "properties", "required", "nullable"})
_MAX_DEPTH = 16


@dataclass(frozen=True, kw_only=True)
class Function:
    """One function.

    parameters: a JSON Schema of type object, its references resolved.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]

    @property
    def declared(self) -> dict[str, Any]:
        """As chat templates take it: OpenAI's form."""
        fields = {
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
        }
        return {"type": "function", "function": fields}


def load_functions(value: Any) -> tuple[Function, ...]:
    """Functions of a JSON list, in OpenAI's form or bare (name, description, parameters).

    Raises RunError, naming the place, for what is no function, for a name twice, for a schema
    that is none, and for names that FunctionGemma's form cannot carry.
    """
    if not isinstance(value, list):
        raise RunError(f"tools: {type(value).__name__} was found, a list of functions was expected")
    functions = tuple(_function(item, f"tools[{index}]") for index, item in enumerate(value))
    names = [function.name for function in functions]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise RunError(f"tools[{index}].name: {name!r} is there twice")
    return functions


def check_arguments(function: Function, arguments: Mapping[str, Any]) -> None:
    """Raises RunError, naming the argument, unless they are what the function declares."""
    closed = {**function.parameters, "additionalProperties": False}
    validator = jsonschema.Draft202012Validator(closed)
    for error in validator.iter_errors(dict(arguments)):
        place = ".".join(map(str, [function.name, *error.absolute_path]))
        raise RunError(f"{place}: {error.message}")


def _function(item: Any, place: str) -> Function:
    if not isinstance(item, Mapping):
        raise RunError(f"{place}: {type(item).__name__} was found, a function was expected")
    if "function" in item:
        if item.get("type", "function") != "function":
            raise RunError(f"{place}.type: {item['type']!r}; only functions can be called")
        return _function(item["function"], f"{place}.function")
    name, description = item.get("name"), item.get("description") or ""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise RunError(f"{place}.name: {name!r}; expected 1 to 64 letters, digits, '_', '-' or '.'")
    if not isinstance(description, str):
        raise RunError(f"{place}.description: {type(description).__name__}, text was expected")
    parameters = item.get("parameters") or {"type": "object", "properties": {}}
    place = f"{place}.parameters"
    try:
        jsonschema.Draft202012Validator.check_schema(parameters)
    except jsonschema.SchemaError as error:
        at = ".".join([place, *map(str, error.absolute_path)])
        raise RunError(f"{at}: no JSON Schema: {error.message}") from None
    if parameters.get("type", "object") != "object":
        raise RunError(f"{place}.type: {parameters['type']!r}; arguments are an object")
    resolved = _resolved(parameters, parameters, place, ())
    _check_text(resolved, place)
    return Function(name=name, description=description, parameters={"type": "object", **resolved})


def _resolved(schema: Any, root: Mapping[str, Any], place: str, seen: tuple[str, ...]) -> Any:
    """The schema with local references replaced by what they name, and without definitions."""
    if isinstance(schema, list):
        return [_resolved(item, root, f"{place}[{i}]", seen) for i, item in enumerate(schema)]
    if not isinstance(schema, Mapping):
        return schema
    if "$ref" in schema:
        reference = schema["$ref"]
        if reference in seen or len(seen) > _MAX_DEPTH:
            raise RunError(f"{place}: {reference} refers to itself; a call cannot be endless")
        target = _target(reference, root, place)
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        return _resolved({**target, **rest}, root, place, (*seen, reference))
    return {
        key: _resolved(value, root, f"{place}.{key}", seen)
        for key, value in schema.items()
        if key not in ("$defs", "definitions", "$schema")
    }


def _target(reference: str, root: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    found: Any = root
    for part in reference.removeprefix("#/").split("/"):
        found = found.get(part.replace("~1", "/").replace("~0", "~")) if found else None
    if not reference.startswith("#/") or not isinstance(found, Mapping):
        raise RunError(f"{place}: {reference!r} is not in the schema; write #/$defs/NAME")
    return found


def _check_name(key: str, place: str) -> None:
    if not _KEY.fullmatch(key) or key != key.strip() or ESCAPE in key:
        raise RunError(f"{place}.properties: the name {key!r} has no place in a call")
    if key in _NEVER_DECLARED:
        raise RunError(
            f"{place}.properties: {key!r} is a word of the form: the model would never be told of "
            "it; use another name"
        )


def _check_text(schema: Any, place: str, depth: int = 0) -> None:
    """Raises RunError for names and texts that a call could not be read back with."""
    if depth > _MAX_DEPTH:
        raise RunError(f"{place}: nested deeper than {_MAX_DEPTH}")
    if not isinstance(schema, Mapping):
        return
    properties = schema.get("properties", {})
    for key, value in properties.items():
        _check_name(key, place)
        _check_text(value, f"{place}.{key}", depth + 1)
    for name in schema.get("required", ()):
        if name not in properties:
            raise RunError(f"{place}.required: {name!r} is no property; declare it")
    for value in [*schema.get("enum", ()), *([schema["const"]] if "const" in schema else ())]:
        if ESCAPE in str(value):
            raise RunError(f"{place}: a value that holds {ESCAPE} has no place in a call")
    for key in ("items", "anyOf", "oneOf"):
        inner = schema.get(key, ())
        for item in inner if isinstance(inner, list) else [inner]:
            _check_text(item, f"{place}.{key}", depth + 1)
