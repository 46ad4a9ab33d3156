"""Block formats of GGUF as w = (q - zero_point) * scale per block, with the file's own q.

Every format below has that form exactly, so a matrix keeps the integers that the file holds:

    Q8_0, Q5_0, Q4_0    one scale a block of 32
    Q4_1, Q5_1          scale and minimum a block of 32: zero_point = -minimum / scale
    Q2_K, Q3_K, Q6_K    scale = d * sub-scale, blocks of 16 (Q2_K with a minimum)
    Q4_K, Q5_K          scale = d * sub-scale, minimum = dmin * sub-minimum, blocks of 32

q is shifted to be signed. That also keeps the zero point small, which matters where it is rounded
to bf16. A scale is never negative here: one negative scale anywhere in a matrix makes torq-compile
2.3.0 take its generic kernel for all of it (measured), so such blocks are turned around, exactly.
Layouts: ggml/src/ggml-common.h and ggml-quants.c of llama.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np
from gguf import quants
from gguf.constants import GGML_QUANT_SIZES
from gguf.constants import GGMLQuantizationType as Type

from export.errors import ExportError
from export.gguf import forms
from export.gguf.dense import dense
from export.gguf.forms import FORMATS
from export.gguf.reader import Tensor


@dataclass(frozen=True, eq=False, kw_only=True)
class PackedMatrix:
    """A matrix [n, k] (out, in) as packed blocks: w = (q - zero_point) * scale.

    name: the tensor's name in the file.
    packed_type: the block format that q is in, such as "Q4_K".
    file_type: the type in the file; another one than packed_type where it was quantised here.
    bits: 4 or 8, the width that holds q.
    q: int8 [n, k / block, block]
    scale: float32 [n, k / block], none negative
    zero_point: float32 [n, k / block], or None where it is 0 everywhere
    """

    name: str
    packed_type: str
    file_type: str
    bits: int
    q: np.ndarray
    scale: np.ndarray
    zero_point: np.ndarray | None

    @property
    def shape(self) -> tuple[int, int]:
        """(n, k)."""
        return self.q.shape[0], self.q.shape[1] * self.q.shape[2]

    def dequantise(self) -> np.ndarray:
        """float32 [n, k], in float32 arithmetic."""
        wide = self.q.astype(np.float32)
        if self.zero_point is not None:
            wide -= self.zero_point[..., None]
        wide *= self.scale[..., None]
        return wide.reshape(self.shape)

    def rows(self, order: np.ndarray) -> PackedMatrix:
        """The same matrix with its rows taken in another order, int [n]."""
        zero_point = None if self.zero_point is None else self.zero_point[order]
        return replace(self, q=self.q[order], scale=self.scale[order], zero_point=zero_point)

    def rounded(self) -> PackedMatrix:
        """The same matrix with scale and zero point rounded to bf16, as the NPU holds them."""
        zero_point = None if self.zero_point is None else through_bf16(self.zero_point)
        return replace(self, scale=through_bf16(self.scale), zero_point=zero_point)


def pack(tensor: Tensor, requantise: str = "", quantise: str = "Q8_0") -> PackedMatrix:
    """A matrix of the file as packed blocks, of the type that `forms.packed_type` says.

    Raises ExportError where that does, and for scales and values that are not finite.
    """
    kind = forms.packed_type(tensor, requantise, quantise)
    data = tensor.data if kind == tensor.type else quants.quantize(dense(tensor), kind)
    return _unpacked(tensor, kind, data)


@dataclass(frozen=True)
class _Blocks:
    """What one format's reader gives for [count] blocks of the file.

    q: [count, sub-blocks, block]; scale and minimum: [count, sub-blocks]; w = scale * q + minimum,
    so a minimum of None is 0.
    """

    q: np.ndarray
    scale: np.ndarray
    minimum: np.ndarray | None


def _unpacked(tensor: Tensor, kind: Type, data: np.ndarray) -> PackedMatrix:
    _, block_bytes = GGML_QUANT_SIZES[kind]
    # A scale that is not finite is found below, where the block can be named.
    with np.errstate(invalid="ignore"):
        blocks = _READERS[kind](np.ascontiguousarray(data).reshape(-1, block_bytes))
    n, bits = tensor.shape[0], FORMATS[kind].bits
    q = blocks.q.astype(np.int8, copy=False).reshape(n, -1, FORMATS[kind].block)
    scale = blocks.scale.reshape(n, -1)
    minimum = None if blocks.minimum is None else blocks.minimum.reshape(n, -1)
    for values in (scale, minimum):
        if values is not None and not np.isfinite(values).all():
            row, block = np.argwhere(~np.isfinite(values))[0]
            raise ExportError(
                f"{tensor.name}: the scale of block {block} in row {row} is NaN or infinite; the "
                "file is damaged, fetch it again"
            )
    zero_point = np.zeros_like(scale)
    if minimum is not None:
        q, scale, zero_point = _with_zero_point(q, scale, minimum)
    q, zero_point = _turned_around(q, zero_point, scale < 0, bits)
    return PackedMatrix(
        name=tensor.name,
        packed_type=kind.name,
        file_type=tensor.type.name,
        bits=bits,
        q=q,
        scale=np.abs(scale),
        zero_point=zero_point if zero_point.any() else None,
    )


def _turned_around(
    q: np.ndarray, zero_point: np.ndarray, negative: np.ndarray, bits: int
) -> tuple[np.ndarray, np.ndarray]:
    """(q, zero_point) of the blocks whose scale changes its sign, the values unchanged.

    (q - z) * s = (-q + z) * -s; where -q does not fit, ~q = -q - 1 does, with a zero point that is
    one less.
    """
    if not negative.any():
        return q, zero_point
    lowest = -(1 << (bits - 1))
    low = negative & (q == lowest).any(axis=-1)
    q = np.where(low[..., None], ~q, np.where((negative & ~low)[..., None], -q, q))
    zero_point = np.where(negative, -zero_point - low, zero_point).astype(np.float32)
    return q, zero_point


def _with_zero_point(
    q: np.ndarray, scale: np.ndarray, minimum: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(q, scale, zero_point) with (q - zero_point) * scale = scale * q + minimum."""
    # A block of scale 0 is the constant `minimum`, which no zero point can say: q = 1 and
    # scale = minimum can. So is, to rounding, a block whose zero point would overflow.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        zero_point = -minimum / scale
    constant = ~(np.abs(zero_point) <= np.finfo(ml_dtypes.bfloat16).max)
    zero_point = np.where(constant, 0, zero_point).astype(np.float32)
    scale = np.where(constant, minimum, scale).astype(np.float32)
    q = np.where(constant[..., None], np.int8(1), q)
    return q, scale, zero_point


