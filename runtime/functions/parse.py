"""Reads a model's reply: its text, and the calls in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from runtime.errors import RunError
from runtime.functions.markers import END_CALL, END_TURN, ESCAPE, START_CALL, START_RESPONSE
from runtime.functions.values import Json

_MAX_DEPTH = 64
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_KEY = re.compile(r"[^:{}\[\],<>]+")
_BARE = re.compile(r"[^,{}\[\]<>]*")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WORDS = {"true": True, "false": False, "null": None, "None": None}


class CallError(RunError):
    """A call that cannot be read; `offset` is where, in characters of the reply."""

    def __init__(self, offset: int, expected: str, found: str) -> None:
        shown = repr(found[:40]) if found else "the end of the reply"
        super().__init__(f"a call cannot be read: character {offset}: {expected}, found {shown}")
        self.offset = offset


@dataclass(frozen=True)
class Call:
    """One call: a function's name and its arguments as JSON values."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Reply:
    """text: what is said outside of calls; calls: in order.

    stopped_by: the token that ended the turn, None where the reply just ends.
    """

    text: str
    calls: tuple[Call, ...]
    stopped_by: str | None = None


def parse(reply: str) -> Reply:
    """Reads a reply in which control tokens stand as their texts, up to what ends the turn.

    Raises CallError where a call is malformed or not finished.
    """
    reader = _Reader(reply)
    texts: list[str] = []
    calls: list[Call] = []
    while reader.offset < len(reply):
        for stop in (END_TURN, START_RESPONSE):
            if reader.takes(stop):
                return Reply("".join(texts), tuple(calls), stop)
        if reader.takes(START_CALL):
            calls.append(reader.call())
        else:
            texts.append(reader.until((START_CALL, END_TURN, START_RESPONSE)))
    return Reply("".join(texts), tuple(calls))


class _Reader:
    """A place in a reply."""

    def __init__(self, text: str) -> None:
        self.text, self.offset = text, 0

    def takes(self, token: str) -> bool:
        """Whether the token comes next; it is then passed."""
        found = self.text.startswith(token, self.offset)
        self.offset += len(token) if found else 0
        return found

    def until(self, tokens: tuple[str, ...]) -> str:
        """The text up to the first of the tokens, or the end."""
        places = [self.text.find(token, self.offset) for token in tokens]
        end = min((place for place in places if place >= 0), default=len(self.text))
        start, self.offset = self.offset, end
        return self.text[start:end]

    def call(self) -> Call:
        self._skip()
        self._expect("call:")
        name = self._match(_NAME, "a function's name was expected")
        self._expect("{")
        arguments = self._object(0)
        self._skip()
        self._expect(END_CALL)
        return Call(name, arguments)

    def _object(self, depth: int) -> dict[str, Any]:
        """Members up to the closing brace; the opening one is passed already."""
        members: dict[str, Any] = {}
        self._skip()
        if self.takes("}"):
            return members
        while True:
            self._skip()
            start = self.offset
            key = self._key()
            if key in members:
                self.offset = start
                raise self._error(f"another name than {key!r} was expected, which is there")
            self._expect(":")
            members[key] = self._value(depth + 1)
            if not self._more("}"):
                return members

    def _key(self) -> str:
        if self.takes(ESCAPE):
            return self._string()
        return self._match(_KEY, "an argument's name was expected").strip()

    def _value(self, depth: int) -> Json:
        if depth > _MAX_DEPTH:
            raise self._error(f"at most {_MAX_DEPTH} levels were expected")
        self._skip()
        if self.takes(ESCAPE):
            return self._string()
        if self.takes("{"):
            return self._object(depth)
        if self.takes("["):
            return self._list(depth)
        start = self.offset
        word = self._match(_BARE, "a value was expected").strip()
        if word in _WORDS:
            return _WORDS[word]
        if number := _NUMBER.fullmatch(word):
            whole = number[2] is None and number[3] is None
            if whole and len(word) <= 300:
                return int(word)
            if abs(float(word)) != float("inf"):
                return float(word)
        self.offset = start
        raise self._error("a number, true, false, null or text between escapes was expected")

    def _list(self, depth: int) -> list[Any]:
        items: list[Any] = []
        self._skip()
        if self.takes("]"):
            return items
        while True:
            items.append(self._value(depth + 1))
            if not self._more("]"):
                return items

    def _more(self, end: str) -> bool:
        """Whether a comma comes next, and not the end; one of them must."""
        self._skip()
        if self.takes(","):
            return True
        self._expect(end, f"',' or {end!r} was expected")
        return False

    def _string(self) -> str:
        """The text up to the closing escape; the opening one is passed already."""
        end = self.text.find(ESCAPE, self.offset)
        if end < 0:
            raise self._error(f"the text's closing {ESCAPE} was expected")
        start, self.offset = self.offset, end + len(ESCAPE)
        return self.text[start:end]

    def _skip(self) -> None:
        while self.text[self.offset : self.offset + 1].isspace():
            self.offset += 1

    def _expect(self, token: str, expected: str = "") -> None:
        if not self.takes(token):
            raise self._error(expected or f"{token!r} was expected")

    def _match(self, pattern: re.Pattern[str], expected: str) -> str:
        found = pattern.match(self.text, self.offset)
        if not found:
            raise self._error(expected)
        self.offset = found.end()
        return found[0]

    def _error(self, expected: str) -> CallError:
        return CallError(self.offset, expected, self.text[self.offset :])
