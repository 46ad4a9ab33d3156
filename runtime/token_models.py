"""The two kinds of vocabularies, each on its kept library: text without control tokens to ids."""

from __future__ import annotations

from typing import Protocol

import sentencepiece
import tokenizers


class TokenModel(Protocol):
    """A vocabulary, and how text is cut into its pieces."""

    @property
    def size(self) -> int:
        """The number of tokens."""

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, whatever is in it."""

    def token_bytes(self, token: int) -> bytes:
        """The bytes of a token; none for control tokens."""


class SentencePieceModel:
    """A serialised SentencePiece model. A space is written `▁` in its pieces."""

    def __init__(self, model: bytes) -> None:
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)

    @property
    def size(self) -> int:
        return int(self._processor.get_piece_size())

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._processor.encode(text)
        return ids

    def token_bytes(self, token: int) -> bytes:
        piece: str = self._processor.id_to_piece(token)
        if self._processor.is_control(token) or self._processor.is_unknown(token):
            return b""
        if self._processor.is_byte(token):
            return bytes([int(piece[3:5], 16)])
        return piece.replace("▁", " ").encode()


class BytePairModel:
    """Byte-level BPE in the JSON of `tokenizers`. Every byte is a character in its pieces."""

    def __init__(self, model: bytes) -> None:
        self._tokenizer = tokenizers.Tokenizer.from_buffer(model)

    @property
    def size(self) -> int:
        return int(self._tokenizer.get_vocab_size())

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def token_bytes(self, token: int) -> bytes:
        piece = self._tokenizer.id_to_token(token) or ""
        try:
            return bytes(_BYTES[character] for character in piece)
        except KeyError:
            # A token that stands for itself, such as a control token.
            return piece.encode()


def _byte_characters() -> dict[str, int]:
    """The byte of each character of GPT-2's alphabet (openai/gpt-2, encoder.py).

    Printable bytes of Latin-1 stand for themselves, the others for U+0100 and what follows.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {
        **{chr(byte): byte for byte in printable},
        **{chr(0x100 + index): byte for index, byte in enumerate(others)},
    }


_BYTES = _byte_characters()
KINDS: dict[str, type[SentencePieceModel] | type[BytePairModel]] = {
    "sentencepiece": SentencePieceModel,
    "bpe": BytePairModel,
}