def through_bf16(values: np.ndarray) -> np.ndarray:
    """float32 values rounded to bf16."""
    return values.astype(ml_dtypes.bfloat16).astype(np.float32)


def _half(raw: np.ndarray, start: int) -> np.ndarray:
    """The f16 at byte `start` of each block, float32 [count, 1]."""
    return np.ascontiguousarray(raw[:, start : start + 2]).view(np.float16).astype(np.float32)


def _nibbles(raw: np.ndarray) -> np.ndarray:
    """[count, 16] bytes to [count, 32]: the low halves first, then the high ones."""
    return np.concatenate([raw & 15, raw >> 4], axis=-1)


def _fifth_bits(raw: np.ndarray) -> np.ndarray:
    """[count, 4] bytes of 32 flags to [count, 32] of 0 or 16."""
    return np.unpackbits(raw, axis=-1, bitorder="little") << 4


def _q8_0(raw: np.ndarray) -> _Blocks:
    return _Blocks(raw[:, None, 2:].view(np.int8), _half(raw, 0), None)


def _q4_0(raw: np.ndarray) -> _Blocks:
    return _Blocks(_signed(_nibbles(raw[:, 2:]), 8)[:, None], _half(raw, 0), None)


def _q5_0(raw: np.ndarray) -> _Blocks:
    q = _nibbles(raw[:, 6:]) | _fifth_bits(raw[:, 2:6])
    return _Blocks(_signed(q, 16)[:, None], _half(raw, 0), None)


def _q4_1(raw: np.ndarray) -> _Blocks:
    return _shifted(_nibbles(raw[:, 4:])[:, None], 8, _half(raw, 0), _half(raw, 2))


