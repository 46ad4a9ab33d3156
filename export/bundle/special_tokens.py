"""Which tokens are no text, and which end a reply.

GGUF has a type for each token, which converters get wrong: the end of a turn is a plain token in
some files, and eos_token_id names the end of the document where a chat model says `<|im_end|>`.
llama.cpp mends both by the tokens' texts (src/llama-vocab.cpp); what it takes is taken here.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from gguf.constants import TokenType

from export.errors import ExportError
from export.gguf.reader import GgufFile

PREFIX = "tokenizer.ggml."
_ENDS = (
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<\uff5cend▁of▁sentence\uff5c>",
)
# What stands around a gap that a code model fills in: by the metadata's name, else by these texts.
_GAPS = {
    "fim_pre": (
        "<|fim_prefix|>",
        "<fim-prefix>",
        "<fim_prefix>",
        "<\uff5cfim▁begin\uff5c>",
        "<PRE>",
        "▁<PRE>",
    ),
    "fim_suf": (
        "<|fim_suffix|>",
        "<fim-suffix>",
        "<fim_suffix>",
        "<\uff5cfim▁hole\uff5c>",
        "<SUF>",
        "▁<SUF>",
    ),
    "fim_mid": (
        "<|fim_middle|>",
        "<fim-middle>",
        "<fim_middle>",
        "<\uff5cfim▁end\uff5c>",
        "<MID>",
        "▁<MID>",
    ),
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}
# Where one of these comes, the code that was asked for is over.
_ENDING_GAPS = ("fim_pad", "fim_rep", "fim_sep")


def token_id(gguf: GgufFile, name: str, size: int) -> int:
    """The id in `tokenizer.ggml.NAME_token_id`, -1 where there is none.

    Raises ExportError for an id that a vocabulary of `size` tokens does not have.
    """
    key = f"{PREFIX}{name}_token_id"
    found = gguf.integer(key, -1)
    if not -1 <= found < size:
        raise ExportError(
            f"{gguf.path}: {key} is {found}, the vocabulary has {size} tokens; an id below "
            f"{size} was expected; convert the checkpoint again"
        )
    return found


def mended_types(gguf: GgufFile, ids: Mapping[str, int], types: np.ndarray) -> np.ndarray:
    """int32 [tokens]: the types, tokens that are known to be no text made control tokens.

    ids: the token of each text. types: as the file has them.
    """
    known = [text for name in _GAPS for text in _gap_texts(gguf, name)]
    mended = types.copy()
    mended[[ids[text] for text in (*_ENDS, *known) if text in ids]] = TokenType.CONTROL
    return mended


def ends(gguf: GgufFile, ids: Mapping[str, int]) -> list[int]:
    """The tokens that end a reply, in order: those that metadata names, and those known by text."""
    texts = [text for name in _ENDING_GAPS for text in _gap_texts(gguf, name)]
    named = [token_id(gguf, name, len(ids)) for name in ("eos", "eot", "eom", *_ENDING_GAPS)]
    found = {ids[text] for text in (*_ENDS, *texts) if text in ids}
    return sorted(found | {token for token in named if token >= 0})


def _gap_texts(gguf: GgufFile, name: str) -> tuple[str, ...]:
    return () if f"{PREFIX}{name}_token_id" in gguf.metadata else _GAPS[name]
