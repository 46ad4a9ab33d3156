"""The tokenizer of a checkpoint as a SentencePiece model, from its GGUF metadata.

GGUF keeps a SentencePiece vocabulary as tokens, scores and types, and no model file. This writes
the model back: https://github.com/google/sentencepiece, src/sentencepiece_model.proto, whose field
numbers stand here beside what they mean. Pieces that GGUF calls user-defined are written as plain
ones: llama.cpp cuts them out of the raw text before it escapes spaces, so the runtime must too.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from gguf.constants import TokenType

from export.errors import ExportError
from export.gguf.reader import GgufFile, StringArray

_KIND = "llama"
_PREFIX = "tokenizer.ggml."

# ModelProto: 1 piece*, 2 trainer, 3 normaliser. SentencePiece: 1 piece, 2 score, 3 type.
_PIECE, _TRAINER, _NORMALISER = 1, 2, 3
_TEXT, _SCORE, _TYPE = 1, 2, 3
_NORMAL = 1
# TrainerSpec: 3 model_type (2: BPE), 35 byte_fallback, 40 to 43 the ids of unk, bos, eos and pad.
_MODEL_TYPE, _BPE, _BYTE_FALLBACK = 3, 2, 35
_SPECIAL = {"unknown": 40, "bos": 41, "eos": 42, "padding": 43}
# NormalizerSpec: 1 name, 3 add_dummy_prefix, 4 remove_extra_whitespaces, 5 escape_whitespaces.
_NAME, _DUMMY_PREFIX, _EXTRA_WHITESPACES, _ESCAPE_WHITESPACES = 1, 3, 4, 5


@dataclass(frozen=True)
class Vocabulary:
    """model: a serialised SentencePiece ModelProto. description: what the manifest says of it."""

    model: bytes
    description: dict[str, Any]


def vocabulary(gguf: GgufFile) -> Vocabulary:
    """The tokenizer in a file's metadata.

    Raises ExportError for another kind of tokenizer, and for tokens, scores and types that are
    absent, of a wrong type, or not as many as each other.
    """
    kind = gguf.string(f"{_PREFIX}model")
    if kind != _KIND:
        raise ExportError(f"{gguf.path}: tokenizer {kind!r} is not supported; {_KIND!r} is")
    tokens = gguf.metadata.get(f"{_PREFIX}tokens")
    scores, types = (_numbers(gguf, name) for name in ("scores", "token_type"))
    if not isinstance(tokens, StringArray) or not len(tokens) == len(scores) == len(types):
        raise ExportError(
            f"{gguf.path}: {_PREFIX}tokens, scores and token_type must be arrays of one length"
        )
    ids = {name: gguf.integer(f"{_PREFIX}{name}_token_id", -1) for name in _SPECIAL}
    add_bos = gguf.metadata.get(f"{_PREFIX}add_bos_token", True)
    add_space = gguf.metadata.get(f"{_PREFIX}add_space_prefix", True)
    cut = _texts(tokens, types == TokenType.USER_DEFINED)
    control = _texts(tokens, np.isin(types, (TokenType.CONTROL, TokenType.UNKNOWN)))
    return Vocabulary(
        model=_model(tokens, scores, types, ids, bool(add_space)),
        description={
            "kind": "sentencepiece",
            "size": len(tokens),
            "add_bos": bool(add_bos),
            **{name: index for name, index in ids.items() if name != "unknown"},
            "user_defined": cut,
            "control": control,
            "chat_template": gguf.metadata.get("tokenizer.chat_template"),
        },
    )


def _texts(tokens: StringArray, chosen: np.ndarray) -> dict[str, int]:
    return {tokens[index]: index for index in np.flatnonzero(chosen).tolist()}


def _numbers(gguf: GgufFile, name: str) -> np.ndarray:
    value = gguf.metadata.get(f"{_PREFIX}{name}")
    if not isinstance(value, np.ndarray):
        raise ExportError(f"{gguf.path}: {_PREFIX}{name} is no array of numbers, or missing")
    return value


def _model(
    tokens: StringArray, scores: np.ndarray, types: np.ndarray, ids: dict[str, int], space: bool
) -> bytes:
    """The ModelProto, field by field."""
    kinds = np.where(types == TokenType.USER_DEFINED, _NORMAL, types).tolist()
    pieces = [
        _bytes(
            _PIECE,
            _bytes(_TEXT, tokens.raw(index))
            + _tag(_SCORE, 5)
            + struct.pack("<f", score)
            + _number(_TYPE, kind),
        )
        for index, (score, kind) in enumerate(zip(scores.tolist(), kinds, strict=True))
    ]
    trainer = _number(_MODEL_TYPE, _BPE) + _number(_BYTE_FALLBACK, 1)
    trainer += b"".join(_number(_SPECIAL[name], index) for name, index in ids.items())
    normaliser = _bytes(_NAME, b"identity") + _number(_DUMMY_PREFIX, int(space))
    normaliser += _number(_EXTRA_WHITESPACES, 0) + _number(_ESCAPE_WHITESPACES, 1)
    return b"".join([*pieces, _bytes(_TRAINER, trainer), _bytes(_NORMALISER, normaliser)])


def _varint(value: int) -> bytes:
    out = bytearray()
    # A negative number is its 64-bit two's complement.
    value &= (1 << 64) - 1
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _tag(field: int, wire: int) -> bytes:
    return _varint(field << 3 | wire)


def _number(field: int, value: int) -> bytes:
    return _tag(field, 0) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _tag(field, 2) + _varint(len(value)) + value
