"""Qwen3, dense."""

from __future__ import annotations

from dataclasses import replace

from export.models.config import HEAD_NORMS, PRE_NORMS, DecoderConfig
from export.models.keys import Keys


def read_config(keys: Keys) -> DecoderConfig:
    """A plain decoder with norms on the heads of Q and K."""
    return replace(keys.plain_decoder(), norms=PRE_NORMS + HEAD_NORMS)
