"""A tensor's values, as gguf dequantises them."""

from __future__ import annotations

from functools import cache

import numpy as np
from gguf import quants
from gguf.constants import GGML_QUANT_SIZES
from gguf.constants import GGMLQuantizationType as Type

from export.errors import ExportError
from export.gguf.reader import Tensor


def dense(tensor: Tensor) -> np.ndarray:
    """The tensor's values, float32 in its shape.

    Raises ExportError for a type that gguf cannot dequantise, and values that are not finite.
    """
    require_values(tensor)
    rows = tensor.data.reshape(*tensor.shape[:-1], -1)
    if tensor.type in (Type.F32, Type.F16):
        rows = rows.view(np.float32 if tensor.type == Type.F32 else np.float16)
    values: np.ndarray = quants.dequantize(rows, tensor.type).astype(np.float32, copy=False)
    if not np.isfinite(values).all():
        raise ExportError(f"{tensor.name}: holds NaN or infinity; the file is damaged")
    return values


def require_values(tensor: Tensor) -> None:
    """Raises ExportError for a type that gguf cannot dequantise; the data are not read."""
    if not _has_values(tensor.type):
        raise ExportError(
            f"{tensor.name}: {tensor.type.name} has no packed form on Torq and no values that the "
            "gguf package can give; use a Q8_0 file"
        )


@cache
def _has_values(kind: Type) -> bool:
    """Whether gguf can dequantise a block of a type; it says so of none but by trying."""
    _, block_bytes = GGML_QUANT_SIZES[kind]
    try:
        quants.dequantize(np.zeros((1, block_bytes), np.uint8), kind)
    except (NotImplementedError, ValueError):
        return False
    return True
