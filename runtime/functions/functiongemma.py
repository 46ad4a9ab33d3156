"""The form that FunctionGemma was trained on: declarations, calls, responses, turns.

It gives what the chat template of google/functiongemma-270m-it gives, for files that lack one.
Keys are sorted as jinja2's `dictsort` sorts them, without regard to case.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from runtime.errors import RunError
from runtime.functions.markers import (
    BOS,
    END_CALL,
    END_DECLARATION,
    END_RESPONSE,
    END_TURN,
    ESCAPE,
    START_CALL,
    START_DECLARATION,
    START_RESPONSE,
    START_TURN,
)
from runtime.functions.schema import Function
from runtime.functions.values import Json
from runtime.segments import Segment, merged

# The developer's sentence that the model was trained with.
INSTRUCTION = "You are a model that can do function calling with the following functions"
_WORDS = frozenset({"description", "type", "properties", "required", "nullable"})
_ROLES = {
    "system": "developer",
    "developer": "developer",
    "user": "user",
    "assistant": "model",
    "tool": "tool",
}

Parts = Iterator[Segment]


def prompt(
    messages: Sequence[Mapping[str, Any]],
    functions: Sequence[Function] = (),
    *,
    add_generation_prompt: bool = True,
) -> tuple[Segment, ...]:
    """A conversation in OpenAI's messages as a prompt; what people and tools say is not trusted.

    Raises RunError for a message that has no place in the form.
    """
    return merged(_prompt(messages, functions, add_generation_prompt))


def _prompt(
    messages: Sequence[Mapping[str, Any]], functions: Sequence[Function], ask: bool
) -> Parts:
    roles = [_role(message, index) for index, message in enumerate(messages)]
    rest = list(zip(messages, roles, strict=True))
    yield _form(BOS)
    if functions or roles[:1] == ["developer"]:
        yield _form(f"{START_TURN}developer\n")
        if roles[:1] == ["developer"]:
            yield _said(_content(rest.pop(0)[0]).strip())
        else:
            yield _form(INSTRUCTION)
        for function in functions:
            yield from declaration(function)
        yield _form(f"{END_TURN}\n")
    names: dict[str, str] = {}
    before = ""
    for message, role in rest:
        if role == "tool":
            yield from _tool(message, names)
            before = "response"
            continue
        if before != "response":
            yield _form(f"{START_TURN}{role}\n")
        yield _said(_content(message).strip())
        yield from _calls(message, names)
        before = "call" if message.get("tool_calls") else "content"
        if before == "content":
            yield _form(f"{END_TURN}\n")
    if before == "call":
        yield _form(START_RESPONSE)
    elif ask and before != "response":
        yield _form(f"{START_TURN}model\n")


def _calls(message: Mapping[str, Any], names: dict[str, str]) -> Parts:
    """The calls of a message, whose names are noted by their ids."""
    for item in message.get("tool_calls") or ():
        name, arguments = _called(item)
        names[item.get("id", "")] = name
        yield from call(name, arguments)


def declaration(function: Function) -> Parts:
    """What the model is told of a function."""
    yield _form(f"{START_DECLARATION}declaration:{function.name}{{description:")
    yield from _string(function.description)
    if schema := function.parameters:
        yield _form(",parameters:{")
        if schema.get("properties"):
            yield _form("properties:{")
            yield from _properties(schema["properties"])
            yield _form("},")
        if schema.get("required"):
            yield from _required(schema["required"])
            yield _form(",")
        yield _form("type:")
        yield from _string(str(schema["type"]).upper())
        yield _form("}")
    yield _form(f"}}{END_DECLARATION}")


def call(name: str, arguments: Mapping[str, Any]) -> Parts:
    """A call as the model makes it."""
    yield _form(f"{START_CALL}call:")
    yield _said(name)
    yield _form("{")
    yield from _members(arguments)
    yield _form(f"}}{END_CALL}")


def response(name: str, value: Json) -> Parts:
    """What a function gave: a mapping's members, or anything else as `value`."""
    yield _form(f"{START_RESPONSE}response:")
    yield _said(name)
    yield _form("{")
    yield from _members(value if isinstance(value, Mapping) else {"value": value})
    yield _form(f"}}{END_RESPONSE}")


def _form(text: str) -> Segment:
    return Segment(text, trusted=True)


def _said(text: str) -> Segment:
    return Segment(text, trusted=False)


