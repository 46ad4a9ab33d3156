"""Reads the hyperparameters of a checkpoint, whatever its architecture."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module

from export.errors import ExportError
from export.gguf.reader import GgufFile
from export.models import architectures
from export.models.config import (
    HEAD_NORMS,
    POST_NORMS,
    PRE_NORMS,
    PROJECTIONS,
    DecoderConfig,
)
from export.models.keys import Keys

# What a layer of the step may have.
_PARTS = {*PROJECTIONS, *PRE_NORMS, *POST_NORMS, *HEAD_NORMS}
# How the names of a vision or audio tower's tensors begin, and of what joins it to the decoder.
_TOWERS = {"v.": "vision tower", "a.": "audio tower", "mm.": "projector of images"}


def supported() -> list[str]:
    """The architectures that there are, by name."""
    return sorted(module.name for module in pkgutil.iter_modules(architectures.__path__))


def read_config(gguf: GgufFile) -> DecoderConfig:
    """The hyperparameters of a file.

    Raises ExportError for the first of `refusals`, for a missing key with no default, and for a
    value out of range.
    """
    for reason in refusals(gguf):
        raise ExportError(reason)
    return hyperparameters(gguf)


def refusals(gguf: GgufFile) -> Iterator[str]:
    """Every reason why a file's kind of model has no step, whatever its hyperparameters.

    They are: towers beside the decoder, a mixture of experts, and an architecture that is not
    supported, with what the step lacks for it.
    """
    name = gguf.string("general.architecture")
    yield from _towers(gguf, name)
    yield from _experts(gguf, name)
    if name not in supported():
        yield (
            f"{gguf.path}: architecture {name!r} is not supported; {', '.join(supported())} are. "
            f"{_what_is_missing(gguf)}"
        )


def hyperparameters(gguf: GgufFile) -> DecoderConfig:
    """The hyperparameters of a file whose architecture is supported, whatever else it holds.

    Raises ExportError for a missing key with no default, and for a value out of range.
    """
    name = gguf.string("general.architecture")
    architecture = import_module(f"{architectures.__name__}.{name}")
    config: DecoderConfig = architecture.read_config(Keys(gguf, name))
    return config


def is_of_a_tower(tensor: str) -> bool:
    """Whether a tensor of this name belongs to no decoder."""
    return tensor.startswith(tuple(_TOWERS))


def _towers(gguf: GgufFile, name: str) -> Iterator[str]:
    found = [
        tower
        for prefix, tower in _TOWERS.items()
        if any(tensor.startswith(prefix) for tensor in gguf.tensors)
    ]
    if name == "clip" and not found:
        found = [*_TOWERS.values()][:1]
    for tower in found:
        yield (
            f"{gguf.path}: holds a {tower}, which the NPU's step does not run; use the file of "
            "the language model alone"
        )


def _experts(gguf: GgufFile, name: str) -> Iterator[str]:
    experts = gguf.integer(f"{name}.expert_count", 0)
    if experts or "blk.0.ffn_gate_inp.weight" in gguf.tensors:
        yield (
            f"{gguf.path}: architecture {name!r} with {experts} experts: a mixture of experts is "
            "not supported, since the step has one feed-forward network a layer; use a dense model"
        )


def _what_is_missing(gguf: GgufFile) -> str:
    """What the file's layers have that the step does not, by the names of their tensors."""
    first = [name.split(".", 2)[2] for name in gguf.tensors if name.startswith("blk.0.")]
    foreign = sorted({name.rsplit(".", 1)[0] for name in first} - _PARTS)
    if foreign:
        return f"The step has no {', '.join(foreign)}"
    return (
        "Its layers have no tensor that the step lacks, so a file in "
        "export/models/architectures may be all that is missing"
    )
