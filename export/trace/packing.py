"""Which tensors of a file a step takes, and what becomes of each: known without their data."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from gguf.constants import GGMLQuantizationType as Type

from export.errors import ExportError
from export.gguf import forms
from export.gguf.forms import FORMATS, GPTQ
from export.gguf.reader import GgufFile, Tensor
from export.models.config import DecoderConfig

# Above this many columns torq-compile's time grows faster than the matrix (measured: 65,536
# columns of k = 640 take 9 s, 262,144 take 348 s), so wider matrices are split by columns.
MAX_COLUMNS = 65_536

HEAD = "output.weight"

EMBEDDING = "token_embd.weight"

# Read with the hyperparameters.
ROPE_FACTORS = "rope_freqs.weight"

# Projections that are given what another one is given.
_SAME_INPUT = {"attn_k": "attn_q", "attn_v": "attn_q", "ffn_up": "ffn_gate"}


@dataclass(frozen=True, kw_only=True)
class Packing:
    """How matrices become packed blocks.

    requantise: a block type that every projection is brought to; "" keeps the file's blocks.
    quantise: the block type for projections whose own type has no packed form.
    head: a block type for the head alone; "" treats it like the projections.
    projections: (pattern, block type) for the projections whose name without `.weight` a pattern
        matches, such as `attn_q` or `blk.3.ffn_*`; the last that matches counts.

    Besides GGUF's types, head and projections may be Q4_GPTQ, which needs an importance matrix.
    """

    requantise: str = ""
    quantise: str = "Q8_0"
    head: str = ""
    projections: tuple[tuple[str, str], ...] = ()

    def forced(self, name: str) -> str:
        """The block type that the matrix of that name is brought to; "" for none."""
        if name == HEAD:
            return self.head or self.requantise
        kinds = (kind for pattern, kind in reversed(self.projections) if matches(pattern, name))
        return next(kinds, self.requantise)

    def packed_type(self, slot: Slot, tensor: Tensor) -> Type:
        """The form of a matrix in the program; ExportError as `forms.packed_type`."""
        forced = self.forced(slot.name)
        # The two have one form.
        return forms.packed_type(tensor, "Q4_1" if forced == GPTQ else forced, self.quantise)

    def check(self, config: DecoderConfig) -> None:
        """Raises ExportError for a pattern that no projection has."""
        names = [slot.name for slot in matrix_slots(config) if slot.name != HEAD]
        for pattern, _ in self.projections:
            if not any(matches(pattern, name) for name in names):
                raise ExportError(
                    f"projections: {pattern!r} matches none of this model's, such as {names[0]}"
                )


@dataclass(frozen=True, kw_only=True)
class Slot:
    """A place of the step that a tensor fills.

    name: the step's. tensor: the file's, another one where the head is the embedding.
    shape: a matrix, (n, k), or a vector, (size,), as the hyperparameters say.
    """

    name: str
    tensor: str
    shape: tuple[int, ...]

    def take(self, gguf: GgufFile) -> Tensor:
        """The file's tensor; ExportError where it is missing or of another shape."""
        tensor = gguf.tensor(self.tensor)
        if tensor.shape != self.shape:
            raise ExportError(
                f"{tensor.name}: shape {tensor.shape}; {self.shape} was expected from the "
                "hyperparameters"
            )
        return tensor


def matrix_slots(config: DecoderConfig) -> Iterator[Slot]:
    """The matrices of a step, layer by layer; the head is the last."""
    for layer in range(config.layers):
        for name, shape in config.matrix_shapes(layer).items():
            yield Slot(name=name, tensor=name, shape=shape)
    yield Slot(name=HEAD, tensor=config.head, shape=(config.vocabulary, config.hidden_size))


def vector_slots(config: DecoderConfig) -> Iterator[Slot]:
    """The norms and biases of a step, layer by layer, and the norm before the head."""
    for layer in range(config.layers):
        for name, size in config.vector_sizes(layer).items():
            yield Slot(name=name, tensor=name, shape=(size,))
    yield Slot(name="output_norm.weight", tensor="output_norm.weight", shape=(config.hidden_size,))


def unknown_tensors(gguf: GgufFile, config: DecoderConfig) -> list[str]:
    """The tensors of a file that no slot takes, in the file's order."""
    slots = (*matrix_slots(config), *vector_slots(config))
    known = {slot.tensor for slot in slots} | {EMBEDDING, ROPE_FACTORS}
    return [name for name in gguf.tensors if name not in known]


def unknown(gguf: GgufFile, names: Sequence[str]) -> ExportError:
    """The error that says which tensors a step does not know."""
    return ExportError(
        f"{gguf.path}: the step does not know {len(names)} tensors of this file, such as "
        f"{names[0]}; the model would be wrong without them"
    )


def matches(pattern: str, name: str) -> bool:
    """Whether a pattern such as `attn_q` or `blk.3.ffn_*` is for the matrix of that name."""
    stem = name.removesuffix(".weight")
    return any(fnmatchcase(end, pattern) for end in (stem, stem.rsplit(".", 1)[-1]))


def input_name(name: str) -> str:
    """What a matrix is multiplied with, by the first matrix of a step that is given it."""
    start, part = name.removesuffix(".weight").rsplit(".", 1) if name != HEAD else ("", "output")
    return f"{start}.{_SAME_INPUT.get(part, part)}".removeprefix(".")


@dataclass(frozen=True)
class Part:
    """The columns [start, end) of a matrix in the program, whose q are of `bits` each."""

    start: int
    end: int
    bits: int

    def bytes(self, k: int, kind: Type) -> int:
        """The size of its q, and of its scales and zero points in bf16."""
        columns, blocks = self.end - self.start, k // FORMATS[kind].block
        per_block = 4 if FORMATS[kind].zero_point else 2
        return columns * k * self.bits // 8 + columns * blocks * per_block


def packed_bytes(shape: tuple[int, ...], kind: Type) -> int:
    """The size of a matrix (n, k) of a block type in the program."""
    return sum(part.bytes(shape[1], kind) for part in parts(shape[0], FORMATS[kind].bits))


def parts(columns: int, bits: int) -> list[Part]:
    """The parts of a matrix.

    An odd number of i4 columns does not compile (measured), so the last of them stands alone, in
    a byte each.
    """
    bounds = [*range(0, columns, MAX_COLUMNS), columns]
    if bits == 4 and columns % 2 and bounds[-1] - bounds[-2] > 1:
        bounds.insert(-1, columns - 1)
    return [
        Part(start, end, 8 if (end - start) % 2 else bits)
        for start, end in itertools.pairwise(bounds)
    ]
