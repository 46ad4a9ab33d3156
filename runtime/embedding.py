"""Embedding rows of a bundle, mapped into memory and dequantised one by one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import quants
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from runtime.errors import RunError


@dataclass(frozen=True, eq=False)
class EmbeddingRows:
    """raw: uint8 [rows, bytes of a row], GGUF blocks of `type`; scale: factor of every value."""

    raw: np.ndarray
    type: GGMLQuantizationType
    scale: np.float32

    @classmethod
    def map(
        cls, path: Path, *, block_type: str, rows: int, columns: int, scale: float
    ) -> EmbeddingRows:
        """Maps a file of rows; RunError for an unknown type or a file of another size."""
        if block_type not in GGMLQuantizationType.__members__:
            raise RunError(f"{path}: block type {block_type!r} is unknown")
        kind = GGMLQuantizationType[block_type]
        block_size, block_bytes = GGML_QUANT_SIZES[kind]
        row_bytes = columns // block_size * block_bytes
        size = path.stat().st_size
        if columns % block_size or size != rows * row_bytes:
            raise RunError(
                f"{path}: {size} bytes are not {rows} rows of {columns} {block_type} values"
            )
        raw = np.memmap(path, np.uint8, "r", shape=(rows, row_bytes))
        return cls(raw, kind, np.float32(scale))

    def row(self, token: int) -> np.ndarray:
        """The scaled embedding of a token: float32 [columns]."""
        if not 0 <= token < len(self.raw):
            raise RunError(f"token {token} has no embedding; there are {len(self.raw)}")
        found: np.ndarray = self.rows(np.array([token]))[0]
        return found

    def rows(self, tokens: np.ndarray) -> np.ndarray:
        """The scaled rows of tokens int [n], which there must be: float32 [n, columns]."""
        values: np.ndarray = quants.dequantize(np.array(self.raw[tokens]), self.type)
        return values.astype(np.float32).reshape(len(tokens), -1) * self.scale
