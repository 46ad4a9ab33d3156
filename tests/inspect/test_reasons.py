"""Why Torq cannot take a file: every reason, and those that the build itself would give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType

from export.bundle.tokenizer import vocabulary
from export.errors import ExportError
from export.gguf import reader
from export.gguf.reader import GgufFile, Tensor, Value
from export.models.read import read_config
from export.trace.packing import Packing
from export.trace.ports import input_ports
from export.trace.weights import packed_weights
from tests.toy.toy import FAMILIES, Toy
from tools.inspect.survey import survey

Change = Callable[[GgufFile], GgufFile]


@pytest.fixture
def gguf(tmp_path: Path) -> GgufFile:
    return reader.read(Toy(default_type="Q8_0").write(tmp_path / "toy.gguf"))


def reasons(gguf: GgufFile, context: int | None = None) -> tuple[str, ...]:
    return survey(gguf, Packing(), context).reasons


def built(gguf: GgufFile) -> None:
    """What the build reads of a file, in its order."""
    config = read_config(gguf)
    packed_weights(gguf, config, Packing())
    vocabulary(gguf)


def with_key(key: str, value: Value) -> Change:
    return lambda gguf: replace(gguf, metadata={**gguf.metadata, key: value})


def without_key(key: str) -> Change:
    return lambda gguf: replace(
        gguf, metadata={name: value for name, value in gguf.metadata.items() if name != key}
    )


def with_tensor(name: str, kind: str = "F32", shape: tuple[int, ...] = (64,)) -> Change:
    """The data are as large as any type of these tests needs."""
    data = np.zeros(int(np.prod(shape)) * 4, np.uint8)
    tensor = Tensor(name, GGMLQuantizationType[kind], shape, data)
    return lambda gguf: replace(gguf, tensors={**gguf.tensors, name: tensor})


def without_tensor(name: str) -> Change:
    return lambda gguf: replace(
        gguf, tensors={key: tensor for key, tensor in gguf.tensors.items() if key != name}
    )


UP = "blk.1.ffn_up.weight"
CHANGES: dict[str, tuple[Change, str]] = {
    "architecture": (with_key("general.architecture", "phi3"), "'phi3' is not supported"),
    "no architecture": (without_key("general.architecture"), "general.architecture is missing"),
    "an architecture that is no text": (with_key("general.architecture", 3), "a string was exp"),
    "experts": (with_key("gemma3.expert_count", 8), "mixture of experts"),
    "vision": (with_tensor("v.patch_embd.weight"), "holds a vision tower"),
    "projector": (with_tensor("mm.input_projection.weight"), "holds a projector"),
    "a key": (without_key("gemma3.context_length"), "gemma3.context_length is missing"),
    "a value": (with_key("gemma3.attention.head_count", 3), "heads do not share"),
    "missing matrix": (without_tensor(UP), f"tensor {UP} is missing"),
    "missing norm": (without_tensor("output_norm.weight"), "output_norm.weight is missing"),
    "unknown": (with_tensor("blk.0.extra.weight"), "does not know 1 tensors .* blk.0.extra"),
    "matrix of another shape": (with_tensor(UP, "Q8_0", (64, 64)), rf"{UP}: shape \(64, 64\)"),
    "norm of another shape": (
        with_tensor("blk.0.attn_norm.weight", "F32", (65,)),
        r"blk.0.attn_norm.weight: shape \(65,\)",
    ),
    "matrix without values": (with_tensor(UP, "I8", (96, 64)), f"{UP}: I8 has no packed form"),
    "norm without values": (
        with_tensor("blk.0.attn_norm.weight", "I16"),
        "blk.0.attn_norm.weight: I16 has no packed form",
    ),
    "tokenizer": (with_key("tokenizer.ggml.model", "bert"), "tokenizer 'bert' is not supported"),
    "no tokens": (without_key("tokenizer.ggml.tokens"), "tokens is no array"),
    "words": (with_key("tokenizer.ggml.model", "gpt2"), "tokenizer.ggml.merges is no array"),
}


@pytest.mark.parametrize("architecture", FAMILIES)
def test_there_is_no_reason_against_a_file_that_the_build_takes(
    architecture: str, tmp_path: Path
) -> None:
    toy = Toy(architecture=architecture, head_dim=16, default_type="Q8_0")
    gguf = reader.read(toy.write(tmp_path / "toy.gguf"))

    built(gguf)

    assert reasons(gguf) == ()


@pytest.mark.parametrize("name", CHANGES)
def test_a_reason_is_named_as_the_build_names_it(name: str, gguf: GgufFile) -> None:
    change, message = CHANGES[name]
    changed = change(gguf)

    with pytest.raises(ExportError, match=message) as refused:
        built(changed)

    assert str(refused.value).removeprefix(f"{gguf.path}: ") in reasons(changed)


@pytest.mark.parametrize(
    ("toy", "message"),
    [
        (Toy(ffn_size=32, default_type="Q8_0"), "ffn_down.weight: rows of one block of 32 values"),
        (Toy(ffn_size=48, default_type="F16"), "ffn_down.weight: rows of 48 values are no mul"),
    ],
)
def test_rows_that_make_no_blocks_are_named_in_every_layer(
    toy: Toy, message: str, tmp_path: Path
) -> None:
    gguf = reader.read(toy.write(tmp_path / "toy.gguf"))

    found = reasons(gguf)

    assert len(found) == toy.layers
    for layer, reason in enumerate(found):
        assert reason.startswith(f"blk.{layer}.{message}")


@pytest.mark.parametrize(
    "names",
    [
        ("missing norm", "matrix of another shape", "unknown", "tokenizer"),
        ("vision", "projector", "experts", "matrix without values", "no tokens"),
        ("architecture", "vision", "matrix without values", "words"),
        ("a key", "matrix without values", "tokenizer"),
    ],
)
def test_several_reasons_are_all_given(names: tuple[str, ...], gguf: GgufFile) -> None:
    alone = [set(reasons(CHANGES[name][0](gguf))) for name in names]
    for name in names:
        gguf = CHANGES[name][0](gguf)

    assert set(reasons(gguf)) == set().union(*alone)


def test_a_context_that_the_model_was_not_trained_for_is_a_reason(gguf: GgufFile) -> None:
    with pytest.raises(ExportError) as refused:
        input_ports(read_config(gguf), 1025)

    assert reasons(gguf, 1025) == (str(refused.value),)
    assert reasons(gguf, 1024) == ()
