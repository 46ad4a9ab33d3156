"""Gemma 3 (and FunctionGemma, which is one): its hyperparameters from GGUF metadata."""

from __future__ import annotations

import math

import numpy as np

from export.errors import ExportError
from export.gguf.reader import GgufFile
from export.models.config import DecoderConfig

ARCHITECTURE = "gemma3"

# What llama.cpp takes where a file lacks the key (src/llama-model.cpp, LLM_ARCH_GEMMA3).
_WINDOW_PATTERN = 6
_ROPE_BASE_SLIDING = 10_000.0
_ROPE_BASE = 1_000_000.0
_RMS_EPSILON = 1e-6

# Gemma 3 27B alone scales queries by hidden size / heads; nothing in the file says so.
_LAYERS_OF_27B = 62


def read_config(gguf: GgufFile) -> DecoderConfig:
    """The hyperparameters of a Gemma 3 file.

    Raises ExportError for another architecture, a missing key with no default, a value out of
    range, and what this export does not do (a final soft cap, the 27B model).
    """
    architecture = gguf.string("general.architecture")
    if architecture != ARCHITECTURE:
        raise ExportError(
            f"{gguf.path}: architecture {architecture!r} is not supported; {ARCHITECTURE} is"
        )

    if gguf.number(f"{ARCHITECTURE}.final_logit_softcapping", 0.0):
        raise ExportError(f"{gguf.path}: a final soft cap of the logits is not supported")
    layers = _size(gguf, "block_count")
    if layers == _LAYERS_OF_27B:
        raise ExportError(f"{gguf.path}: Gemma 3 27B is not supported; it does not fit the SL2610")
    hidden_size, heads = _size(gguf, "embedding_length"), _size(gguf, "attention.head_count")
    kv_heads = _size(gguf, "attention.head_count_kv", heads)
    head_dim = _size(gguf, "attention.key_length", hidden_size // heads)
    _check_heads(gguf, heads, kv_heads, head_dim, _size(gguf, "attention.value_length", head_dim))
    return DecoderConfig(
        architecture=architecture,
        layers=layers,
        hidden_size=hidden_size,
        ffn_size=_size(gguf, "feed_forward_length"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocabulary=gguf.tensor("token_embd.weight").shape[0],
        context_length=_size(gguf, "context_length"),
        rms_epsilon=_number(gguf, "attention.layer_norm_rms_epsilon", _RMS_EPSILON),
        window=_size(gguf, "attention.sliding_window"),
        window_pattern=_window_pattern(gguf, layers),
        rope_base=_number(gguf, "rope.freq_base", _ROPE_BASE),
        rope_base_sliding=_number(gguf, "rope.freq_base_swa", _ROPE_BASE_SLIDING),
        rope_scale=_rope_scale(gguf),
        embedding_scale=math.sqrt(hidden_size),
        query_scale=1 / math.sqrt(head_dim),
    )


def _size(gguf: GgufFile, key: str, default: int | None = None) -> int:
    """A positive integer of the architecture's keys."""
    value = gguf.integer(f"{ARCHITECTURE}.{key}", default)
    _require_positive(gguf, key, value)
    return value


def _number(gguf: GgufFile, key: str, default: float) -> float:
    """A positive number of the architecture's keys."""
    value = gguf.number(f"{ARCHITECTURE}.{key}", default)
    _require_positive(gguf, key, value)
    return value


def _require_positive(gguf: GgufFile, key: str, value: float) -> None:
    if value <= 0:
        raise ExportError(f"{gguf.path}: {ARCHITECTURE}.{key} is {value}; it must be positive")


def _check_heads(gguf: GgufFile, heads: int, kv_heads: int, head_dim: int, value_dim: int) -> None:
    if heads % kv_heads:
        raise ExportError(f"{gguf.path}: {heads} heads do not share {kv_heads} K/V heads evenly")
    if head_dim % 2:
        raise ExportError(f"{gguf.path}: heads of {head_dim} values cannot be rotated in halves")
    rotated = gguf.integer(f"{ARCHITECTURE}.rope.dimension_count", head_dim)
    if rotated != head_dim:
        raise ExportError(
            f"{gguf.path}: {rotated} rotated values of heads of {head_dim} are not supported"
        )
    if value_dim != head_dim:
        raise ExportError(
            f"{gguf.path}: values of {value_dim} beside keys of {head_dim} are not supported"
        )


def _window_pattern(gguf: GgufFile, layers: int) -> int:
    """Every how many layers one is global: a number in the file, or a flag for each layer."""
    key = f"{ARCHITECTURE}.attention.sliding_window_pattern"
    value = gguf.metadata.get(key, _WINDOW_PATTERN)
    if isinstance(value, np.ndarray):
        if len(value) < layers:
            raise ExportError(f"{gguf.path}: {key} has {len(value)} flags for {layers} layers")
        sliding = value.astype(bool).tolist()[:layers]
        pattern = sliding.index(False) + 1 if False in sliding else layers + 1
        if sliding != [layer % pattern != pattern - 1 for layer in range(layers)]:
            raise ExportError(f"{gguf.path}: {key} is {sliding}; every n-th global was expected")
        return pattern
    return _size(gguf, "attention.sliding_window_pattern", _WINDOW_PATTERN)


def _rope_scale(gguf: GgufFile) -> float:
    """The linear scale of the global layers' angles; 1 where the file names none."""
    # As llama.cpp has it: linear where no type is named, by the old key where the new is absent.
    kind = gguf.string(f"{ARCHITECTURE}.rope.scaling.type", "linear")
    if kind == "none":
        return 1.0
    if kind != "linear":
        raise ExportError(f"{gguf.path}: rope scaling {kind!r} is not supported; linear is")
    old = gguf.number(f"{ARCHITECTURE}.rope.scale_linear", 1.0)
    return _number(gguf, "rope.scaling.factor", old)
