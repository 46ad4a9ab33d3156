"""The real model's exported module says the same on IREE and on XLA."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from runtime.backends.backend import Backend
from runtime.backends.iree_cpu import IreeBackend
from runtime.backends.jax_reference import JaxBackend
from runtime.bundle import Bundle
from runtime.decoder import Decoder


def greedy(backend: Backend, prompt: list[int], count: int) -> tuple[list[int], np.ndarray]:
    decoder = Decoder(backend.bundle, backend)
    for token in prompt:
        result = decoder.feed(token)
    tokens: list[int] = []
    while len(tokens) < count:
        tokens.append(int(result.logits.argmax()))
        result = decoder.feed(tokens[-1])
    backend.close()
    return tokens, result.hidden


def test_the_same_64_greedy_tokens(request: pytest.FixtureRequest) -> None:
    bundle = Bundle.open(Path(request.config.getoption("--bundle")))
    prompt = bundle.tokenizer.encode("A list of the largest cities of Europe, by people: ")

    ours, ours_hidden = greedy(IreeBackend(bundle), prompt, 64)
    theirs, theirs_hidden = greedy(JaxBackend(bundle), prompt, 64)

    assert ours == theirs
    assert len(set(ours)) > 10
    np.testing.assert_allclose(ours_hidden, theirs_hidden, rtol=2e-3, atol=2e-3)
