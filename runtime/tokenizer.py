"""Text to tokens and back, as llama.cpp does it with the same checkpoint."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from runtime.errors import RunError
from runtime.functions.markers import MARKERS
from runtime.token_models import KINDS, TokenModel

_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """A vocabulary.

    model: how text is cut into pieces.
    bos, eos: ids; bos is put in front of a text where add_bos says so.
    end: the tokens that end a reply, eos among them.
    user_defined: texts that are cut out of any text first, as tokens of their own.
    control: texts such as `<eos>`; they become tokens only where a caller trusts the text.
    """

    model: TokenModel
    bos: int
    eos: int
    end: frozenset[int]
    add_bos: bool
    user_defined: Mapping[str, int]
    control: Mapping[str, int]

    @classmethod
    def load(cls, model: bytes, description: Mapping[str, Any]) -> Tokenizer:
        """From a bundle's model file and what its manifest says of it.

        Raises RunError for a kind of vocabulary that is unknown, or a file that is none.
        """
        kind = description["kind"]
        if kind not in KINDS:
            raise RunError(f"the bundle's tokenizer is of kind {kind!r}, not {' or '.join(KINDS)}")
        try:
            loaded = KINDS[kind](model)
        except Exception as error:
            # Either library raises what it likes.
            raise RunError(f"the bundle's tokenizer cannot be read: {error}") from None
        # A file may have a form's markers as user-defined tokens, which any text can spell. They
        # are for the form alone; llama.cpp overrides the types of such tokens too.
        user_defined = dict(description["user_defined"])
        markers = {name: user_defined.pop(name) for name in MARKERS & set(user_defined)}
        return cls(
            model=loaded,
            bos=description["bos"],
            eos=description["eos"],
            end=frozenset(description["end"]),
            add_bos=description["add_bos"],
            user_defined=user_defined,
            control={**description["control"], **markers},
        )

    @property
    def size(self) -> int:
        """The number of tokens."""
        return self.model.size

    def encode(self, text: str, *, special: bool = False, bos: bool | None = None) -> list[int]:
        """The tokens of a text.

        text: what is no Unicode in it (a lone surrogate, as Python reads bytes that are no UTF-8)
            is read as U+FFFD.
        special: whether control tokens in the text are tokens (a template's) or text (a user's).
        bos: whether the beginning of a sentence comes first; None for what the checkpoint says.
        """
        ids = [self.bos] if (self.add_bos if bos is None else bos) else []
        cut = {**self.user_defined, **self.control} if special else self.user_defined
        for fragment in _fragments(_SURROGATE.sub("\ufffd", text), cut):
            ids += [cut[fragment]] if fragment in cut else self.model.encode(fragment)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens; control tokens have none, bytes that are not UTF-8 become U+FFFD."""
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", errors="replace")

    def token_bytes(self, token: int) -> bytes:
        """The bytes that one token stands for, which may be a part of a character."""
        if token in self._silent:
            return b""
        return self._whole.get(token) or self.model.token_bytes(token)

    @cached_property
    def _silent(self) -> frozenset[int]:
        return frozenset(self.control.values())

    @cached_property
    def _whole(self) -> dict[int, bytes]:
        """User-defined tokens are texts as they stand, whatever the pieces' alphabet."""
        return {token: text.encode() for text, token in self.user_defined.items()}

    def stream(self, tokens: Iterator[int]) -> Iterator[str]:
        """The text of tokens as they come, never half a character."""
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        for token in tokens:
            if text := decoder.decode(self.token_bytes(token)):
                yield text
        if text := decoder.decode(b"", final=True):
            yield text


def _fragments(text: str, cut: Mapping[str, int]) -> list[str]:
    """The text split at the given texts, which stay as fragments: the longest are cut out first.

    The order is llama.cpp's, which looks for each token in the whole text before the next one, and
    measures in bytes.
    """
    fragments = [text] if text else []
    found = (token for token in cut if token in text)
    for token in sorted(found, key=lambda token: len(token.encode()), reverse=True):
        split = re.compile(f"({re.escape(token)})").split
        fragments = [
            part
            for fragment in fragments
            for part in ([fragment] if fragment in cut else split(fragment))
            if part
        ]
    return fragments
