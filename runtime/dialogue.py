"""One turn of a model: messages in, its reply out, as text or as calls."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runtime.decoder import Decoder
from runtime.errors import RunError
from runtime.functions.check import check_arguments
from runtime.functions.parse import Reply, parse
from runtime.functions.schema import Function
from runtime.generate import Constraint, Limits, Stats, fit, generate
from runtime.prompting import Form
from runtime.sampling import Sampler
from runtime.show import prefill


@dataclass(kw_only=True)
class Turn:
    """A reply as it comes. tokens: what the model said, stop tokens left out."""

    tokens: list[int] = field(default_factory=list)
    stats: Stats = field(default_factory=Stats)


@dataclass(frozen=True, eq=False, kw_only=True)
class Dialogue:
    """What replies to messages.

    cut: whether a prompt that is too long loses its beginning.
    """

    decoder: Decoder
    sampler: Sampler
    form: Form
    cut: bool = False

    def prompt(
        self,
        messages: Sequence[Mapping[str, Any]],
        functions: Sequence[Function],
        max_tokens: int,
    ) -> list[int]:
        """The tokens of a conversation; RunError where they do not fit the context."""
        tokens = self.form.tokens(messages, functions)
        return fit(tokens, self.decoder.bundle.context, max_tokens, self.cut)

    def pieces(
        self,
        prompt: Sequence[int],
        limits: Limits,
        turn: Turn,
        constraint: Constraint | None = None,
    ) -> Iterator[str]:
        """The reply's text, never half a character; control tokens have none."""
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        tokenizer = self.decoder.bundle.tokenizer
        with prefill(len(prompt)) as progress:
            for token in generate(
                self.decoder, self.sampler, prompt, limits, turn.stats, constraint, progress
            ):
                turn.tokens.append(token)
                if text := decoder.decode(tokenizer.token_bytes(token)):
                    yield text
        if text := decoder.decode(b"", final=True):
            yield text

    def checked(self, turn: Turn, functions: Sequence[Function]) -> Reply:
        """The reply's text and calls.

        Raises CallError where a call cannot be read, RunError where it is not as declared.
        """
        declared = {function.name: function for function in functions}
        reply = parse(self.form.shown(turn.tokens))
        for call in reply.calls:
            if call.name not in declared:
                raise RunError(f"the model called {call.name!r}, which is not declared")
            check_arguments(declared[call.name], call.arguments)
        return reply
