"""Hyperparameters of Gemma 3 from GGUF metadata. Case 11's defaults, and named errors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from export.errors import ExportError
from export.gguf import reader
from export.gguf.reader import GgufFile, Value
from export.models import gemma3
from tests.toy.gemma3 import Toy


@pytest.fixture
def gguf(tmp_path: Path) -> GgufFile:
    return reader.read(Toy(written_keys=False).write(tmp_path / "toy.gguf"))


def changed(gguf: GgufFile, **keys: Value) -> GgufFile:
    prefixed = {f"gemma3.{key.replace('__', '.')}": value for key, value in keys.items()}
    return replace(gguf, metadata={**gguf.metadata, **prefixed})


def test_absent_keys_have_gemmas_defaults(gguf: GgufFile) -> None:
    config = gemma3.read_config(gguf)

    assert config.window_pattern == 6
    assert config.rope_base_sliding == 10_000
    assert [layer for layer in range(18) if not config.is_sliding(layer)] == [5, 11, 17]


def test_every_key_with_a_default_may_be_absent(gguf: GgufFile) -> None:
    optional = ("rms_epsilon", "freq_base", "head_count_kv", "key_length", "value_length")
    fewer = {key: v for key, v in gguf.metadata.items() if not key.endswith(optional)}

    config = gemma3.read_config(replace(gguf, metadata=fewer))

    assert (config.rms_epsilon, config.rope_base) == (1e-6, 1e6)
    assert (config.kv_heads, config.head_dim) == (4, 16)


def test_written_keys_are_taken(tmp_path: Path) -> None:
    config = gemma3.read_config(reader.read(Toy(rope_base_sliding=500.0).write(tmp_path / "toy")))

    assert (config.window_pattern, config.rope_base_sliding) == (2, 500.0)
    assert (config.layers, config.heads, config.kv_heads, config.head_dim) == (2, 4, 2, 32)
    assert (config.hidden_size, config.ffn_size, config.vocabulary) == (64, 96, 288)
    assert (config.embedding_scale, config.query_scale) == pytest.approx((8.0, 32**-0.5))


@pytest.mark.parametrize(("flags", "pattern"), [("110110", 3), ("11111011111", 6), ("1111", 5)])
def test_a_pattern_of_flags_is_taken(flags: str, pattern: int, gguf: GgufFile) -> None:
    keys: dict[str, Value] = {
        "block_count": len(flags),
        "attention__sliding_window_pattern": np.array([flag == "1" for flag in flags]),
    }

    config = gemma3.read_config(changed(gguf, **keys))

    assert config.window_pattern == pattern
    assert "".join(str(int(config.is_sliding(layer))) for layer in range(len(flags))) == flags


def test_a_linear_rope_scale_is_of_global_layers(gguf: GgufFile) -> None:
    scaled = changed(gguf, rope__scaling__type="linear", rope__scaling__factor=8.0)

    assert gemma3.read_config(gguf).rope_scale == 1.0
    assert gemma3.read_config(scaled).rope_scale == 8.0
    for keys in ({"rope__scaling__factor": 8.0}, {"rope__scale_linear": 8.0}):
        assert gemma3.read_config(changed(gguf, **keys)).rope_scale == 8.0


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
        {"block_count": 4_000_000_000, "attention__sliding_window_pattern": np.ones(4, bool)},
        "has 4 flags for 4000000000 layers",
    ),
    "flags with no period": (
        {"block_count": 4, "attention__sliding_window_pattern": np.array([1, 0, 0, 1], bool)},
        "every n-th global was expected",
    ),
    "a scale of 0": ({"rope__scaling__factor": 0.0}, "factor is 0.0; it must be positive"),
    "heads rotated in part": ({"rope__dimension_count": 16}, "16 rotated values of heads of 32"),
    "yarn": ({"rope__scaling__type": "yarn"}, "rope scaling 'yarn' is not supported"),
    "a soft cap": ({"final_logit_softcapping": 30.0}, "soft cap"),
    "27B": ({"block_count": 62}, "27B is not supported"),
    "an epsilon of 0": ({"attention__layer_norm_rms_epsilon": 0.0}, "epsilon is 0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_supported_is_named(name: str, gguf: GgufFile) -> None:
    keys, message = REFUSED[name]

    with pytest.raises(ExportError, match=message):
        gemma3.read_config(changed(gguf, **keys))


def test_another_architecture_is_named(gguf: GgufFile) -> None:
    other = replace(gguf, metadata={**gguf.metadata, "general.architecture": "llama"})

    with pytest.raises(ExportError, match="architecture 'llama' is not supported; gemma3 is"):
        gemma3.read_config(other)


def test_a_missing_key_is_named(gguf: GgufFile) -> None:
    fewer = {k: v for k, v in gguf.metadata.items() if k != "gemma3.attention.sliding_window"}

    with pytest.raises(ExportError, match=r"gemma3\.attention\.sliding_window is missing"):
        gemma3.read_config(replace(gguf, metadata=fewer))
