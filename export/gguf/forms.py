"""The packed form of a tensor, by its type and shape alone: its data are not read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gguf.constants import GGML_QUANT_SIZES
from gguf.constants import GGMLQuantizationType as Type

from export.errors import ExportError
from export.gguf.dense import require_values
from export.gguf.reader import Tensor

# What gguf can quantise to and a block format here can say.
QUANTISE_TYPES = ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1")

# What gptq.py quantises to: the form of Q4_1.
GPTQ = "Q4_GPTQ"


@dataclass(frozen=True, kw_only=True)
class BlockFormat:
    """What every matrix of a block type has in common.

    bits: 4 or 8, the width that holds q.
    block: weights that share a scale, and a zero point.
    zero_point: whether blocks have one that is not 0. Types with a minimum do; so does Q4_0, half
        of whose blocks quantisers give a negative scale, with a q of -8 that no i4 is the negative
        of. In Q8_0, Q5_0, Q6_K and Q3_K every q that quantisers write can change its sign.
    """

    bits: int
    block: int
    zero_point: bool


FORMATS: Mapping[Type, BlockFormat] = {
    Type.Q8_0: BlockFormat(bits=8, block=32, zero_point=False),
    Type.Q5_0: BlockFormat(bits=8, block=32, zero_point=False),
    Type.Q5_1: BlockFormat(bits=8, block=32, zero_point=True),
    Type.Q4_0: BlockFormat(bits=4, block=32, zero_point=True),
    Type.Q4_1: BlockFormat(bits=4, block=32, zero_point=True),
    Type.Q2_K: BlockFormat(bits=4, block=16, zero_point=True),
    Type.Q3_K: BlockFormat(bits=4, block=16, zero_point=False),
    Type.Q4_K: BlockFormat(bits=4, block=32, zero_point=True),
    Type.Q5_K: BlockFormat(bits=8, block=32, zero_point=True),
    Type.Q6_K: BlockFormat(bits=8, block=16, zero_point=False),
}


def packed_type(tensor: Tensor, requantise: str = "", quantise: str = "Q8_0") -> Type:
    """The block type that a matrix of the file is packed as.

    requantise: a block type that every matrix is brought to; "" keeps what the file has.
    quantise: the block type for matrices whose own type has no packed form (floats, IQ types).

    Raises ExportError for a tensor that is no matrix, a type with neither a packed form nor values
    that gguf can give, rows that do not divide into blocks, and rows of one block.
    """
    for option, value in (("requantise", requantise), ("quantise", quantise)):
        if value and value not in QUANTISE_TYPES:
            raise ExportError(f"{option}={value}: one of {', '.join(QUANTISE_TYPES)} was expected")
    if len(tensor.shape) != 2:
        raise ExportError(f"{tensor.name}: shape {tensor.shape}; a matrix was expected")
    kind = tensor.type
    if requantise or kind not in FORMATS:
        kind = Type[requantise or quantise]
    if kind != tensor.type:
        require_values(tensor)
    _require_blocks(tensor, kind)
    return kind


def _require_blocks(tensor: Tensor, kind: Type) -> None:
    length, (block_size, _) = tensor.shape[-1], GGML_QUANT_SIZES[kind]
    if length % block_size:
        raise ExportError(
            f"{tensor.name}: rows of {length} values are no multiple of the {block_size} in a "
            f"block of {kind.name}; this matrix cannot be packed"
        )
    if length == FORMATS[kind].block:
        raise ExportError(
            f"{tensor.name}: rows of one block of {length} values; torq-compile 2.3.0 takes its "
            "generic kernel for fewer than two blocks (measured)"
        )