def _q5_1(raw: np.ndarray) -> _Blocks:
    q = _nibbles(raw[:, 8:]) | _fifth_bits(raw[:, 4:8])
    return _shifted(q[:, None], 16, _half(raw, 0), _half(raw, 2))


def _q2_k(raw: np.ndarray) -> _Blocks:
    sub = raw[:, :16]
    q = _crumbs(raw[:, 16:80])
    scale, minimum = _half(raw, 80) * (sub & 15), -_half(raw, 82) * (sub >> 4)
    return _shifted(q, 2, scale, minimum)


def _q3_k(raw: np.ndarray) -> _Blocks:
    high = (raw[:, None, :32] >> np.arange(8, dtype=np.uint8)[:, None]) & 1
    q = _crumbs(raw[:, 32:96]) | (high.reshape(-1, 16, 16) << 2)
    low, top = raw[:, 96:104], raw[:, 104:108]
    sub = np.concatenate([low & 15, low >> 4], axis=-1)
    sub |= np.concatenate([(top >> shift) & 3 for shift in (0, 2, 4, 6)], axis=-1) << 4
    return _Blocks(_signed(q, 4), _half(raw, 108) * _signed(sub, 32), None)


def _q4_k(raw: np.ndarray) -> _Blocks:
    halves = raw[:, 16:].reshape(-1, 4, 1, 32) >> np.array([0, 4], np.uint8)[:, None]
    scale, minimum = _k_scales(raw)
    return _shifted((halves & 15).reshape(-1, 8, 32), 8, scale, minimum)


def _q5_k(raw: np.ndarray) -> _Blocks:
    halves = raw[:, 48:].reshape(-1, 4, 1, 32) >> np.array([0, 4], np.uint8)[:, None]
    high = (raw[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None]) & 1
    q = (halves & 15).reshape(-1, 8, 32) | (high << 4)
    scale, minimum = _k_scales(raw)
    return _shifted(q, 16, scale, minimum)


def _q6_k(raw: np.ndarray) -> _Blocks:
    low = raw[:, :128].reshape(-1, 2, 1, 64) >> np.array([0, 4], np.uint8)[:, None]
    high = raw[:, 128:192].reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None]
    q = (low & 15).reshape(-1, 16, 16) | ((high & 3).reshape(-1, 16, 16) << 4)
    scale = _half(raw, 208) * raw[:, 192:208].view(np.int8)
    return _Blocks(_signed(q, 32), scale, None)


def _crumbs(raw: np.ndarray) -> np.ndarray:
    """[count, 64] bytes of four 2-bit values to [count, 16, 16], in ggml's order."""
    shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
    return ((raw.reshape(-1, 2, 1, 32) >> shifts) & 3).reshape(-1, 16, 16)


def _k_scales(raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scale and minimum of the 8 sub-blocks of Q4_K and Q5_K, from 12 bytes of 6-bit values."""
    first, second, rest = raw[:, 4:8], raw[:, 8:12], raw[:, 12:16]
    sub_scale = np.concatenate([first & 63, (rest & 15) | ((first >> 6) << 4)], axis=-1)
    sub_minimum = np.concatenate([second & 63, (rest >> 4) | ((second >> 6) << 4)], axis=-1)
    return _half(raw, 0) * sub_scale, -_half(raw, 2) * sub_minimum


def _signed(q: np.ndarray, shift: int) -> np.ndarray:
    return q.astype(np.int8) - np.int8(shift)


def _shifted(q: np.ndarray, shift: int, scale: np.ndarray, minimum: np.ndarray) -> _Blocks:
    """Unsigned q moved to be signed, the minimum moved to match."""
    return _Blocks(_signed(q, shift), scale, minimum + shift * scale)


_READERS: Mapping[Type, Callable[[np.ndarray], _Blocks]] = {
    Type.Q8_0: _q8_0,
    Type.Q5_0: _q5_0,
    Type.Q5_1: _q5_1,
    Type.Q4_0: _q4_0,
    Type.Q4_1: _q4_1,
    Type.Q2_K: _q2_k,
    Type.Q3_K: _q3_k,
    Type.Q4_K: _q4_k,
    Type.Q5_K: _q5_k,
    Type.Q6_K: _q6_k,
}
