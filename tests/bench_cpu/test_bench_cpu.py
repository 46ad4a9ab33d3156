"""Two engines beside each other: what they are given, and that a toy runs in both."""

from __future__ import annotations

import pytest

from runtime.backends.iree_cpu import IreeBackend
from runtime.bundle import Bundle
from runtime.decoder import Decoder
from runtime.errors import RunError
from tests.runtime.toy_bundle import toy_file
from tools.bench_cpu.bench_cpu import llama_step, rounds, sample


def test_engines_take_turns_and_see_the_same_tokens() -> None:
    seen: list[tuple[str, int]] = []

    rounds(
        [lambda token: seen.append(("a", token)), lambda token: seen.append(("b", token))],
        [1, 2, 3],
        2,
    )

    assert seen == [("a", 1), ("a", 2), ("b", 1), ("b", 2), ("a", 3), ("b", 3)]


def test_the_first_step_of_each_is_left_out() -> None:
    found = rounds([lambda _: None, lambda _: None], [1, 2, 3, 4], 2)

    assert [len(milliseconds) for milliseconds in found] == [3, 3]


def test_a_toy_runs_in_both_to_the_end_of_its_context() -> None:
    bundle = Bundle.open(toy_file("toy_torq"))
    decoder = Decoder(bundle, IreeBackend(bundle))
    tokens = sample(bundle, bundle.context)

    found = rounds(
        [decoder.feed, llama_step(toy_file("toy.gguf"), bundle.context, threads=1)], tokens, 4
    )

    assert decoder.tokens == tokens
    assert all(value > 0 for milliseconds in found for value in milliseconds)


def test_more_steps_than_the_context_are_refused() -> None:
    bundle = Bundle.open(toy_file("toy_torq"))

    with pytest.raises(RunError, match=f"beyond the bundle's context of {bundle.context}"):
        sample(bundle, bundle.context + 1)
