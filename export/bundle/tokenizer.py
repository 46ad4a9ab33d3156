"""The tokenizer of a checkpoint, from its GGUF metadata, as the file that a bundle carries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gguf.constants import TokenType

from export.bundle import byte_pair_model, sentencepiece_model
from export.errors import ExportError
from export.gguf.reader import GgufFile, StringArray

_PREFIX = "tokenizer.ggml."
_IDS = ("unknown", "bos", "eos", "padding")


@dataclass(frozen=True)
class Vocabulary:
    """file, model: the file's name and content. description: what the manifest says of it."""

    file: str
    model: bytes
    description: dict[str, Any]


def vocabulary(gguf: GgufFile) -> Vocabulary:
    """The tokenizer in a file's metadata.

    Raises ExportError for another kind of tokenizer, and for tokens, scores, merges and types that
    are absent, of a wrong type, or not as many as each other.
    """
    kind = gguf.string(f"{_PREFIX}model")
    if kind not in ("llama", "gpt2"):
        raise ExportError(
            f"{gguf.path}: tokenizer {kind!r} is not supported; 'llama' (SentencePiece) and 'gpt2' "
            "(byte-level BPE) are"
        )
    tokens, types = _tokens(gguf)
    ids = {name: gguf.integer(f"{_PREFIX}{name}_token_id", -1) for name in _IDS}
    if kind == "llama":
        scores = _numbers(gguf, "scores", len(tokens))
        space = bool(gguf.metadata.get(f"{_PREFIX}add_space_prefix", True))
        model = sentencepiece_model.write(tokens, scores, types, ids, space)
        file, name = "tokenizer.model", "sentencepiece"
    else:
        merges = gguf.metadata.get(f"{_PREFIX}merges")
        if not isinstance(merges, StringArray):
            raise ExportError(f"{gguf.path}: {_PREFIX}merges is no array of texts, or missing")
        pre = gguf.string(f"{_PREFIX}pre")
        model = byte_pair_model.write(str(gguf.path), tokens, merges, pre)
        file, name = "tokenizer.json", "bpe"
    # What llama.cpp takes where the file does not say: a beginning for SentencePiece alone.
    add_bos = gguf.metadata.get(f"{_PREFIX}add_bos_token", kind == "llama")
    return Vocabulary(
        file=file,
        model=model,
        description={
            "kind": name,
            "size": len(tokens),
            "add_bos": bool(add_bos),
            **{key: index for key, index in ids.items() if key != "unknown"},
            "user_defined": _texts(tokens, types == TokenType.USER_DEFINED),
            "control": _texts(tokens, np.isin(types, (TokenType.CONTROL, TokenType.UNKNOWN))),
            "chat_template": gguf.metadata.get("tokenizer.chat_template"),
        },
    )


def _tokens(gguf: GgufFile) -> tuple[StringArray, np.ndarray]:
    tokens = gguf.metadata.get(f"{_PREFIX}tokens")
    if not isinstance(tokens, StringArray):
        raise ExportError(f"{gguf.path}: {_PREFIX}tokens is no array of texts, or missing")
    return tokens, _numbers(gguf, "token_type", len(tokens))


def _texts(tokens: StringArray, chosen: np.ndarray) -> dict[str, int]:
    return {tokens[index]: index for index in np.flatnonzero(chosen).tolist()}


def _numbers(gguf: GgufFile, name: str, count: int) -> np.ndarray:
    value = gguf.metadata.get(f"{_PREFIX}{name}")
    if not isinstance(value, np.ndarray) or len(value) != count:
        raise ExportError(
            f"{gguf.path}: {_PREFIX}{name} is no array of {count} numbers, one a token"
        )
    return value
