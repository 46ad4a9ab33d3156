"""Writes the smallest checkpoint of architecture llama that llama.cpp loads, for its vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from gguf import GGUFWriter

from tests.toy.byte_pairs import BytePairs

_WIDTH = 32


def write(path: Path, words: BytePairs, pre: str, keys: Mapping[str, int | bool] = {}) -> Path:
    """Writes the file; returns its path.

    keys: more of `tokenizer.ggml`: ids such as `eos_token_id`, and `add_bos_token`.
    """
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(_WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(_WIDTH)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(list(words.tokens))
    writer.add_token_types(list(words.types))
    writer.add_token_merges(list(words.merges))
    for key, value in keys.items():
        add = writer.add_bool if isinstance(value, bool) else writer.add_uint32
        add(f"tokenizer.ggml.{key}", value)
    writer.add_tensor("token_embd.weight", np.zeros((len(words.tokens), _WIDTH), np.float32))
    for norm in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{norm}.weight", np.ones(_WIDTH, np.float32))
    for part in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        writer.add_tensor(f"blk.0.{part}.weight", np.zeros((_WIDTH, _WIDTH), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
