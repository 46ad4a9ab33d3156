"""Gemma 2."""

from __future__ import annotations

import math
from dataclasses import replace

from export.errors import ExportError
from export.models.config import POST_NORMS, PRE_NORMS, DecoderConfig, Rope
from export.models.keys import Keys

# What llama.cpp takes where a file lacks the key.
_WINDOW = 4096
_WINDOW_PATTERN = 2
_SCORE_CAP, _LOGIT_CAP = 50.0, 30.0

# Gemma 2 27B alone scales queries by hidden size / heads; nothing in the file says so.
_LAYERS_OF_27B = 46


def read_config(keys: Keys) -> DecoderConfig:
    """Norms before and after, a GELU gate, soft caps, and every other layer slides.

    Raises ExportError for the 27B model.
    """
    plain = keys.plain_decoder()
    if plain.layers == _LAYERS_OF_27B:
        raise ExportError(f"{keys.gguf.path}: Gemma 2 27B is not supported; it does not fit SL2610")
    window = keys.size("attention.sliding_window", _WINDOW)
    rope = Rope(
        base=keys.number("rope.freq_base_swa", plain.rope.base),
        scale=plain.rope.scale,
        factors=plain.rope.factors,
    )
    return replace(
        plain,
        norms=PRE_NORMS + POST_NORMS,
        gate="gelu",
        sliding=keys.sliding(plain.layers, window, _WINDOW_PATTERN, rope),
        embedding_scale=math.sqrt(plain.hidden_size),
        score_cap=keys.cap("attn_logit_softcapping", _SCORE_CAP),
        logit_cap=keys.cap("final_logit_softcapping", _LOGIT_CAP),
    )
