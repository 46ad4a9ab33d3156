"""A vocabulary for tests: every byte, some longer pieces, and FunctionGemma's markers or not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MARKERS = (
    "<start_function_call>",
    "<end_function_call>",
    "<start_function_response>",
    "<end_of_turn>",
    "<escape>",
)
# Pieces that cross the places where the form's parts meet.
_PIECES = (
    *("call:", "l:f", "{a", "a:", "{}", "},", "}}", "[]", "],", ":[", ":{", "{b", ",b:", "b:tr"),
    *("true", "false", "null", "ue", "e}", "12", "00", ".5", "-1", "e1", "0}", "<esc", "ape>", "<"),
    *("ab", "abc", ' "', "\n\n", "ü", "天気", "☂", "\\", "/", "::", "x}", "<end_function_call"),
)


@dataclass(frozen=True, eq=False, kw_only=True)
class ByteTokens:
    """What a tokenizer is to a constraint. Ids: bos, eos, markers, bytes, pieces."""

    control: Mapping[str, int] = field(default_factory=dict)
    user_defined: Mapping[str, int] = field(default_factory=dict)
    bos: int = 0
    eos: int = 1

    @property
    def size(self) -> int:
        return 2 + len(MARKERS) + 256 + len(_PIECES)

    def token_bytes(self, token: int) -> bytes:
        if token >= 2 + len(MARKERS) + 256:
            return _PIECES[token - 2 - len(MARKERS) - 256].encode()
        if token >= 2 + len(MARKERS):
            return bytes([token - 2 - len(MARKERS)])
        names = {index: name for name, index in self.user_defined.items()}
        return names.get(token, "").encode()

    def encode(self, text: str, *, special: bool = False, bos: bool | None = None) -> list[int]:
        """The longest piece first."""
        assert not bos
        cut = {**self.user_defined, **(self.control if special else {})}
        raw, ids = text.encode("utf-8", errors="surrogatepass"), []
        pieces = {name.encode(): index for name, index in cut.items()}
        first = 2 + len(MARKERS)
        pieces |= {piece.encode(): first + 256 + i for i, piece in enumerate(_PIECES)}
        pieces |= {bytes([byte]): first + byte for byte in range(256)}
        at = 0
        while at < len(raw):
            piece = max(
                (raw[at : at + n] for n in range(1, 30) if raw[at : at + n] in pieces), key=len
            )
            ids.append(pieces[piece])
            at += len(piece)
        return ids

    def shown(self, tokens: list[int]) -> str:
        """The text of tokens, markers as their texts."""
        names = {index: name.encode() for name, index in self.control.items()}
        raw = b"".join(names.get(token) or self.token_bytes(token) for token in tokens)
        return raw.decode("utf-8")


_IDS = {name: 2 + index for index, name in enumerate(MARKERS)}
CONTROL = ByteTokens(control={"<bos>": 0, "<eos>": 1, **_IDS})
USER_DEFINED = ByteTokens(control={"<bos>": 0, "<eos>": 1}, user_defined=_IDS)
PLAIN = ByteTokens(control={"<bos>": 0, "<eos>": 1})
