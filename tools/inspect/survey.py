"""What the build would find in a checkpoint, and every reason why it would refuse it.

The build stops at the first reason; here they are collected. Tensors' data are not read, so a scale
that is NaN is found by the build alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gguf.constants import GGMLQuantizationType as Type

from export.bundle.tokenizer import Vocabulary, vocabulary
from export.errors import ExportError
from export.gguf.dense import require_values
from export.gguf.forms import FORMATS
from export.gguf.reader import GgufFile, Tensor
from export.models.config import PROJECTIONS, DecoderConfig
from export.models.read import hyperparameters, is_of_a_tower, refusals, supported
from export.trace import packing as plan
from export.trace.packing import Packing, Part, Slot
from export.trace.ports import input_ports

_DEFAULT_CONTEXT = 1024


@dataclass(frozen=True, kw_only=True)
class PlannedMatrix:
    """A matrix of the step: its place, its tensor in the file, and its block type in the program.

    kind: None where it has no packed form.
    """

    slot: Slot
    tensor: Tensor
    kind: Type | None

    @property
    def parts(self) -> list[Part]:
        """Its parts in the program."""
        return plan.parts(self.tensor.shape[0], FORMATS[self.kind].bits) if self.kind else []

    @property
    def bytes(self) -> int:
        """Its size in the program."""
        return plan.packed_bytes(self.tensor.shape, self.kind) if self.kind else 0


@dataclass(frozen=True, kw_only=True)
class Survey:
    """A checkpoint as far as it can be understood.

    config: None where the architecture is not supported, or a key is missing or out of range.
    matrices: those that are there, in the step's order; complete where there is no reason.
    reasons: why Torq cannot take the file; none if it can.
    """

    gguf: GgufFile
    packing: Packing
    context: int
    config: DecoderConfig | None
    vocabulary: Vocabulary | None
    matrices: tuple[PlannedMatrix, ...]
    reasons: tuple[str, ...]


def survey(gguf: GgufFile, packing: Packing, context: int | None = None) -> Survey:
    """Looks a file over.

    context: positions of the cache; by default 1,024, or what the model was trained for if less.
    """
    reasons: list[str] = []
    config = words = None
    with _collected(gguf, reasons):
        reasons.extend(_without_path(gguf, reason) for reason in refusals(gguf))
        if gguf.string("general.architecture") in supported():
            config = hyperparameters(gguf)
    if config:
        context = context or min(_DEFAULT_CONTEXT, config.context_length)
        with _collected(gguf, reasons):
            input_ports(config, context)
    slots = plan.matrix_slots(config) if config else _named_like_matrices(gguf)
    matrices = tuple(_planned(gguf, slots, packing, reasons))
    if config:
        _check_others(gguf, config, reasons)
    with _collected(gguf, reasons):
        words = vocabulary(gguf)
    return Survey(
        gguf=gguf,
        packing=packing,
        context=context or _DEFAULT_CONTEXT,
        config=config,
        vocabulary=words,
        matrices=matrices,
        reasons=tuple(reasons),
    )


def _planned(
    gguf: GgufFile, slots: Iterator[Slot], packing: Packing, reasons: list[str]
) -> Iterator[PlannedMatrix]:
    for slot in slots:
        with _collected(gguf, reasons):
            tensor, kind = slot.take(gguf), None
            with _collected(gguf, reasons):
                kind = packing.packed_type(slot, tensor)
            yield PlannedMatrix(slot=slot, tensor=tensor, kind=kind)


def _check_others(gguf: GgufFile, config: DecoderConfig, reasons: list[str]) -> None:
    """Norms and biases, and what no place takes."""
    for slot in plan.vector_slots(config):
        with _collected(gguf, reasons):
            require_values(slot.take(gguf))
    unknown = [name for name in plan.unknown_tensors(gguf, config) if not is_of_a_tower(name)]
    if unknown:
        reasons.append(_without_path(gguf, str(plan.unknown(gguf, unknown))))


def _named_like_matrices(gguf: GgufFile) -> Iterator[Slot]:
    """The matrices of a file whose hyperparameters are not known, by their names."""
    heads = (plan.HEAD,) if plan.HEAD in gguf.tensors else (plan.EMBEDDING,)
    endings = tuple(f".{name}.weight" for name in PROJECTIONS)
    for name, tensor in gguf.tensors.items():
        if name in heads:
            yield Slot(name=plan.HEAD, tensor=name, shape=tensor.shape)
        elif name.startswith("blk.") and name.endswith(endings):
            yield Slot(name=name, tensor=name, shape=tensor.shape)


@contextmanager
def _collected(gguf: GgufFile, reasons: list[str]) -> Iterator[None]:
    """Goes on after what the build would stop at, with its message among the reasons."""
    try:
        yield
    except ExportError as error:
        reasons.append(_without_path(gguf, str(error)))


def _without_path(gguf: GgufFile, message: str) -> str:
    return message.removeprefix(f"{gguf.path}: ")
