"""Constrained decoding: a mask over the vocabulary that only lets valid calls through."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import llguidance
import llguidance.numpy
import numpy as np

from runtime.errors import RunError
from runtime.functions.grammar import Bounds, grammar
from runtime.functions.markers import START_CALL
from runtime.functions.schema import Function
from runtime.tokenizer import Tokenizer


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """A tokenizer as llguidance takes it; built once, for every call.

    stops: the tokens that may end a reply.
    """

    tokenizer: Tokenizer
    stops: frozenset[int]
    guide: llguidance.LLTokenizer

    @classmethod
    def of(cls, tokenizer: Tokenizer, stops: Iterable[int]) -> Vocabulary:
        """Reads every token's bytes: about a second for 262,144 (measured, 2 cores)."""
        ends = frozenset(stops)
        source = _Source(tokenizer)
        wrapper = llguidance.TokenizerWrapper(source)
        return cls(tokenizer, ends, llguidance.LLTokenizer(wrapper, eos_token=sorted(ends)))


class _Source:
    """What llguidance reads a vocabulary from."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.eos_token_id, self.bos_token_id = tokenizer.eos, tokenizer.bos
        self.special_token_ids = sorted(tokenizer.control.values())
        # A token without text must not be an empty one; 0xFF is no UTF-8.
        self.tokens = [
            tokenizer.token_bytes(token) or b"\xff%d" % token for token in range(tokenizer.size)
        ]

    def __call__(self, text: str | bytes) -> list[int]:
        if isinstance(text, bytes):
            text = text.decode("utf-8", errors="replace")
        return self._tokenizer.encode(text, bos=False)


class CallConstraint:
    """Lets one to `bounds.calls` calls of the functions through, then the end of the turn."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        functions: Sequence[Function],
        size: int,
        bounds: Bounds | None = None,
    ) -> None:
        """size: the number of logits. RunError for what a grammar cannot hold to."""
        text = grammar(functions, vocabulary.tokenizer.control, bounds or Bounds())
        self._matcher = llguidance.LLMatcher(vocabulary.guide, text)
        self._size = size
        self._mask = llguidance.numpy.allocate_token_bitmask(1, vocabulary.guide.vocab_size)
        self._check()

    def allowed(self) -> np.ndarray:
        """bool [size]: the tokens that may come next."""
        llguidance.numpy.fill_next_token_bitmask(self._matcher, self._mask)
        self._check()
        bits = np.unpackbits(self._mask.view(np.uint8).ravel(), bitorder="little")
        allowed = np.zeros(self._size, bool)
        count = min(self._size, len(bits))
        allowed[:count] = bits[:count]
        return allowed

    def accept(self, token: int) -> None:
        """Takes note of a token; RunError where it was not allowed."""
        if not self._matcher.consume_token(token):
            self._check()
            raise RunError(f"token {token} is not allowed here")

    @property
    def finished(self) -> bool:
        """Whether nothing may follow."""
        return bool(self._matcher.is_stopped())

    def _check(self) -> None:
        if self._matcher.is_error():
            # What follows is the whole state, for those who mend llguidance.
            words = str(self._matcher.get_error()).split("<state>")[0].strip()
            raise RunError(f"constrained decoding: {words}")


class OnceCalled:
    """Lets the model say what it likes, until it begins a call; from there on, only valid calls."""

    def __init__(self, constraint: CallConstraint, tokenizer: Tokenizer) -> None:
        """RunError where the vocabulary has no token that begins a call."""
        if START_CALL not in tokenizer.control:
            raise RunError(
                f"the vocabulary has no token {START_CALL}: this model can be made to call a "
                "function, but not be left the choice"
            )
        self._constraint, self._start = constraint, tokenizer.control[START_CALL]
        self._begun = False

    def allowed(self) -> np.ndarray | None:
        return self._constraint.allowed() if self._begun else None

    def accept(self, token: int) -> None:
        self._begun = self._begun or token == self._start
        if self._begun:
            self._constraint.accept(token)

    @property
    def finished(self) -> bool:
        return self._begun and self._constraint.finished
