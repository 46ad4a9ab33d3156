"""Hyperparameters from GGUF metadata: defaults that files rely on (case 11), and named errors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType

from export.errors import ExportError
from export.gguf import reader
from export.gguf.reader import GgufFile, Tensor, Value
from export.models.config import DecoderConfig, Rope
from export.models.read import read_config, supported
from tests.toy.toy import FAMILIES, Toy


@pytest.fixture
def gguf(tmp_path: Path) -> GgufFile:
    return reader.read(Toy(written_keys=False).write(tmp_path / "toy.gguf"))


def changed(gguf: GgufFile, **keys: Value) -> GgufFile:
    architecture = gguf.string("general.architecture")
    prefixed = {f"{architecture}.{key.replace('__', '.')}": value for key, value in keys.items()}
    return replace(gguf, metadata={**gguf.metadata, **prefixed})


def with_tensors(gguf: GgufFile, *names: str) -> GgufFile:
    more = {
        name: Tensor(name, GGMLQuantizationType.F32, (1,), np.zeros(4, np.uint8)) for name in names
    }
    return replace(gguf, tensors={**gguf.tensors, **more})


def sliding(config: DecoderConfig) -> list[int]:
    return [layer for layer in range(config.layers) if config.kind(layer) == "Sliding"]


def test_absent_keys_have_gemmas_defaults(gguf: GgufFile) -> None:
    config = read_config(changed(gguf, block_count=18))

    assert config.sliding
    assert config.sliding.rope == Rope(base=10_000)
    assert [layer for layer in range(18) if layer not in sliding(config)] == [5, 11, 17]


def test_every_key_with_a_default_may_be_absent(gguf: GgufFile) -> None:
    optional = ("rms_epsilon", "freq_base", "head_count_kv", "key_length", "value_length")
    fewer = {key: v for key, v in gguf.metadata.items() if not key.endswith(optional)}

    config = read_config(replace(gguf, metadata=fewer))

    assert (config.rms_epsilon, config.rope.base) == (1e-6, 1e6)
    assert (config.kv_heads, config.head_dim) == (4, 16)


def test_absent_keys_of_gemma_2_have_its_defaults(tmp_path: Path) -> None:
    gguf = reader.read(Toy(architecture="gemma2", layers=5).write(tmp_path / "toy.gguf"))
    optional = ("softcapping", "sliding_window", "freq_base")
    fewer = {key: v for key, v in gguf.metadata.items() if not key.endswith(optional)}

    config = read_config(replace(gguf, metadata=fewer))

    assert config.sliding
    assert (config.score_cap, config.logit_cap, config.sliding.window) == (50.0, 30.0, 4096)
    assert config.rope == config.sliding.rope == Rope(base=10_000.0)
    assert sliding(config) == [0, 2, 4]


def test_a_soft_cap_of_zero_is_none(tmp_path: Path) -> None:
    toy = Toy(architecture="gemma2", score_cap=0.0, logit_cap=0.0)

    config = read_config(reader.read(toy.write(tmp_path / "toy.gguf")))

    assert (config.score_cap, config.logit_cap) == (None, None)


def test_written_keys_are_taken(tmp_path: Path) -> None:
    config = read_config(reader.read(Toy(rope_base_sliding=500.0).write(tmp_path / "toy")))

    assert config.sliding
    assert (sliding(config), config.sliding.rope.base) == ([0], 500.0)
    assert (config.layers, config.heads, config.kv_heads, config.head_dim) == (2, 4, 2, 32)
    assert (config.hidden_size, config.ffn_size, config.vocabulary) == (64, 96, 288)
    assert (config.embedding_scale, config.query_scale) == pytest.approx((8.0, 32**-0.5))


# What the architectures are beside plain decoders, as their papers and llama.cpp have it.
SHAPES: dict[str, tuple[object, ...]] = {
    # norms, biases, gate, pairs, sliding, embedding scale
    "llama": (2, (), "silu", "neighbours", False, 1.0),
    "qwen2": (2, ("attn_q", "attn_k", "attn_v"), "silu", "halves", False, 1.0),
    "qwen3": (4, (), "silu", "halves", False, 1.0),
    "gemma2": (4, (), "gelu", "halves", True, 8.0),
    "gemma3": (6, (), "gelu", "halves", True, 8.0),
}


def test_every_architecture_has_a_toy_and_a_shape() -> None:
    assert supported() == sorted(FAMILIES) == sorted(SHAPES)


@pytest.mark.parametrize("architecture", SHAPES)
def test_an_architecture_is_what_it_is(architecture: str, tmp_path: Path) -> None:
    toy = Toy(architecture=architecture, head_dim=16)

    config = read_config(reader.read(toy.write(tmp_path / "toy.gguf")))

    slides = config.sliding is not None
    found = (len(config.norms), config.biases, config.gate, config.rope_pairs, slides)
    assert (*found, config.embedding_scale) == SHAPES[architecture]


@pytest.mark.parametrize("flags", ["110110", "11111011111", "1111", "1001", "0100"])
def test_a_flag_a_layer_is_taken(flags: str, gguf: GgufFile) -> None:
    keys: dict[str, Value] = {
        "block_count": len(flags),
        "attention__sliding_window_pattern": np.array([flag == "1" for flag in flags]),
    }

    config = read_config(changed(gguf, **keys))

    assert sliding(config) == [layer for layer, flag in enumerate(flags) if flag == "1"]


def test_without_a_layer_that_slides_there_is_no_window(gguf: GgufFile) -> None:
    flags = np.zeros(2, bool)

    assert read_config(changed(gguf, attention__sliding_window_pattern=flags)).sliding is None


def test_a_linear_rope_scale_is_of_global_layers(gguf: GgufFile) -> None:
    scaled = changed(gguf, rope__scaling__type="linear", rope__scaling__factor=8.0)

    assert read_config(gguf).rope.scale == 1.0
    config = read_config(scaled)
    assert config.sliding
    assert (config.rope.scale, config.sliding.rope.scale) == (8.0, 1.0)
    for keys in ({"rope__scaling__factor": 8.0}, {"rope__scale_linear": 8.0}):
        assert read_config(changed(gguf, **keys)).rope.scale == 8.0


def test_frequencies_are_a_geometric_row_that_scale_and_factors_divide() -> None:
    rope = Rope(base=10_000.0, scale=2.0, factors=(1.0, 1.0, 4.0, 8.0))

    found = rope.frequencies(8)

    np.testing.assert_allclose(found, [0.5, 0.05, 0.005 / 4, 0.0005 / 8], rtol=1e-12)


REFUSED: dict[str, tuple[dict[str, Value], str]] = {
    "no layers": ({"block_count": 0}, "block_count is 0; it must be positive"),
    "a negative size": ({"feed_forward_length": -3}, "feed_forward_length is -3"),
    "a size that is text": ({"embedding_length": "64"}, "'?str'? ?.*an integer was expected|'64'"),
    "heads that do not divide": ({"attention__head_count_kv": 3}, "4 heads do not share 3 K/V"),
    "odd heads": (
        {"attention__key_length": 33, "attention__value_length": 33},
        "heads of 33 values cannot be rotated",
    ),
    "other values": ({"attention__value_length": 16}, "values of 16 beside keys of 32"),
    "a negative pattern": ({"attention__sliding_window_pattern": -1}, "pattern is -1"),
    "fewer flags than layers": (
        {"block_count": 9, "attention__sliding_window_pattern": np.ones(4, bool)},
        "has 4 flags for 9 layers",
    ),
    "more layers than tensors": (
        {"block_count": 4_000_000_000},
        "block_count is 4000000000, but the file has 28 tensors",
    ),
    "a scale of 0": ({"rope__scaling__factor": 0.0}, "factor is 0.0; it must be positive"),
    "heads rotated in part": ({"rope__dimension_count": 16}, "16 rotated values of heads of 32"),
    "yarn": ({"rope__scaling__type": "yarn"}, "rope scaling 'yarn': not supported; 'linear'"),
    "a scale of lengths": ({"rope__scaling__attn_factor": 1.2}, "attn_factor: not supported"),
    "27B": ({"block_count": 62}, "27B is not supported"),
    "an epsilon of 0": ({"attention__layer_norm_rms_epsilon": 0.0}, "epsilon is 0"),
    "a mixture of experts": ({"expert_count": 8}, "'gemma3' with 8 experts: a mixture of experts"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_supported_is_named(name: str, gguf: GgufFile) -> None:
    keys, message = REFUSED[name]
    many = with_tensors(gguf, *(f"extra.{index}" for index in range(62))) if name == "27B" else gguf

    with pytest.raises(ExportError, match=message):
        read_config(changed(many, **keys))


# A file's tensors, and what the error says that the step lacks for them.
FOREIGN = {
    "fused projections": (["blk.0.attn_qkv.weight"], "The step has no attn_qkv$"),
    "a state space": (["blk.0.ssm_a", "blk.0.ssm_in.weight"], "The step has no ssm_a, ssm_in$"),
    "nothing else": ([], "architectures may be all that is missing"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_of_another_architecture_it_is_said_what_the_step_lacks(name: str, gguf: GgufFile) -> None:
    tensors, message = FOREIGN[name]
    other = with_tensors(gguf, *tensors)
    other = replace(other, metadata={**gguf.metadata, "general.architecture": "phi3"})

    with pytest.raises(ExportError, match=r"architecture 'phi3' is not supported; gemma2, .*are"):
        read_config(other)
    with pytest.raises(ExportError, match=message):
        read_config(other)


@pytest.mark.parametrize(
    ("architecture", "tensor", "message"),
    [
        ("clip", "v.blk.0.attn_q.weight", "vision tower"),
        ("clip", "blk.0.attn_q.weight", "vision tower"),
        ("gemma3", "v.patch_embd.weight", "vision tower"),
        ("gemma3", "mm.input_projection.weight", "projector of images"),
        ("gemma3", "a.blk.0.attn_q.weight", "audio tower"),
        ("qwen3moe", "blk.0.ffn_gate_inp.weight", "mixture of experts"),
        ("llama", "blk.0.ffn_gate_inp.weight", "mixture of experts"),
    ],
)
def test_towers_and_experts_are_named(
    architecture: str, tensor: str, message: str, gguf: GgufFile
) -> None:
    other = with_tensors(gguf, tensor)
    other = replace(other, metadata={**gguf.metadata, "general.architecture": architecture})

    with pytest.raises(ExportError, match=message):
        read_config(other)


@pytest.mark.parametrize("shape", [(7,), (16, 1), (32,)])
def test_factors_of_another_size_are_named(shape: tuple[int, ...], gguf: GgufFile) -> None:
    data = np.ones(shape, np.float32).view(np.uint8).ravel()
    tensor = Tensor("rope_freqs.weight", GGMLQuantizationType.F32, shape, data)

    with pytest.raises(ExportError, match=r"rope_freqs.weight: shape .*\(16,\) was expected"):
        read_config(replace(gguf, tensors={**gguf.tensors, tensor.name: tensor}))


def test_a_factor_of_zero_is_named(gguf: GgufFile) -> None:
    data = np.zeros(16, np.float32).view(np.uint8)
    tensor = Tensor("rope_freqs.weight", GGMLQuantizationType.F32, (16,), data)

    with pytest.raises(ExportError, match=r"rope_freqs.weight holds 0.0, not > 0"):
        read_config(replace(gguf, tensors={**gguf.tensors, tensor.name: tensor}))


@pytest.mark.parametrize("key", ["attention.sliding_window", "block_count", "context_length"])
def test_a_missing_key_is_named(key: str, gguf: GgufFile) -> None:
    fewer = {k: v for k, v in gguf.metadata.items() if k != f"gemma3.{key}"}

    with pytest.raises(ExportError, match=rf"gemma3\.{key} is missing"):
        read_config(replace(gguf, metadata=fewer))
