"""A conversation's tokens and the backend that runs them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from runtime.backends.backend import Backend, StepResult
from runtime.bundle import Bundle


class Decoder:
    """Feeds tokens to a backend, one a position.

    tokens: what was fed so far; their number is the next position.
    candidates: how many of a step's best logits are computed again exactly; None for the bundle's
        own number, 0 for none.
    """

    def __init__(self, bundle: Bundle, backend: Backend, candidates: int | None = None) -> None:
        self.bundle, self.backend, self.candidates = bundle, backend, candidates
        self.tokens: list[int] = []
        self._shortest = min(kind.past for kind in bundle.kinds.values())

    def feed(self, token: int) -> StepResult:
        """Runs one token at the next position.

        Raises RunError where the context is full, the token has no embedding, or the machine is
        lost; the tokens fed so far then stay as they are.
        """
        result = self.backend.step(self.bundle.embedding.row(token), len(self.tokens))
        self.tokens.append(token)
        return result

    def logits(self, result: StepResult, allowed: np.ndarray | None = None) -> np.ndarray:
        """The logits to choose from, float32 [vocabulary]: the best of a step's are exact.

        allowed: bool [vocabulary], the tokens that may be chosen; None for all.
        """
        head = self.bundle.head
        count = head.candidates if self.candidates is None else self.candidates
        return head.rescore(result.logits, result.hidden, count, allowed)

    def keep(self, prompt: Sequence[int]) -> int:
        """Goes back to the longest common beginning with a prompt; returns its length.

        The last token of the prompt is never kept, because its logits are wanted. Rows of a
        sliding layer that were written over cannot be had back: then nothing is kept.
        """
        pairs = zip(self.tokens, prompt[:-1], strict=False)
        common = next((i for i, (ours, theirs) in enumerate(pairs) if ours != theirs), None)
        if common is None:
            common = min(len(self.tokens), len(prompt) - 1)
        if common < len(self.tokens) and len(self.tokens) > self._shortest:
            common = 0
        del self.tokens[common:]
        return common


def greedy(logits: np.ndarray) -> int:
    """The most likely token; the first of equals."""
    return int(logits.argmax())