def _sorted(mapping: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return sorted(mapping.items(), key=lambda item: item[0].lower())


def _string(text: str) -> Parts:
    if ESCAPE in text:
        raise RunError(f"a text that holds {ESCAPE} has no place in the form: {text[:80]!r}")
    yield _form(ESCAPE)
    yield _said(text)
    yield _form(ESCAPE)


def value(item: Json, *, escape_keys: bool = False) -> Parts:
    """A value of a call: text between escapes, mappings and lists of values, or a number."""
    if isinstance(item, str):
        yield from _string(item)
    elif isinstance(item, bool):
        yield _form("true" if item else "false")
    elif isinstance(item, Mapping):
        yield _form("{")
        yield from _members(item, escape_keys=escape_keys)
        yield _form("}")
    elif isinstance(item, list | tuple):
        yield _form("[")
        for index, element in enumerate(item):
            if index:
                yield _form(",")
            yield from value(element, escape_keys=escape_keys)
        yield _form("]")
    elif isinstance(item, float) and not math.isfinite(item):
        raise RunError(f"{item} is no number of JSON, and has no place in the form")
    else:
        yield _form(str(item))


def _members(mapping: Mapping[str, Any], *, escape_keys: bool = False) -> Parts:
    for index, (key, item) in enumerate(_sorted(mapping)):
        if index:
            yield _form(",")
        if escape_keys:
            yield from _string(key)
        else:
            yield _said(key)
        yield _form(":")
        yield from value(item, escape_keys=escape_keys)


def _properties(properties: Mapping[str, Any]) -> Parts:
    shown = [(key, one) for key, one in _sorted(properties) if key not in _WORDS]
    for index, (key, one) in enumerate(shown):
        # A schema may be just true; a template finds no keyword in it.
        schema = one if isinstance(one, Mapping) else {}
        if index:
            yield _form(",")
        yield _said(key)
        yield _form(":{description:")
        yield from _string(str(schema.get("description") or ""))
        yield from _details(schema)
        yield _form(",type:")
        yield from _string(_type(schema))
        yield _form("}")


def _details(schema: Mapping[str, Any]) -> Parts:
    """What a type has of its own: values, members, items."""
    kind = _type(schema)
    if kind == "STRING" and schema.get("enum"):
        yield _form(",enum:")
        yield from value(schema["enum"])
    elif kind == "OBJECT":
        yield _form(",properties:{")
        yield from _properties(schema.get("properties") or {})
        yield _form("}")
        if schema.get("required"):
            yield _form(",")
            yield from _required(schema["required"])
    elif kind == "ARRAY" and isinstance(schema.get("items"), Mapping) and schema["items"]:
        yield _form(",items:{")
        yield from _items(schema["items"])
        yield _form("}")


def _items(schema: Mapping[str, Any]) -> Parts:
    shown = [(key, item) for key, item in _sorted(schema) if item is not None]
    for index, (key, item) in enumerate(shown):
        if index:
            yield _form(",")
        if key == "properties":
            yield _form("properties:{")
            yield from _properties(item)
            yield _form("}")
        elif key == "required":
            yield from _required(item)
        elif key == "type":
            yield _form("type:")
            upper = [name.upper() for name in item] if isinstance(item, list) else item.upper()
            yield from value(upper)
        else:
            yield _said(key)
            yield _form(":")
            yield from value(item, escape_keys=True)


def _required(names: Sequence[str]) -> Parts:
    yield _form("required:")
    yield from value(list(names))


def _type(schema: Mapping[str, Any]) -> str:
    """A schema's type in capitals; a union's as Jinja prints a list."""
    return str(schema.get("type") or "").upper()


def _role(message: Mapping[str, Any], index: int) -> str:
    role = message.get("role")
    if role not in _ROLES:
        raise RunError(f"messages[{index}].role: {role!r}; expected {', '.join(_ROLES)}")
    if _ROLES[role] == "developer" and index:
        raise RunError(f"messages[{index}].role: {role!r} must be the first message")
    return _ROLES[role]


def _content(message: Mapping[str, Any]) -> str:
    """A message's text, which may come in parts."""
    content = message.get("content")
    if content is None:
        return ""
    if isinstance(content, list):
        texts = [part.get("text") if isinstance(part, Mapping) else None for part in content]
        if all(isinstance(text, str) for text in texts):
            return "".join(map(str, texts))
    elif isinstance(content, str):
        return content
    raise RunError(f"a message of role {message['role']!r} has content that is no text")


def _called(item: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Name and arguments of a tool call; OpenAI's arguments are JSON in a string."""
    try:
        function = item["function"]
        arguments = function["arguments"]
        decoded = json.loads(arguments) if isinstance(arguments, str) else arguments
        name = function["name"]
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"a tool call has no function with name and arguments: {error}") from None
    if not isinstance(decoded, Mapping) or not isinstance(name, str):
        raise RunError("a tool call has no function with a name and an object of arguments")
    return name, decoded


def _tool(message: Mapping[str, Any], names: Mapping[str, str]) -> Parts:
    content = message.get("content")
    name = message.get("name") or names.get(message.get("tool_call_id", ""))
    if isinstance(content, Mapping) and set(content) == {"name", "response"}:
        name, content = content["name"], content["response"]
    if not isinstance(name, str):
        raise RunError("a tool's message has neither a name nor the tool_call_id of a call")
    yield from response(name, content if isinstance(content, Mapping) else _content(message))
