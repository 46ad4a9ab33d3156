"""Writes toy checkpoints: real GGUF files of a few thousand weights, made by code.

llama.cpp loads them, so they can be compared with it. Every size is a choice, and every matrix can
be of any block type: those that gguf cannot quantise to are filled with random valid blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from gguf import GGUFWriter, quants
from gguf.constants import (
    GGML_QUANT_SIZES,
    GGMLQuantizationType,
    RopeScalingType,
    TokenType,
)

from tests.toy import byte_pairs

# Where the f16 scales lie in the blocks that are filled at random.
_HALF_OFFSETS = {
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "IQ4_NL": (0,),
}
_BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]
# As real files have them, with spaces, and as none should, with the mark that stands for a space.
_USER_DEFINED = ["  ", "▁▁"]
_CONTROL_TOKENS = ["<pad>", "<eos>", "<bos>", "<unk>"]
_BEGINNING_AND_END = ("<|begin_of_text|>", "<|eot_id|>")

# What FunctionGemma's vocabulary has beside Gemma's.
FUNCTION_TOKENS = (
    "<start_of_turn>",
    "<end_of_turn>",
    "<start_function_declaration>",
    "<end_function_declaration>",
    "<start_function_call>",
    "<end_function_call>",
    "<start_function_response>",
    "<end_function_response>",
    "<escape>",
)


_LLAMA_NORMS = ("attn_norm", "ffn_norm")
_GEMMA2_NORMS = (*_LLAMA_NORMS, "post_attention_norm", "post_ffw_norm")
_HEAD_NORMS = ("attn_q_norm", "attn_k_norm")
_QKV = ("attn_q", "attn_k", "attn_v")


@dataclass(frozen=True, kw_only=True)
class Family:
    """What a converter writes for an architecture besides what it writes for all.

    keys: the kinds of keys, as the methods of `Toy` that write them.
    key_length: whether the size of a head is written, and may be any.
    pre: how byte-level BPE cuts text; a SentencePiece vocabulary where empty.
    """

    norms: tuple[str, ...]
    biases: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    key_length: bool = True
    pre: str = ""


FAMILIES = {
    "gemma2": Family(norms=_GEMMA2_NORMS, keys=("window", "caps")),
    "gemma3": Family(norms=(*_GEMMA2_NORMS, *_HEAD_NORMS), keys=("window", "pattern")),
    "llama": Family(norms=_LLAMA_NORMS, keys=("rotated",), key_length=False, pre="llama-bpe"),
    "qwen2": Family(norms=_LLAMA_NORMS, biases=_QKV, key_length=False, pre="qwen2"),
    "qwen3": Family(norms=(*_LLAMA_NORMS, *_HEAD_NORMS), pre="qwen2"),
}


@dataclass(frozen=True, kw_only=True)
class Toy:
    """A toy checkpoint.

    head_dim: hidden_size / heads where the family does not write it.
    biases: of projections, beside the family's.
    rope_factors: [head_dim / 2], Llama 3's; none where empty.
    score_cap, logit_cap: where the family has them.
    own_head: whether the head is not the embedding.
    types: the type of a matrix by the name of its tensor's last part, such as "ffn_up", or by its
    whole name; `default_type` for the others.
    written_keys: False leaves out the keys that real files leave out too.
    control: control tokens beside Gemma's four, or beside two of byte-level BPE; they are the
        vocabulary's last.
    chat_template: "" for none.
    """

    architecture: str = "gemma3"
    layers: int = 2
    hidden_size: int = 64
    ffn_size: int = 96
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    vocabulary: int = 288
    context_length: int = 1024
    window: int = 4
    pattern: int = 2
    rope_base: float = 1_000_000.0
    rope_base_sliding: float = 10_000.0
    rope_scale: float = 1.0
    rope_factors: tuple[float, ...] = ()
    score_cap: float = 50.0
    logit_cap: float = 30.0
    biases: tuple[str, ...] = ()
    own_head: bool = False
    written_keys: bool = True
    control: tuple[str, ...] = ()
    chat_template: str = ""
    default_type: str = "F32"
    types: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0

    @property
    def family(self) -> Family:
        """What the architecture's files have."""
        return FAMILIES[self.architecture]

    def write(self, path: Path) -> Path:
        """Writes the file; returns its path."""
        writer = GGUFWriter(path, self.architecture)
        self._write_metadata(writer)
        self._write_vocabulary(writer)
        random = np.random.default_rng(self.seed)
        for name, shape in self._shapes().items():
            if len(shape) == 2:
                self._write_matrix(writer, name, shape, random)
            else:
                mean = 1.0 if name.endswith(".weight") else 0.0
                values = mean + 0.2 * random.standard_normal(shape)
                writer.add_tensor(name, values.astype(np.float32))
        if self.rope_factors:
            writer.add_tensor("rope_freqs.weight", np.array(self.rope_factors, np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    def _write_metadata(self, writer: GGUFWriter) -> None:
        writer.add_context_length(self.context_length)
        writer.add_embedding_length(self.hidden_size)
        writer.add_block_count(self.layers)
        writer.add_feed_forward_length(self.ffn_size)
        writer.add_head_count(self.heads)
        writer.add_head_count_kv(self.kv_heads)
        if self.family.key_length:
            writer.add_key_length(self.head_dim)
            writer.add_value_length(self.head_dim)
        writer.add_layer_norm_rms_eps(1e-6)
        writer.add_rope_freq_base(self.rope_base)
        if self.rope_scale != 1.0:
            writer.add_rope_scaling_type(RopeScalingType.LINEAR)
            writer.add_rope_scaling_factor(self.rope_scale)
        if "rotated" in self.family.keys:
            writer.add_rope_dimension_count(self.head_dim)
        if "window" in self.family.keys:
            writer.add_sliding_window(self.window)
        if "caps" in self.family.keys:
            writer.add_attn_logit_softcapping(self.score_cap)
            writer.add_final_logit_softcapping(self.logit_cap)
        if "pattern" in self.family.keys and self.written_keys:
            writer.add_uint32("gemma3.attention.sliding_window_pattern", self.pattern)
            writer.add_float32("gemma3.rope.freq_base_swa", self.rope_base_sliding)

    def _write_vocabulary(self, writer: GGUFWriter) -> None:
        if self.family.pre:
            self._write_byte_pairs(writer)
        else:
            self._write_sentence_pieces(writer)
        if self.chat_template:
            writer.add_chat_template(self.chat_template)

    def _write_byte_pairs(self, writer: GGUFWriter) -> None:
        control = (*self.control, *_BEGINNING_AND_END)
        words = byte_pairs.vocabulary(self.vocabulary, control)
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(self.family.pre)
        writer.add_token_list(list(words.tokens))
        writer.add_token_types(list(words.types))
        writer.add_token_merges(list(words.merges))
        writer.add_bos_token_id(self.vocabulary - 2)
        writer.add_eos_token_id(self.vocabulary - 1)

    def _write_sentence_pieces(self, writer: GGUFWriter) -> None:
        words = ["▁", *(f"▁w{index}" for index in range(self.vocabulary - 263 - len(self.control)))]
        tokens = [*_CONTROL_TOKENS, *_BYTE_TOKENS, *_USER_DEFINED, *words, *self.control]
        kinds = [TokenType.CONTROL] * 3 + [TokenType.UNKNOWN] + [TokenType.BYTE] * 256
        kinds += [TokenType.USER_DEFINED] * 2 + [TokenType.NORMAL] * len(words)
        kinds += [TokenType.CONTROL] * len(self.control)
        writer.add_tokenizer_model("llama")
        writer.add_token_list(tokens)
        writer.add_token_scores([-float(index) for index in range(len(tokens))])
        writer.add_token_types(kinds)
        writer.add_add_space_prefix(False)
        writer.add_bos_token_id(2)
        writer.add_eos_token_id(1)
        writer.add_unk_token_id(3)
        writer.add_pad_token_id(0)

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        hidden, ffn = self.hidden_size, self.ffn_size
        shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (self.vocabulary, hidden)}
        matrices = {
            "attn_q": (q, hidden),
            "attn_k": (kv, hidden),
            "attn_v": (kv, hidden),
            "attn_output": (hidden, q),
            "ffn_gate": (ffn, hidden),
            "ffn_up": (ffn, hidden),
            "ffn_down": (hidden, ffn),
        }
        norms = {
            name: (self.head_dim if name in _HEAD_NORMS else hidden,) for name in self.family.norms
        }
        biases = {name: matrices[name][:1] for name in (*self.family.biases, *self.biases)}
        for layer in range(self.layers):
            for name, shape in (matrices | norms).items():
                shapes[f"blk.{layer}.{name}.weight"] = shape
            for name, shape in biases.items():
                shapes[f"blk.{layer}.{name}.bias"] = shape
        if self.own_head:
            shapes["output.weight"] = (self.vocabulary, hidden)
        return shapes | {"output_norm.weight": (hidden,)}

    def _write_matrix(
        self, writer: GGUFWriter, name: str, shape: tuple[int, ...], random: np.random.Generator
    ) -> None:
        part = name.removesuffix(".weight").split(".")[-1]
        kind = GGMLQuantizationType[self.types.get(name, self.types.get(part, self.default_type))]
        values = (random.standard_normal(shape) * shape[-1] ** -0.5).astype(np.float32)
        if kind.name in _HALF_OFFSETS:
            data = random_blocks(kind.name, shape, random)
        else:
            data = quants.quantize(values, kind)
        writer.add_tensor(name, data, raw_dtype=kind)


def random_blocks(
    type_name: str, shape: tuple[int, ...], random: np.random.Generator
) -> np.ndarray:
    """uint8 [rows, row bytes] of random blocks whose scales are finite and small."""
    block_size, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[type_name]]
    count = int(np.prod(shape)) // block_size
    raw = random.integers(0, 256, (count, block_bytes), dtype=np.uint8)
    for offset in _HALF_OFFSETS[type_name]:
        scale = (random.random(count) * 0.002 + 0.0005).astype(np.float16)
        raw[:, offset : offset + 2] = scale[:, None].view(np.uint8)
    return raw.reshape(shape[0], -1)
