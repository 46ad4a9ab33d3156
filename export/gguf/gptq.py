"""A 4-bit quantiser that knows what a matrix is multiplied with: GPTQ over blocks of 32.

A matrix W [n, k] meets inputs x whose second moment H = E[x x^T] is known (the importance matrix).
Columns are quantised one after the other; what a column loses is made up for, as far as H lets it,
by those that are still to come (Frantar et al. 2022, arXiv:2210.17323). Scale and zero point of a
block are those of least error weighted by the diagonal of H, among several ranges.

The result has the form of Q4_1: 4 bits, a scale and a zero point a block, both rounded to bf16
before q is chosen, as the NPU holds them.
"""

from __future__ import annotations

import numpy as np

from export.errors import ExportError
from export.gguf.blocks import PackedMatrix, through_bf16
from export.gguf.dense import dense
from export.gguf.forms import GPTQ
from export.gguf.reader import Tensor

BLOCK = 32
_LOW, _HIGH = -8, 7

# Shares of a block's range that are tried: what lies outside is clipped.
_RANGES = (1.0, 0.95, 0.9, 0.85, 0.8)

# Of the mean of H's diagonal, added to it: 0.01, 0.1, 0.3 and 1 gave the head of Gemma 3 270M a KL
# divergence of 0.0194, 0.0182, 0.0193 and 0.0197 (measured).
_DAMPING = 0.1

# A block whose range is this small against its values is as good as one value: bf16 has no zero
# point for it.
_CONSTANT = 2.0**-12

# Rows at once: 8,192 of 640 columns are 20 MB.
_ROWS = 8192


def pack(
    tensor: Tensor, moment: np.ndarray, centred: bool = False
) -> tuple[PackedMatrix, np.ndarray | None]:
    """A matrix of the file as packed blocks.

    moment: float [k, k], the second moment of its inputs.
    centred: whether the mean row is taken off first, which costs each result of an input the same
        number; returned then, float32 [k].

    Raises ExportError for a moment of another size, or one that is not finite.
    """
    values = dense(tensor)
    mean = values.mean(axis=0, dtype=np.float64).astype(np.float32) if centred else None
    rest = values if mean is None else values - mean
    return quantise(rest, moment, tensor.name, tensor.type.name), mean


def quantise(
    values: np.ndarray, moment: np.ndarray, name: str = "the matrix", file_type: str = "F32"
) -> PackedMatrix:
    """Quantises float32 [n, k] for inputs of second moment [k, k]; scale and zero point are bf16.

    name: what errors call it. file_type: what the values came from.
    """
    n, k = values.shape
    if moment.shape != (k, k) or not np.isfinite(moment).all():
        raise ExportError(
            f"{name}: the importance matrix of its inputs is {moment.shape}; finite values "
            f"{(k, k)} were expected: make it of the same checkpoint"
        )
    upper, importance = _factor(moment)
    q = np.empty((n, k // BLOCK, BLOCK), np.int8)
    scale, zero_point = (np.empty((n, k // BLOCK), np.float32) for _ in range(2))
    for start in range(0, n, _ROWS):
        rows = slice(start, start + _ROWS)
        out = q[rows], scale[rows], zero_point[rows]
        _quantise_rows(values[rows].astype(np.float32), upper, importance, *out)
    return PackedMatrix(
        name=name,
        packed_type=GPTQ,
        file_type=file_type,
        bits=4,
        q=q,
        scale=scale,
        zero_point=zero_point,
    )


def _factor(moment: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The upper Cholesky factor of the damped inverse, float32 [k, k], and H's diagonal [k].

    An input that was never seen has importance 0, which the damping makes small and positive.
    """
    wide = moment.astype(np.float64)
    damping = _DAMPING * np.diag(wide).mean() or 1.0
    damped = wide + damping * np.eye(len(wide))
    upper = np.linalg.cholesky(np.linalg.inv(damped)).T
    return upper.astype(np.float32), np.diag(damped).astype(np.float32)


def _quantise_rows(
    left: np.ndarray,
    upper: np.ndarray,
    importance: np.ndarray,
    all_q: np.ndarray,
    scales: np.ndarray,
    zero_points: np.ndarray,
) -> None:
    """left: what is still to be quantised, changed on the way; the last three are filled in."""
    for block in range(left.shape[1] // BLOCK):
        start, end = block * BLOCK, (block + 1) * BLOCK
        scale, zero_point = _range(left[:, start:end], importance[start:end])
        lost = np.empty((len(left), BLOCK), np.float32)
        for column in range(start, end):
            own = left[:, column]
            q = np.clip(np.rint(own / scale + zero_point), _LOW, _HIGH)
            error = (own - (q - zero_point) * scale) / upper[column, column]
            left[:, column + 1 : end] -= error[:, None] * upper[column, column + 1 : end]
            lost[:, column - start] = error
            all_q[:, block, column - start] = q
        left[:, end:] -= lost @ upper[start:end, end:]
        scales[:, block], zero_points[:, block] = scale, zero_point


def _range(values: np.ndarray, importance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scale and zero point [n] of a block [n, 32], of the least weighted error, bf16 values."""
    top, bottom = values.max(axis=-1), values.min(axis=-1)
    middle, half = (top + bottom) / 2, (top - bottom) / 2
    constant = half <= _CONSTANT * np.abs(middle)
    best = np.full(len(values), np.inf, np.float32)
    scale, zero_point = np.ones_like(best), np.zeros_like(best)
    for share in _RANGES:
        step = 2 * half * share / (_HIGH - _LOW)
        offset = middle - half * share - _LOW * step
        # A block of one value: q = 1 or -1 and the value as scale; of zeros, q = 0.
        step = np.where(constant, np.where(middle == 0, 1, np.abs(middle)), step)
        tried, point = _fitted(values, importance, step, np.where(constant, 0, offset))
        q = np.clip(np.rint(values / tried[:, None] + point[:, None]), _LOW, _HIGH)
        off = (q - point[:, None]) * tried[:, None] - values
        error = (off * off) @ importance
        better = error < best
        best = np.where(better, error, best)
        scale, zero_point = np.where(better, tried, scale), np.where(better, point, zero_point)
    return scale, zero_point


def _fitted(
    values: np.ndarray, importance: np.ndarray, step: np.ndarray, offset: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Scale and zero point after two rounds of q for step and offset, and these for q.

    The second half of a round is weighted linear regression of values on q.
    """
    total = importance.sum()
    of_values = values @ importance
    for _ in range(2):
        q = np.clip(np.rint((values - offset[:, None]) / step[:, None]), _LOW, _HIGH)
        of_q, of_squares = q @ importance, (q * q) @ importance
        spread = total * of_squares - of_q * of_q
        slope = total * ((values * q) @ importance) - of_q * of_values
        fits = (spread > 0) & (slope > 0)
        step = np.where(fits, slope / np.where(fits, spread, 1), step)
        offset = np.where(fits, (of_values - step * of_q) / total, offset)
    scale = through_bf16(step)
    return scale, through_bf16(-offset / scale)
