"""Backends agree with each other, and with the checkpoint's own step."""

from __future__ import annotations

import numpy as np
import pytest

from export.gguf import reader
from export.models.read import read_config
from export.trace.packing import Packing
from export.trace.weights import packed_weights
from runtime.backends.backend import Backend
from runtime.backends.iree_cpu import IreeBackend
from runtime.backends.jax_reference import JaxBackend
from runtime.backends.simulator import SimulatorBackend
from runtime.bundle import Bundle
from runtime.decoder import Decoder
from runtime.errors import RunError
from tests.runtime.toy_bundle import toy_file
from tests.torq.tools import torq_tools
from tools.report.reference import ReferenceDecoder

PROMPT = [2, 17, 200, 33, 101]


def greedy(backend: Backend, count: int) -> tuple[list[int], list[np.ndarray]]:
    decoder = Decoder(backend.bundle, backend)
    tokens, logits = [], []
    for token in PROMPT:
        result = decoder.feed(token)
    for _ in range(count):
        logits.append(result.logits)
        tokens.append(int(result.logits.argmax()))
        result = decoder.feed(tokens[-1])
    return tokens, logits


def test_the_same_64_greedy_tokens_on_jax_and_iree_beyond_a_ring_of_the_window() -> None:
    bundle = Bundle.open(toy_file("toy_chat_torq"))

    ours, ours_logits = greedy(IreeBackend(bundle), 64)
    theirs, theirs_logits = greedy(JaxBackend(bundle), 64)

    assert ours == theirs
    np.testing.assert_allclose(ours_logits, theirs_logits, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", [IreeBackend, JaxBackend])
@pytest.mark.parametrize("toy", ["toy", "toy_gemma2", "toy_llama", "toy_qwen2", "toy_qwen3"])
def test_a_backend_gives_what_the_checkpoints_own_step_gives(
    toy: str, kind: type[IreeBackend | JaxBackend]
) -> None:
    bundle = Bundle.open(toy_file(f"{toy}_torq"))
    gguf = reader.read(toy_file(f"{toy}.gguf"))
    config = read_config(gguf)
    weights = packed_weights(gguf, config, Packing()).weights
    reference = ReferenceDecoder(gguf, config, weights, bundle.context)
    decoder = Decoder(bundle, kind(bundle))

    for token in [*PROMPT, 5, 77, 150, 9, 31]:
        wanted, found = reference.step(token), decoder.feed(token)
        np.testing.assert_allclose(found.logits, wanted["logits"].ravel(), rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(found.hidden, wanted["hidden"].ravel(), rtol=1e-3, atol=1e-4)


def test_the_simulator_agrees_with_float32_to_bf16() -> None:
    bundle = Bundle.open(toy_file("toy_torq"))
    simulator = Decoder(bundle, SimulatorBackend(bundle, torq_tools()))
    reference = Decoder(bundle, IreeBackend(bundle))

    for token in [*PROMPT, 5, 77]:
        found, wanted = simulator.feed(token), reference.feed(token)
        cosine = found.logits @ wanted.logits
        cosine /= np.linalg.norm(found.logits) * np.linalg.norm(wanted.logits)
        assert cosine > 0.999
        assert not np.array_equal(found.logits, wanted.logits)


def test_a_full_context_is_refused_with_its_size() -> None:
    bundle = Bundle.open(toy_file("toy_torq"))
    decoder = Decoder(bundle, IreeBackend(bundle))
    for _ in range(bundle.context):
        decoder.feed(5)

    with pytest.raises(RunError, match="position 16 is outside of the context of 16"):
        decoder.feed(5)
    assert len(decoder.tokens) == 16
