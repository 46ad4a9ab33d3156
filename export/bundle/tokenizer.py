"""The tokenizer of a checkpoint, from its GGUF metadata, as the file that a bundle carries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from gguf.constants import TokenType

from export.bundle import byte_pair_model, sentencepiece_model, special_tokens
from export.bundle.special_tokens import PREFIX
from export.errors import ExportError
from export.gguf.reader import GgufFile, StringArray

_IDS = ("unknown", "bos", "eos", "padding")


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer that was found whole.

    file, write: the file's name, and what makes its content: a second for 262,144 tokens.
    description: what the manifest says of it.
    """

    file: str
    write: Callable[[], bytes]
    description: dict[str, Any]


def vocabulary(gguf: GgufFile) -> Vocabulary:
    """The tokenizer in a file's metadata.

    Raises ExportError for another kind of tokenizer, for tokens, scores, merges and types that are
    absent, of a wrong type, or not as many as each other, for a text that is two tokens, and for
    ids that are none.
    """
    kind = gguf.string(f"{PREFIX}model")
    if kind not in ("llama", "gpt2"):
        raise ExportError(
            f"{gguf.path}: tokenizer {kind!r} is not supported; 'llama' (SentencePiece) and 'gpt2' "
            "(byte-level BPE) are"
        )
    tokens, types = _tokens(gguf)
    texts = _ids(gguf, tokens)
    ids = {name: special_tokens.token_id(gguf, name, len(tokens)) for name in _IDS}
    if kind == "llama":
        scores = _numbers(gguf, "scores", len(tokens))
        space = bool(gguf.metadata.get(f"{PREFIX}add_space_prefix", True))
        write = partial(sentencepiece_model.write, tokens, scores, types, ids, space)
        file, name, begins = "tokenizer.model", "sentencepiece", True
    else:
        merges = gguf.metadata.get(f"{PREFIX}merges")
        if not isinstance(merges, StringArray):
            raise ExportError(f"{gguf.path}: {PREFIX}merges is no array of texts, or missing")
        cut = byte_pair_model.cut(str(gguf.path), gguf.string(f"{PREFIX}pre"))
        pairs = byte_pair_model.pairs(str(gguf.path), texts, merges)
        write = partial(byte_pair_model.write, texts, pairs, cut)
        file, name, begins = "tokenizer.json", "bpe", cut.add_bos
    add_bos = bool(gguf.metadata.get(f"{PREFIX}add_bos_token", begins))
    if add_bos and ids["bos"] < 0:
        raise ExportError(
            f"{gguf.path}: {PREFIX}bos_token_id is missing, and a text begins with it; add "
            f"the key, or {PREFIX}add_bos_token = false"
        )
    mended = special_tokens.mended_types(gguf, texts, types)
    return Vocabulary(
        file=file,
        write=write,
        description={
            "kind": name,
            "size": len(tokens),
            "add_bos": add_bos,
            **{key: index for key, index in ids.items() if key != "unknown"},
            "end": special_tokens.ends(gguf, texts),
            "user_defined": _texts(tokens, mended == TokenType.USER_DEFINED),
            "control": _texts(tokens, np.isin(mended, (TokenType.CONTROL, TokenType.UNKNOWN))),
            "chat_template": gguf.metadata.get("tokenizer.chat_template"),
        },
    )


def _tokens(gguf: GgufFile) -> tuple[StringArray, np.ndarray]:
    tokens = gguf.metadata.get(f"{PREFIX}tokens")
    if not isinstance(tokens, StringArray):
        raise ExportError(f"{gguf.path}: {PREFIX}tokens is no array of texts, or missing")
    return tokens, _numbers(gguf, "token_type", len(tokens))


def _ids(gguf: GgufFile, tokens: StringArray) -> dict[str, int]:
    ids: dict[str, int] = {}
    for index in range(len(tokens)):
        first = ids.setdefault(tokens[index], index)
        if first != index:
            raise ExportError(
                f"{gguf.path}: {PREFIX}tokens has {tokens[index]!r} twice, as {first} and {index}; "
                "each text was expected once; convert the checkpoint again"
            )
    return ids


def _texts(tokens: StringArray, chosen: np.ndarray) -> dict[str, int]:
    return {tokens[index]: index for index in np.flatnonzero(chosen).tolist()}


def _numbers(gguf: GgufFile, name: str, count: int) -> np.ndarray:
    value = gguf.metadata.get(f"{PREFIX}{name}")
    if not isinstance(value, np.ndarray) or len(value) != count:
        raise ExportError(
            f"{gguf.path}: {PREFIX}{name} is no array of {count} numbers, one a token"
        )
    return value
