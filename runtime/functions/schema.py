"""Functions that a model may call, read from JSON."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jsonschema

from runtime.errors import RunError
from runtime.functions.markers import ESCAPE
from runtime.functions.references import resolved
from runtime.functions.values import Json

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
# What ends a key in a call, and what FunctionGemma's template leaves out of a declaration.
_KEY = re.compile(r"[^:{}\[\],<>\s]([^:{}\[\],<>]*[^:{}\[\],<>\s])?")
_NEVER_DECLARED = frozenset({"description", "type", "properties", "required", "nullable"})
_MAX_DIGITS = 300


@dataclass(frozen=True, kw_only=True)
class Function:
    """One function.

    parameters: a JSON Schema of type object, its references resolved; empty where there are none.
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


def load_functions(value: Json) -> tuple[Function, ...]:
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


def _function(item: Json, place: str) -> Function:
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
    parameters = _parameters(item.get("parameters") or {}, f"{place}.parameters")
    return Function(name=name, description=description, parameters=parameters)


def _parameters(parameters: Json, place: str) -> dict[str, Any]:
    if not isinstance(parameters, Mapping):
        raise RunError(f"{place}: {type(parameters).__name__}, a JSON Schema was expected")
    try:
        jsonschema.Draft202012Validator.check_schema(parameters)
    except jsonschema.SchemaError as error:
        at = ".".join([place, *map(str, error.absolute_path)])
        raise RunError(f"{at}: no JSON Schema: {error.message}") from None
    except RecursionError:
        raise RunError(f"{place}: nested too deep for a JSON Schema; make it flatter") from None
    if not parameters:
        return {}
    whole = resolved(parameters, place)
    if whole.get("type", "object") != "object":
        raise RunError(f"{place}.type: {whole['type']!r}; arguments are an object")
    _check_text(whole, place)
    return {"type": "object", **whole}


def _check_text(schema: Json, place: str) -> None:
    """Raises RunError for names and texts that a call could not be read back with."""
    if not isinstance(schema, Mapping):
        return
    properties = schema.get("properties", {})
    for key, value in properties.items():
        _check_key(key, f"{place}.properties")
        if key in _NEVER_DECLARED:
            raise RunError(
                f"{place}.properties: {key!r} is a word of the form: the model would never be "
                "told of it; use another name"
            )
        _check_text(value, f"{place}.properties.{key}")
    # A schema without a type may be an alternative beside the properties that it requires.
    for name in schema.get("required", ()) if "type" in schema or properties else ():
        if name not in properties:
            raise RunError(f"{place}.required: {name!r} is no property; declare it")
    for value in [*schema.get("enum", ()), *([schema["const"]] if "const" in schema else ())]:
        _check_value(value, place)
    for key in ("items", "anyOf", "oneOf"):
        inner = schema.get(key, ())
        for item in inner if isinstance(inner, list) else [inner]:
            _check_text(item, f"{place}.{key}")


def _check_key(key: str, place: str) -> None:
    if not _KEY.fullmatch(key) or not _is_unicode(key):
        raise RunError(f"{place}: the name {key!r} has no place in a call")


def _check_value(value: Json, place: str) -> None:
    if isinstance(value, str) and (ESCAPE in value or not _is_unicode(value)):
        raise RunError(f"{place}: the text {value!r} has no place in a call")
    if isinstance(value, float) and not math.isfinite(value):
        raise RunError(f"{place}: {value} is no number of JSON")
    if isinstance(value, int) and abs(value) >= 10**_MAX_DIGITS:
        raise RunError(f"{place}: a number of more than {_MAX_DIGITS} digits")
    if isinstance(value, list):
        for item in value:
            _check_value(item, place)
    if isinstance(value, Mapping):
        for key, item in value.items():
            _check_key(key, place)
            _check_value(item, place)


def _is_unicode(text: str) -> bool:
    """Whether the text can be written in UTF-8, which half a surrogate pair cannot."""
    return not any("\ud800" <= character <= "\udfff" for character in text)
