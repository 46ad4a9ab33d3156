"""Qwen2 and Qwen2.5, dense."""

from __future__ import annotations

from dataclasses import replace

from export.models.config import DecoderConfig
from export.models.keys import Keys


def read_config(keys: Keys) -> DecoderConfig:
    """A plain decoder with biases on Q, K and V."""
    return replace(keys.plain_decoder(), biases=("attn_q", "attn_k", "attn_v"))
