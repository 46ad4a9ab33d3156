"""llama.cpp on this machine's CPU, fed one token at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from cyllama.llama import llama_cpp


class _Model(llama_cpp.LlamaModel):
    """A model with the attribute that cyllama 0.2.18's own context asks it for, and it lacks."""

    @property
    def n_vocab(self) -> int:
        return int(self.get_vocab().n_vocab)


class Llama:
    """A checkpoint in llama.cpp, which keeps its cache from token to token.

    parameters, options: of the model and of its context, as cyllama has them; whatever they say,
        nothing goes to a GPU.
    """

    def __init__(
        self,
        path: Path,
        parameters: llama_cpp.LlamaModelParams,
        options: llama_cpp.LlamaContextParams,
    ) -> None:
        llama_cpp.disable_logging()
        parameters.n_gpu_layers = 0
        self._model = _Model(path_model=str(path), params=parameters, verbose=False)
        self._context = llama_cpp.LlamaContext(model=self._model, params=options, verbose=False)
        self._position = 0

    @property
    def vocabulary(self) -> llama_cpp.LlamaVocab:
        """The checkpoint's tokens."""
        return self._model.get_vocab()

    def feed(self, token: int) -> None:
        """Runs a token at the next position; its logits are there when this returns."""
        batch = llama_cpp.LlamaBatch(n_tokens=1, embd=0, n_seq_max=1)
        batch.add(token, self._position, [0], True)
        self._context.decode(batch)
        self._position += 1

    def logits(self) -> np.ndarray:
        """float32 [vocabulary]: those after the last token."""
        return np.array(self._context.get_logits_ith(0), np.float32)
