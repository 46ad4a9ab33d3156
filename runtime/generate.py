"""The decoder loop: a prompt in, tokens out, one at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from runtime.decoder import Decoder
from runtime.errors import PromptError
from runtime.sampling import Sampler


class Constraint(Protocol):
    """Says which tokens may come next."""

    @property
    def finished(self) -> bool:
        """Whether nothing may follow."""

    def allowed(self) -> np.ndarray | None:
        """bool [vocabulary], or None where every token may come."""

    def accept(self, token: int) -> None:
        """Takes note of the token that came."""


@dataclass(kw_only=True)
class Stats:
    """What a generation cost.

    prompt_tokens: of the prompt; kept_tokens: those that the cache had already.
    first_token_seconds: from the start to the first token.
    finish: "stop" (a stop token, or the constraint's end), "length" (max_tokens), "context" (the
        context is full), "interrupted".
    """

    prompt_tokens: int = 0
    kept_tokens: int = 0
    tokens: int = 0
    first_token_seconds: float = 0.0
    decode_seconds: float = 0.0
    finish: str = "length"

    @property
    def token_milliseconds(self) -> float:
        """Milliseconds a token after the first; 0 where there was one at most."""
        return 1000 * self.decode_seconds / (self.tokens - 1) if self.tokens > 1 else 0.0


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Where a generation ends: after so many tokens, at one of these tokens, or when asked to.

    interrupted: asked before each token.
    """

    max_tokens: int
    stops: frozenset[int] = frozenset()
    interrupted: Callable[[], bool] = lambda: False


def fit(prompt: Sequence[int], context: int, room: int, cut: bool) -> list[int]:
    """The prompt, or with `cut` what of it leaves room for `room` tokens (at most half).

    The first token, which begins the text, is kept. Raises PromptError, with both numbers, for a
    prompt that is longer than the context where it must not be cut, and for an empty one.
    """
    if not prompt:
        raise PromptError("the prompt is empty: no tokens; write something")
    if len(prompt) <= context:
        return list(prompt)
    if not cut:
        raise PromptError(
            f"the prompt has {len(prompt)} tokens, the context {context}; shorten it, build the "
            "bundle with a larger context, or pass --cut_prompt to drop its beginning"
        )
    kept = context - min(room, context // 2) - 1
    return [prompt[0], *prompt[len(prompt) - kept :]]


def generate(
    decoder: Decoder,
    sampler: Sampler,
    prompt: Sequence[int],
    limits: Limits,
    stats: Stats,
    constraint: Constraint | None = None,
    progress: Callable[[int], object] = bool,
) -> Iterator[int]:
    """The tokens that follow a prompt, stop tokens left out.

    prompt: at least one token; what the decoder's cache has of it is not run again.
    stats: filled in as it goes. progress: called with the number of prompt tokens run so far.

    Raises RunError as Decoder.feed does; tokens that came before are in the decoder.
    """
    start = time.perf_counter()
    stats.prompt_tokens, stats.kept_tokens = len(prompt), decoder.keep(prompt)
    for done, token in enumerate(prompt[stats.kept_tokens :], stats.kept_tokens):
        if limits.interrupted():
            stats.finish = "interrupted"
            return
        progress(done)
        result = decoder.feed(token)
    progress(len(prompt))
    stats.first_token_seconds = time.perf_counter() - start
    start = time.perf_counter()
    while stats.tokens < limits.max_tokens:
        if limits.interrupted():
            stats.finish = "interrupted"
            return
        allowed = constraint.allowed() if constraint else None
        logits = decoder.logits(result, allowed)
        token = sampler.choose(logits, decoder.tokens, allowed)
        stats.tokens += 1
        stats.decode_seconds = time.perf_counter() - start
        if constraint:
            constraint.accept(token)
        if token in limits.stops:
            stats.finish = "stop"
            return
        yield token
        if constraint and constraint.finished:
            stats.finish = "stop"
            return
        if len(decoder.tokens) == decoder.bundle.context:
            stats.finish = "context"
            return
        if stats.tokens < limits.max_tokens:
            result = decoder.feed(token)
