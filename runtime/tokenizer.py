"""Text to tokens and back, as llama.cpp does it with the same checkpoint."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sentencepiece


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """A SentencePiece vocabulary.

    processor: the model of the bundle.
    bos, eos: ids; bos is put in front of a text where add_bos says so.
    user_defined: texts that are cut out of any text first, as tokens of their own.
    control: texts such as `<eos>`; they become tokens only where a caller trusts the text.
    """

    processor: sentencepiece.SentencePieceProcessor
    bos: int
    eos: int
    add_bos: bool
    user_defined: Mapping[str, int]
    control: Mapping[str, int]

    @classmethod
    def load(cls, model: bytes, description: Mapping[str, Any]) -> Tokenizer:
        """From a bundle's model file and what its manifest says of it."""
        return cls(
            processor=sentencepiece.SentencePieceProcessor(model_proto=model),
            bos=description["bos"],
            eos=description["eos"],
            add_bos=description["add_bos"],
            user_defined=description["user_defined"],
            control=description["control"],
        )

    def encode(self, text: str, *, special: bool = False, bos: bool | None = None) -> list[int]:
        """The tokens of a text.

        special: whether control tokens in the text are tokens (a template's) or text (a user's).
        bos: whether the beginning of a sentence comes first; None for what the checkpoint says.
        """
        ids = [self.bos] if (self.add_bos if bos is None else bos) else []
        cut = {**self.user_defined, **self.control} if special else self.user_defined
        for fragment in _fragments(text, cut):
            ids += [cut[fragment]] if fragment in cut else self.processor.encode(fragment)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens; control tokens have none, bytes that are not UTF-8 become U+FFFD."""
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", errors="replace")

    @property
    def size(self) -> int:
        """The number of tokens."""
        return int(self.processor.get_piece_size())

    def token_bytes(self, token: int) -> bytes:
        """The bytes that one token stands for, which may be a part of a character."""
        piece: str = self.processor.id_to_piece(token)
        if self.processor.is_control(token) or self.processor.is_unknown(token):
            return b""
        if self.processor.is_byte(token):
            return bytes([int(piece[3:5], 16)])
        return (piece if piece in self.user_defined else piece.replace("▁", " ")).encode()

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

    The order is llama.cpp's, which looks for each token in the whole text before the next one.
    """
    fragments = [text] if text else []
    for token in sorted((token for token in cut if token in text), key=len, reverse=True):
        split = re.compile(f"({re.escape(token)})").split
        fragments = [
            part
            for fragment in fragments
            for part in ([fragment] if fragment in cut else split(fragment))
            if part
        ]
    return fragments
