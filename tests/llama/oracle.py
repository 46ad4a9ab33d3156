"""llama.cpp as the oracle of tests: logits of given tokens, float32 K/V, no flash attention."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from cyllama.llama import llama_cpp

# ggml_type F32; llama_flash_attn_type DISABLED.
_F32 = 0
_NO_FLASH_ATTENTION = 0


class _Model(llama_cpp.LlamaModel):
    """A model with the attribute that cyllama 0.2.18's own context asks it for, and it lacks."""

    @property
    def n_vocab(self) -> int:
        return int(self.get_vocab().n_vocab)


class LlamaOracle:
    """A checkpoint in llama.cpp, which keeps its cache from call to call."""

    def __init__(self, path: Path, context: int) -> None:
        llama_cpp.disable_logging()
        parameters = llama_cpp.LlamaModelParams()
        parameters.n_gpu_layers = 0
        # Repacked weights would be multiplied by quantised activations.
        parameters.use_extra_bufts = False
        self._model = _Model(path_model=str(path), params=parameters, verbose=False)
        options = llama_cpp.LlamaContextParams()
        options.n_ctx = options.n_batch = options.n_ubatch = context
        options.n_threads = options.n_threads_batch = 2
        options.type_k = options.type_v = _F32
        options.flash_attn_type = _NO_FLASH_ATTENTION
        options.swa_full = True
        self._context = llama_cpp.LlamaContext(model=self._model, params=options, verbose=False)
        self._position = 0

    def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """Token ids of a text, the beginning of a sentence in front.

        special: whether control tokens in the text are tokens.
        """
        return list(self._model.get_vocab().tokenize(text, add_special=True, parse_special=special))

    def ends(self) -> frozenset[int]:
        """The tokens after which llama.cpp generates no more."""
        vocabulary = self._model.get_vocab()
        return frozenset(filter(vocabulary.is_eog, range(vocabulary.n_vocab)))

    def logits(self, tokens: list[int]) -> np.ndarray:
        """float32 [len(tokens), vocabulary]: the logits after each of the tokens that follow."""
        rows = []
        for token in tokens:
            batch = llama_cpp.LlamaBatch(n_tokens=1, embd=0, n_seq_max=1)
            batch.add(token, self._position, [0], True)
            self._context.decode(batch)
            rows.append(np.array(self._context.get_logits_ith(0), np.float32))
            self._position += 1
        return np.stack(rows)
