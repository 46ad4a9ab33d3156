r"""JSON Schema's patterns as llguidance takes them: of the whole text, in Rust's words.

A pattern of JSON Schema is ECMA-262's and may match anywhere in the text; \d and \w mean ASCII.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from runtime.errors import RunError

_ANYTHING = "(?s:.*)"
# Inside of a class in brackets, and outside.
_CLASSES = {"d": "0-9", "w": "A-Za-z0-9_", "s": r"\t\n\v\f\r "}


def whole(pattern: str, place: str) -> str:
    """The regular expression of texts in which the pattern matches somewhere.

    Raises RunError, naming the place, for what cannot be said in one expression.
    """
    tokens = list(_tokens(pattern))
    depth, alternatives = 0, False
    for token in tokens:
        depth += {"(": 1, ")": -1}.get(token, 0)
        alternatives |= token == "|" and depth == 0
    from_start, to_end = tokens[:1] == ["^"], tokens[-1:] == ["$"]
    if alternatives and (from_start or to_end):
        raise RunError(f"{place}: pattern {pattern!r}: write ^( … )$ around alternatives")
    tokens = tokens[from_start : len(tokens) - to_end]
    body = "".join(_rust(token, pattern, place) for token in tokens)
    start, end = "" if from_start else _ANYTHING, "" if to_end else _ANYTHING
    return f"{start}({body}){end}".replace("/", r"\/")


def _tokens(pattern: str) -> Iterator[str]:
    """Characters, escapes of two characters, and whole classes in brackets."""
    at = 0
    while at < len(pattern):
        end = at + 1
        if pattern[at] == "\\":
            end = at + 2
        elif pattern[at] == "[":
            end = at + (2 if pattern[at + 1 : at + 2] == "^" else 1)
            while end < len(pattern) and pattern[end] != "]":
                end += 2 if pattern[end] == "\\" else 1
            end += 1
        yield pattern[at:end]
        at = end


def _rust(token: str, pattern: str, place: str) -> str:
    if token.startswith("\\"):
        kind = token[1:].lower()
        if kind in _CLASSES:
            negated = "^" if token[1:].isupper() else ""
            return f"[{negated}{_CLASSES[kind]}]"
    if token.startswith("["):
        parts = re.findall(r"\\.|[^\\]", token[1:-1], re.DOTALL)
        return f"[{''.join(_in_class(part, pattern, place) for part in parts)}]"
    return "/" if token == r"\/" else token


def _in_class(token: str, pattern: str, place: str) -> str:
    if token in (r"\D", r"\W", r"\S"):
        raise RunError(f"{place}: pattern {pattern!r}: {token} within brackets cannot be held to")
    if token in (r"\d", r"\w", r"\s"):
        return _CLASSES[token[1]]
    return r"\[" if token == "[" else token
