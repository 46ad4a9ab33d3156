"""A checkpoint's weights as the step takes them: packed for a trace, or dense as a reference."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from export.errors import ExportError
from export.gguf import blocks
from export.gguf.blocks import PackedMatrix
from export.gguf.reader import GgufFile, Tensor
from export.models.config import DecoderConfig
from export.models.decoder import Array, Matrix, Projection, Weights

# Above this many columns torq-compile's time grows faster than the matrix (measured: 65,536
# columns of k = 640 take 9 s, 262,144 take 348 s), so wider matrices are split by columns.
MAX_COLUMNS = 65_536

HEAD = "output.weight"


@dataclass(frozen=True, kw_only=True)
class Packing:
    """How matrices become packed blocks.

    requantise: a block type that every projection is brought to; "" keeps the file's blocks.
    quantise: the block type for projections whose own type has no packed form.
    head: a block type for the head alone; "" treats it like the projections.
    """

    requantise: str = ""
    quantise: str = "Q8_0"
    head: str = ""


@dataclass(frozen=True, kw_only=True)
class TensorRecord:
    """What became of one tensor of the file, for the manifest.

    packed_type differs from file_type where values were quantised here; it is None for a tensor
    that stays dense.
    """

    name: str
    file_type: str
    packed_type: str | None
    shape: tuple[int, ...]
    parts: int = 1


@dataclass(frozen=True, eq=False)
class StepWeights:
    """The weights of a step, every matrix packed, and what became of each tensor of the file."""

    weights: Weights
    records: tuple[TensorRecord, ...]

    @property
    def projections(self) -> int:
        """The number of matrices, however many parts they have."""
        return len(self.weights.matrices)


def packed_weights(gguf: GgufFile, config: DecoderConfig, packing: Packing) -> StepWeights:
    """The weights as the NPU holds them: the file's blocks, scales and zero points in bf16.

    Raises ExportError, naming the tensor, for one that is missing, of another shape than the
    hyperparameters say, or without a packed form; and for tensors that the step does not know.
    """
    matrices: dict[str, Matrix] = {}
    vectors: dict[str, Array] = {}
    records = []
    for name, tensor in _matrices(gguf, config):
        requantise = packing.head if name == HEAD and packing.head else packing.requantise
        matrix = blocks.pack(tensor, requantise, packing.quantise)
        if (order := _row_order(name, config)) is not None:
            matrix = matrix.rows(order)
        parts = _projections(matrix)
        matrices[name] = parts
        records.append(
            TensorRecord(
                name=tensor.name,
                file_type=matrix.file_type,
                packed_type=matrix.packed_type,
                shape=matrix.shape,
                parts=len(parts),
            )
        )
    for name, tensor in _vectors(gguf, config):
        vectors[name] = _vector(name, tensor, config)
        records.append(
            TensorRecord(
                name=name, file_type=tensor.type.name, packed_type=None, shape=tensor.shape
            )
        )
    _refuse_unknown(gguf, {*matrices, *vectors, "token_embd.weight", "rope_freqs.weight"})
    return StepWeights(Weights(matrices, vectors), tuple(records))


def dense_weights(gguf: GgufFile, config: DecoderConfig) -> Weights:
    """The reference: every matrix dequantised, float32 [k, n], and every vector, float32 [size]."""
    matrices = {}
    for name, tensor in _matrices(gguf, config):
        order = _row_order(name, config)
        values = blocks.dense(tensor)
        matrices[name] = (values if order is None else values[order]).T
    vectors = {name: _vector(name, tensor, config) for name, tensor in _vectors(gguf, config)}
    return Weights(matrices, vectors)


def _matrices(gguf: GgufFile, config: DecoderConfig) -> Iterator[tuple[str, Tensor]]:
    """Every matrix by the step's name for it, its shape checked; the head is the last."""
    for layer in range(config.layers):
        for name, shape in config.matrix_shapes(layer).items():
            yield name, _checked(gguf.tensor(name), shape)
    yield HEAD, _checked(gguf.tensor(config.head), (config.vocabulary, config.hidden_size))


def _vectors(gguf: GgufFile, config: DecoderConfig) -> Iterator[tuple[str, Tensor]]:
    for layer in range(config.layers):
        for name, size in config.vector_sizes(layer).items():
            yield name, _checked(gguf.tensor(name), (size,))
    yield "output_norm.weight", _checked(gguf.tensor("output_norm.weight"), (config.hidden_size,))


def _row_order(name: str, config: DecoderConfig) -> np.ndarray | None:
    """Where the rows of a tensor of Q or K are to be taken from; None where they stay.

    A file whose RoPE rotates neighbours has, in each head, the values that belong together beside
    each other; the step rotates halves. Blocks lie along a row, so nothing is requantised, and
    scores are sums over a head, so no order changes them.
    """
    part = name.split(".")[-2]
    if config.rope_pairs == "halves" or part not in ("attn_q", "attn_k"):
        return None
    heads = config.heads if part == "attn_q" else config.kv_heads
    rows = np.arange(heads * config.head_dim).reshape(heads, config.head_dim // 2, 2)
    return rows.swapaxes(1, 2).ravel()


def _checked(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    if tensor.shape != shape:
        raise ExportError(
            f"{tensor.name}: shape {tensor.shape}; {shape} was expected from the hyperparameters"
        )
    return tensor


def _vector(name: str, tensor: Tensor, config: DecoderConfig) -> np.ndarray:
    """A norm's weight or a bias; a query norm's carries the query scale: one operation fewer."""
    scale = config.query_scale if name.endswith("attn_q_norm.weight") else 1.0
    values = blocks.dense(tensor) * np.float32(scale)
    order = _row_order(name, config)
    return values if order is None else values[order]


def _projections(matrix: PackedMatrix) -> tuple[Projection, ...]:
    """The matrix in the NPU's layout, [k / block, block, n], split by columns where it must be."""
    parts = []
    for start, end in itertools.pairwise(_column_bounds(matrix.shape[0], matrix.bits)):
        part = slice(start, end)
        integer = ml_dtypes.int4 if matrix.bits == 4 and (end - start) % 2 == 0 else np.int8
        zero_point = None
        if matrix.zero_point is not None:
            zero_point = _per_block(matrix.zero_point[part])
        q = np.ascontiguousarray(matrix.q[part].transpose(1, 2, 0)).astype(integer, copy=False)
        parts.append(Projection(q, _per_block(matrix.scale[part]), zero_point))
    return tuple(parts)


def _column_bounds(columns: int, bits: int) -> list[int]:
    """Where the parts of a matrix begin and end.

    An odd number of i4 columns does not compile (measured), so the last of them stands alone, in
    a byte each.
    """
    bounds = [*range(0, columns, MAX_COLUMNS), columns]
    if bits == 4 and columns % 2 and bounds[-1] - bounds[-2] > 1:
        bounds.insert(-1, columns - 1)
    return bounds


def _per_block(values: np.ndarray) -> np.ndarray:
    """float32 [n, k / block] to bf16 [k / block, 1, n]."""
    return np.ascontiguousarray(values.T[:, None]).astype(ml_dtypes.bfloat16)


def _refuse_unknown(gguf: GgufFile, known: set[str]) -> None:
    unknown = [name for name in gguf.tensors if name not in known]
    if unknown:
        raise ExportError(
            f"{gguf.path}: the step does not know {len(unknown)} tensors of this file, such as "
            f"{unknown[0]}; the model would be wrong without them"
        )
