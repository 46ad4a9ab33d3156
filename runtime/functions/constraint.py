"""Constrained decoding: a mask over the vocabulary that only lets valid calls through."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import llguidance
import llguidance.numpy
import numpy as np

from runtime.errors import RunError
from runtime.functions.grammar import Bounds, grammar
from runtime.functions.markers import END_CALL, ESCAPE, START_CALL
from runtime.functions.schema import Function


class Tokens(Protocol):
    """What a constraint needs of a tokenizer; `runtime.tokenizer.Tokenizer` is one."""

    @property
    def bos(self) -> int: ...
    @property
    def eos(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def control(self) -> Mapping[str, int]: ...
    @property
    def user_defined(self) -> Mapping[str, int]: ...
    def token_bytes(self, token: int) -> bytes: ...
    def encode(self, text: str, *, special: bool = False, bos: bool | None = None) -> list[int]: ...


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """A tokenizer as llguidance takes it; built once, for every call.

    markers: tokens of the form, which a checkpoint has as control or as user-defined ones.
    stops: the tokens that may end a reply.
    """

    markers: Mapping[str, int]
    stops: frozenset[int]
    guide: llguidance.LLTokenizer

    @classmethod
    def of(cls, tokenizer: Tokens, stops: Iterable[int]) -> Vocabulary:
        """Reads every token's bytes: about a second for 262,144 (measured, 2 cores)."""
        named = {**tokenizer.user_defined, **tokenizer.control}
        markers = {name: named[name] for name in (START_CALL, END_CALL, ESCAPE) if name in named}
        ends = frozenset(stops)
        wrapper = llguidance.TokenizerWrapper(_Source(tokenizer, {*markers.values(), *ends}))
        return cls(markers, ends, llguidance.LLTokenizer(wrapper, eos_token=sorted(ends)))


class _Source:
    """What llguidance reads a vocabulary from."""

    def __init__(self, tokenizer: Tokens, special: set[int]) -> None:
        self._tokenizer = tokenizer
        self.eos_token_id, self.bos_token_id = tokenizer.eos, tokenizer.bos
        # No text is spelled by a special token, whatever its bytes.
        self.special_token_ids = sorted(special | set(tokenizer.control.values()))
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
        text = grammar(functions, vocabulary.markers, bounds or Bounds())
        self._matcher = llguidance.LLMatcher(vocabulary.guide, text, log_level=0)
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

    def forced(self) -> list[int]:
        """The tokens of the text that must come next, cut as the tokenizer does; often none.

        They are not accepted yet. A model may cut the same text otherwise: `allowed` lets it.
        """
        tokens = [int(token) for token in self._matcher.compute_ff_tokens()]
        self._check()
        return tokens

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

    def __init__(self, constraint: CallConstraint, tokenizer: Tokens) -> None:
        """RunError where the vocabulary has no token that begins a call."""
        named = {**tokenizer.user_defined, **tokenizer.control}
        if START_CALL not in named:
            raise RunError(
                f"the vocabulary has no token {START_CALL}: this model can be made to call a "
                "function, but not be left the choice"
            )
        self._constraint, self._start = constraint, named[START_CALL]
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
