"""A SentencePiece model from a checkpoint's GGUF metadata.

GGUF keeps a SentencePiece vocabulary as tokens, scores and types, and no model file. This writes
the model back: https://github.com/google/sentencepiece, src/sentencepiece_model.proto, whose field
numbers stand here beside what they mean. Pieces that GGUF calls user-defined are written as plain
ones: llama.cpp cuts them out of the raw text before it escapes spaces, so the runtime must too.
"""

from __future__ import annotations

import struct

import numpy as np
from gguf.constants import TokenType

from export.gguf.reader import StringArray

# ModelProto: 1 piece*, 2 trainer, 3 normaliser. SentencePiece: 1 piece, 2 score, 3 type.
_PIECE, _TRAINER, _NORMALISER = 1, 2, 3
_TEXT, _SCORE, _TYPE = 1, 2, 3
_NORMAL = 1
# TrainerSpec: 3 model_type (2: BPE), 35 byte_fallback, 40 to 43 the ids of unk, bos, eos and pad.
_MODEL_TYPE, _BPE, _BYTE_FALLBACK = 3, 2, 35
_SPECIAL = {"unknown": 40, "bos": 41, "eos": 42, "padding": 43}
# NormalizerSpec: 1 name, 3 add_dummy_prefix, 4 remove_extra_whitespaces, 5 escape_whitespaces.
_NAME, _DUMMY_PREFIX, _EXTRA_WHITESPACES, _ESCAPE_WHITESPACES = 1, 3, 4, 5


def write(
    tokens: StringArray, scores: np.ndarray, types: np.ndarray, ids: dict[str, int], space: bool
) -> bytes:
    """The serialised ModelProto.

    scores: float32 [tokens]. types: int32 [tokens], as GGUF has them.
    ids: of the unknown, bos, eos and padding token; -1 for none.
    space: whether a space comes before the text.
    """
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
