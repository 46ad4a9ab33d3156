"""llama.cpp as the oracle of tests: logits of given tokens, float32 K/V, no flash attention."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from cyllama.llama import llama_cpp

from tools.llama.llama import Llama

# ggml_type F32; llama_flash_attn_type DISABLED.
_F32 = 0
_NO_FLASH_ATTENTION = 0


class LlamaOracle:
    """A checkpoint in llama.cpp, which keeps its cache from call to call."""

    def __init__(self, path: Path, context: int) -> None:
        parameters = llama_cpp.LlamaModelParams()
        # Repacked weights would be multiplied by quantised activations.
        parameters.use_extra_bufts = False
        options = llama_cpp.LlamaContextParams()
        options.n_ctx = options.n_batch = options.n_ubatch = context
        options.n_threads = options.n_threads_batch = 2
        options.type_k = options.type_v = _F32
        options.flash_attn_type = _NO_FLASH_ATTENTION
        options.swa_full = True
        self._llama = Llama(path, parameters, options)

    def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """Token ids of a text, the beginning of a sentence in front.

        special: whether control tokens in the text are tokens.
        """
        return list(self._llama.vocabulary.tokenize(text, add_special=True, parse_special=special))

    def ends(self) -> frozenset[int]:
        """The tokens after which llama.cpp generates no more."""
        vocabulary = self._llama.vocabulary
        return frozenset(filter(vocabulary.is_eog, range(vocabulary.n_vocab)))

    def logits(self, tokens: list[int]) -> np.ndarray:
        """float32 [len(tokens), vocabulary]: the logits after each of the tokens that follow."""
        rows = []
        for token in tokens:
            self._llama.feed(token)
            rows.append(self._llama.logits())
        return np.stack(rows)
