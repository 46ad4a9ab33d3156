"""Texts in files as tokens of a checkpoint's own vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from export.bundle.tokenizer import vocabulary
from export.errors import ExportError
from export.gguf.dense import dense
from export.gguf.reader import GgufFile
from export.models.config import DecoderConfig
from export.trace.packing import EMBEDDING
from runtime.tokenizer import Tokenizer


@dataclass(frozen=True)
class Text:
    """A text: the file's name without its ending, and its tokens; markers in it are tokens."""

    name: str
    tokens: tuple[int, ...]


def tokenizer_of(gguf: GgufFile) -> Tokenizer:
    """The checkpoint's tokenizer."""
    words = vocabulary(gguf)
    return Tokenizer.load(words.write(), words.description)


def embed(gguf: GgufFile, config: DecoderConfig, texts: Sequence[Text]) -> list[np.ndarray]:
    """The texts as scaled embeddings, each float32 [positions, hidden_size]."""
    rows = dense(gguf.tensor(EMBEDDING)) * np.float32(config.embedding_scale)
    return [rows[list(text.tokens)] for text in texts]


def read_texts(tokenizer: Tokenizer, paths: Sequence[Path], positions: int) -> list[Text]:
    """The texts, each cut at so many positions; ExportError where there are none."""
    texts = []
    for path in paths:
        text = path.read_text("utf-8").removesuffix("\n")
        tokens = tokenizer.encode(text, special=True)[:positions]
        if tokens:
            texts.append(Text(path.stem, tuple(tokens)))
    if not texts:
        raise ExportError(f"none of {', '.join(map(str, paths)) or 'no files'} holds text")
    return texts
