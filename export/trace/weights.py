"""A checkpoint's weights as the step takes them: packed for a trace, or dense as a reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from export.errors import ExportError
from export.gguf import blocks, gptq
from export.gguf.blocks import PackedMatrix
from export.gguf.dense import dense
from export.gguf.forms import GPTQ
from export.gguf.reader import GgufFile, Tensor
from export.models.config import DecoderConfig
from export.models.decoder import Matrix, Projection, Weights
from export.models.float32 import Array
from export.trace import packing as plan
from export.trace.packing import Packing, matrix_slots, vector_slots


@dataclass(frozen=True, kw_only=True)
class TensorRecord:
    """What became of one tensor of the file, for the manifest.

    packed_type differs from file_type where values were quantised here; it is None for a tensor
    that stays dense. bytes: of the values in the bf16 program.
    """

    name: str
    file_type: str
    packed_type: str | None
    shape: tuple[int, ...]
    bytes: int
    parts: int = 1


@dataclass(frozen=True, eq=False)
class StepWeights:
    """The weights of a step, every matrix packed, and what became of each tensor of the file.

    head_mean: float32 [hidden_size], the row that was taken off every row of the head, so that all
        logits of a step are less by its product with the hidden state; None for none.
    """

    weights: Weights
    records: tuple[TensorRecord, ...]
    head_mean: np.ndarray | None = None

    @property
    def projections(self) -> int:
        """The number of matrices, however many parts they have."""
        return len(self.weights.matrices)


def packed_weights(
    gguf: GgufFile,
    config: DecoderConfig,
    packing: Packing,
    importance: Mapping[str, np.ndarray] | None = None,
) -> StepWeights:
    """The weights as the NPU holds them: the file's blocks, scales and zero points in bf16.

    importance: float32 [k, k] by `packing.input_name`, for what becomes Q4_GPTQ.

    Raises ExportError, naming the tensor, for one that is missing, of another shape than the
    hyperparameters say, or without a packed form; and for tensors that the step does not know.
    """
    matrices: dict[str, Matrix] = {}
    vectors: dict[str, Array] = {}
    records = []
    head_mean = None
    packing.check(config)
    for slot in matrix_slots(config):
        tensor = slot.take(gguf)
        if packing.forced(slot.name) == GPTQ:
            packing.packed_type(slot, tensor)
            # A cap is no linear function: what it makes of a number taken off is not one number.
            centred = slot.name == plan.HEAD and config.logit_cap is None
            matrix, mean = gptq.pack(tensor, _moment(slot.name, importance or {}), centred)
            head_mean = mean if centred else head_mean
        else:
            matrix = blocks.pack(tensor, packing.forced(slot.name), packing.quantise)
        if (order := _row_order(slot.name, config)) is not None:
            matrix = matrix.rows(order)
        parts = _projections(matrix)
        matrices[slot.name] = parts
        records.append(
            TensorRecord(
                name=slot.tensor,
                file_type=matrix.file_type,
                packed_type=matrix.packed_type,
                shape=matrix.shape,
                bytes=sum(map(_packed_bytes, parts)),
                parts=len(parts),
            )
        )
    for slot in vector_slots(config):
        tensor = slot.take(gguf)
        vectors[slot.name] = _vector(slot.name, tensor, config)
        records.append(
            TensorRecord(
                name=slot.name,
                file_type=tensor.type.name,
                packed_type=None,
                shape=tensor.shape,
                bytes=2 * tensor.shape[0],
            )
        )
    if names := plan.unknown_tensors(gguf, config):
        raise plan.unknown(gguf, names)
    return StepWeights(Weights(matrices, vectors), tuple(records), head_mean)


def _moment(name: str, importance: Mapping[str, np.ndarray]) -> np.ndarray:
    key = plan.input_name(name)
    if key not in importance:
        raise ExportError(
            f"{name} is to be {GPTQ}, but the importance matrix has no {key}; it has "
            f"{', '.join(importance) or 'nothing'}: make it with that input"
        )
    return importance[key]


def dense_weights(gguf: GgufFile, config: DecoderConfig) -> Weights:
    """The reference: every matrix dequantised, float32 [k, n], and every vector, float32 [size]."""
    matrices = {}
    for slot in matrix_slots(config):
        order = _row_order(slot.name, config)
        values = dense(slot.take(gguf))
        matrices[slot.name] = (values if order is None else values[order]).T
    vectors = {
        slot.name: _vector(slot.name, slot.take(gguf), config) for slot in vector_slots(config)
    }
    return Weights(matrices, vectors)


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


def _vector(name: str, tensor: Tensor, config: DecoderConfig) -> np.ndarray:
    """A norm's weight or a bias; a query norm's carries the query scale: one operation fewer."""
    scale = config.query_scale if name.endswith("attn_q_norm.weight") else 1.0
    values = dense(tensor) * np.float32(scale)
    order = _row_order(name, config)
    return values if order is None else values[order]


def _projections(matrix: PackedMatrix) -> tuple[Projection, ...]:
    """The matrix in the NPU's layout, [k / block, block, n], split by columns where it must be."""
    parts = []
    for part in plan.parts(matrix.shape[0], matrix.bits):
        columns = slice(part.start, part.end)
        integer = ml_dtypes.int4 if part.bits == 4 else np.int8
        zero_point = None
        if matrix.zero_point is not None:
            zero_point = _per_block(matrix.zero_point[columns])
        q = np.ascontiguousarray(matrix.q[columns].transpose(1, 2, 0)).astype(integer, copy=False)
        parts.append(Projection(q, _per_block(matrix.scale[columns]), zero_point))
    return tuple(parts)


def _packed_bytes(part: Projection) -> int:
    """The size of a part in the program, two i4 a byte."""
    packed = part.q.size // 2 if part.q.dtype == ml_dtypes.int4 else part.q.size
    numbers = (part.scale, part.zero_point)
    return packed + sum(2 * value.size for value in numbers if value is not None)


def _per_block(values: np.ndarray) -> np.ndarray:
    """float32 [n, k / block] to bf16 [k / block, 1, n]."""
    return np.ascontiguousarray(values.T[:, None]).astype(ml_dtypes.bfloat16)
