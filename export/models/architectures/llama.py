"""Llama 1 to 3, and what has their shape: Mistral, TinyLlama, SmolLM2."""

from __future__ import annotations

from dataclasses import replace

from export.models.config import DecoderConfig
from export.models.keys import Keys


def read_config(keys: Keys) -> DecoderConfig:
    """A plain decoder whose Q and K rows the converter to GGUF has permuted, biases if any too."""
    return replace(keys.plain_decoder(), rope_pairs="neighbours", biases=keys.biases())
