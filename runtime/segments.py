"""Prompts whose parts are told apart: what a form says, and what a person or a tool said.

A control token's text in what a person said stays text: `<end_of_turn>` in a message must not end
the turn.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from runtime.tokenizer import Tokenizer


@dataclass(frozen=True)
class Segment:
    """A part of a prompt; only in a trusted one are control tokens what they say."""

    text: str
    trusted: bool


def merged(segments: Iterable[Segment]) -> tuple[Segment, ...]:
    """The segments with neighbours of one kind joined, and without empty ones."""
    out: list[Segment] = []
    for segment in segments:
        if not segment.text:
            continue
        if out and out[-1].trusted == segment.trusted:
            out[-1] = Segment(out[-1].text + segment.text, segment.trusted)
        else:
            out.append(segment)
    return tuple(out)


def text(segments: Iterable[Segment]) -> str:
    """The prompt as one string."""
    return "".join(segment.text for segment in segments)


def encode(tokenizer: Tokenizer, segments: Iterable[Segment]) -> list[int]:
    """The tokens of a prompt; text between two control tokens is encoded as one."""
    control = tokenizer.control
    pattern = "|".join(map(re.escape, sorted(control, key=len, reverse=True)))
    split = re.compile(f"({pattern})").split if control else lambda whole: [whole]
    tokens: list[int] = []
    plain = ""
    for segment in segments:
        for part in split(segment.text) if segment.trusted else [segment.text]:
            if segment.trusted and part in control:
                tokens += [*tokenizer.encode(plain, bos=False), control[part]]
                plain = ""
            else:
                plain += part
    return tokens + tokenizer.encode(plain, bos=False)
