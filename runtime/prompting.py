"""Conversations as prompts: which form a checkpoint speaks, and its tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runtime import segments
from runtime.bundle import Bundle
from runtime.errors import RunError
from runtime.functions import functiongemma
from runtime.functions.markers import START_CALL, START_RESPONSE
from runtime.functions.schema import Function
from runtime.segments import Segment
from runtime.template import ChatTemplate


@dataclass(frozen=True, eq=False)
class Form:
    """How a checkpoint is spoken to.

    template: its own, or None for FunctionGemma's built-in form.
    raw: whether it has no form at all: text goes in as it is.
    declares: whether the template declares functions in FunctionGemma's form.
    """

    bundle: Bundle
    template: ChatTemplate | None
    raw: bool
    declares: bool

    @classmethod
    def of(cls, bundle: Bundle, raw: bool = False) -> Form:
        """The template of the file; FunctionGemma's form where its tokens are; otherwise raw."""
        control = bundle.tokenizer.control
        source = bundle.chat_template
        if raw or (source is None and START_CALL not in control):
            return cls(bundle, None, raw=True, declares=False)
        template = ChatTemplate(source, control) if source else None
        return cls(bundle, template, raw=False, declares=START_CALL in (source or ""))

    def segments(
        self, messages: Sequence[Mapping[str, Any]], functions: Sequence[Function] = ()
    ) -> tuple[Segment, ...]:
        """The prompt that asks for the next message.

        Functions are declared by a template that knows FunctionGemma's form, or by the form itself.
        """
        if self.template is None or (functions and not self.declares):
            return functiongemma.prompt(messages, functions)
        tokenizer = self.bundle.tokenizer
        names = {index: name for name, index in tokenizer.control.items()}
        if functions and (not messages or messages[0]["role"] not in ("system", "developer")):
            # The template leaves the sentence that the model was trained with to its caller.
            messages = [{"role": "developer", "content": functiongemma.INSTRUCTION}, *messages]
        return self.template.render(
            messages,
            [function.declared for function in functions] or None,
            bos=names.get(tokenizer.bos, ""),
            eos=names.get(tokenizer.eos, ""),
        )

    def tokens(
        self, messages: Sequence[Mapping[str, Any]], functions: Sequence[Function] = ()
    ) -> list[int]:
        """The prompt's tokens; for a raw form the messages' texts, one after the other."""
        tokenizer = self.bundle.tokenizer
        if self.raw and not functions:
            return tokenizer.encode("".join(str(message["content"]) for message in messages))
        return segments.encode(tokenizer, self.segments(messages, functions))

    def shown(self, tokens: Sequence[int]) -> str:
        """The text of a reply in which control tokens stand as their texts."""
        tokenizer = self.bundle.tokenizer
        names = {index: name.encode() for name, index in tokenizer.control.items()}
        raw = b"".join(names.get(token) or tokenizer.token_bytes(token) for token in tokens)
        return raw.decode("utf-8", errors="replace")

    @property
    def stops(self) -> frozenset[int]:
        """The tokens that end the model's turn, which may be followed by a function's response."""
        control = self.bundle.tokenizer.control
        called = {control[START_RESPONSE]} if START_RESPONSE in control else set()
        return self.bundle.tokenizer.end | called


def user_message(text: str) -> dict[str, Any]:
    """What a person says; RunError where it says nothing."""
    if not text:
        raise RunError("the prompt is empty; write what to say")
    return {"role": "user", "content": text}
