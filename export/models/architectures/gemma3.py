"""Gemma 3, and FunctionGemma, which is one."""

from __future__ import annotations

import math
from dataclasses import replace

from export.errors import ExportError
from export.models.config import HEAD_NORMS, POST_NORMS, PRE_NORMS, DecoderConfig, Rope
from export.models.keys import Keys

# What llama.cpp takes where a file lacks the key.
_WINDOW_PATTERN = 6
_ROPE_BASE_SLIDING = 10_000.0
_ROPE_BASE = 1_000_000.0
_RMS_EPSILON = 1e-6

# Gemma 3 27B alone scales queries by hidden size / heads; nothing in the file says so.
_LAYERS_OF_27B = 62


def read_config(keys: Keys) -> DecoderConfig:
    """Norms before, after and on heads, a GELU gate, and all but every sixth layer slides.

    Raises ExportError for the 27B model.
    """
    plain = keys.plain_decoder(rms_epsilon=_RMS_EPSILON, rope_base=_ROPE_BASE)
    if plain.layers == _LAYERS_OF_27B:
        raise ExportError(f"{keys.gguf.path}: Gemma 3 27B is not supported; it does not fit SL2610")
    window = keys.size("attention.sliding_window")
    # Sliding layers are never scaled.
    rope = Rope(base=keys.number("rope.freq_base_swa", _ROPE_BASE_SLIDING))
    return replace(
        plain,
        norms=PRE_NORMS + POST_NORMS + HEAD_NORMS,
        gate="gelu",
        sliding=keys.sliding(plain.layers, window, _WINDOW_PATTERN, rope),
        embedding_scale=math.sqrt(plain.hidden_size),
        logit_cap=keys.cap("final_logit_softcapping"),
    )
