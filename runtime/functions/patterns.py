r"""JSON Schema's patterns as llguidance takes regular expressions: of whole texts, in Rust's words.

A pattern of JSON Schema is ECMA-262's and may match anywhere in the text; \d, \w and \s are taken
as ASCII's.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import llguidance

from runtime.errors import RunError

_ANYTHING = "(?s:.*)"
_TOKEN = re.compile(
    r"\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}|\\.|\[(?:\\.|[^\]\\])*\]|\(\?:|\(\?|\{\d+(?:,\d*)?\}|.",
    re.DOTALL,
)
_ATOM = re.compile(r"\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}|\\.|.", re.DOTALL)
_CLASSES = {"d": "0-9", "w": "A-Za-z0-9_", "s": r"\t\n\x0b\x0c\r "}
_CONTROLS = {"f": 0x0C, "n": 0x0A, "r": 0x0D, "t": 0x09, "v": 0x0B}
_QUANTIFIER = re.compile(r"[*+?]|\{\d.*\}")


def whole(pattern: str, place: str) -> str:
    """The regular expression of texts in which the pattern matches somewhere.

    Raises RunError, naming the place, for what cannot be said in one expression: references to
    groups, looking around, words' boundaries, and ^ or $ within an alternative.
    """
    return "|".join(_Pattern(pattern, place).alternatives())


def has_match(terminal: str) -> bool:
    """Whether any text matches a terminal of llguidance's Lark."""
    matcher = llguidance.LLMatcher(
        llguidance.LLTokenizer("byte"), f"start: T\nT: {terminal}\n", log_level=0
    )
    if matcher.is_error():
        # llguidance names what it does not take when it reads the whole grammar.
        return True
    matcher.compute_bitmask()
    return bool(matcher.is_accepting() or not matcher.is_stopped())


class _Pattern:
    def __init__(self, pattern: str, place: str) -> None:
        self._pattern, self._place = pattern, place
        self._tokens = _TOKEN.findall(pattern)

    def alternatives(self) -> Iterator[str]:
        """Each with what may stand before and after it."""
        depth, start = 0, 0
        for index, token in enumerate([*self._tokens, "|"]):
            depth += {"(": 1, "(?:": 1, "(?": 1, ")": -1}.get(token, 0)
            if token == "|" and depth == 0:
                yield self._anchored(self._tokens[start:index])
                start = index + 1

    def _anchored(self, tokens: list[str]) -> str:
        from_start, to_end = tokens[:1] == ["^"], tokens[-1:] == ["$"]
        body = tokens[from_start : len(tokens) - to_end]
        for before, after in itertools.pairwise(body):
            if after == "+" and _QUANTIFIER.fullmatch(before):
                raise self._error(f"{before}+")
        before, after = "" if from_start else _ANYTHING, "" if to_end else _ANYTHING
        return f"{before}(?:{''.join(map(self._rust, body))}){after}"

    def _rust(self, token: str) -> str:
        if token in ("(", "(?:", ")", "|") or _QUANTIFIER.fullmatch(token):
            return token
        if token in ("^", "$", "(?", "{", "["):
            raise self._error(token)
        if token == ".":
            return r"[^\n\r\x{2028}\x{2029}]"
        if token.startswith("["):
            return self._class(token[1:-1])
        if _is_class(token):
            return _named(token)
        return self._literal(token)

    def _class(self, inside: str) -> str:
        negated = inside.startswith("^")
        atoms = _ATOM.findall(inside[negated:])
        out, at = "", 0
        while at < len(atoms):
            if _is_class(atoms[at]):
                out += _named(atoms[at])
            elif atoms[at + 1 : at + 2] == ["-"] and at + 2 < len(atoms):
                out += f"{self._literal(atoms[at])}-{self._literal(atoms[at + 2])}"
                at += 2
            else:
                out += self._literal(atoms[at])
            at += 1
        if not out:
            raise self._error(f"[{inside}]")
        return f"[{'^' if negated else ''}{out}]"

    def _literal(self, token: str) -> str:
        code = ord(token[-1])
        if token[0] == "\\" and len(token) > 2:
            code = int(token[2:], 16)
        elif token[0] == "\\" and token[1] in _CONTROLS:
            code = _CONTROLS[token[1]]
        elif token[0] == "\\" and (token[1].isalnum() or token == "\\"):
            raise self._error(token)
        if 0xD800 <= code <= 0xDFFF:
            raise self._error(token)
        return rf"\x{{{code:x}}}"

    def _error(self, found: str) -> RunError:
        return RunError(
            f"{self._place}: pattern {self._pattern!r}: {found} cannot be held to here; write the "
            "pattern otherwise, or leave it out"
        )


def _is_class(token: str) -> bool:
    return len(token) == 2 and token[0] == "\\" and token[1].lower() in _CLASSES


def _named(token: str) -> str:
    return f"[{'^' if token[1].isupper() else ''}{_CLASSES[token[1].lower()]}]"
