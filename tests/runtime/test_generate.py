"""The loop: where it begins, what it gives, where it ends."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.bundle import Bundle
from runtime.decoder import Decoder
from runtime.errors import RunError
from runtime.generate import Limits, Stats, fit, generate
from runtime.sampling import Sampler, Sampling
from tests.runtime.scripted import ScriptedBackend
from tests.runtime.toy_bundle import toy_file

SCRIPT = [10, 11, 12, 13, 14, 15, 16, 17]


@pytest.fixture
def decoder() -> Decoder:
    bundle = Bundle.open(toy_file("toy_torq"))
    return Decoder(bundle, ScriptedBackend(bundle, SCRIPT), candidates=0)


def run(decoder: Decoder, prompt: list[int], **limits: object) -> tuple[list[int], Stats]:
    stats = Stats()
    options = Limits(**{"max_tokens": 5, **limits})  # type: ignore[arg-type]
    tokens = list(generate(decoder, Sampler(Sampling()), prompt, options, stats))
    return tokens, stats


def test_tokens_follow_the_prompt_up_to_the_limit(decoder: Decoder) -> None:
    tokens, stats = run(decoder, [1, 2, 3])

    assert tokens == [13, 14, 15, 16, 17]
    assert (stats.prompt_tokens, stats.kept_tokens, stats.tokens) == (3, 0, 5)
    assert stats.finish == "length"
    # The last token's own step would be for nothing.
    assert decoder.tokens == [1, 2, 3, 13, 14, 15, 16]


def test_a_stop_token_ends_it_and_is_not_given(decoder: Decoder) -> None:
    tokens, stats = run(decoder, [1, 2], stops=frozenset({14}))

    assert (tokens, stats.finish) == ([12, 13], "stop")


def test_a_full_context_ends_it(decoder: Decoder) -> None:
    tokens, stats = run(decoder, [1] * 14, max_tokens=50)

    assert (tokens, stats.finish) == ([16, 17, 10], "context")
    assert len(decoder.tokens) == 16


def test_a_prompt_as_long_as_the_context_gives_one_token(decoder: Decoder) -> None:
    tokens, stats = run(decoder, [1] * 16, max_tokens=50)

    assert (tokens, stats.finish) == ([10], "context")


@pytest.mark.parametrize(("after", "count"), [(0, 0), (2, 0), (3, 0), (5, 2)])
def test_an_interruption_ends_it_before_the_next_token(
    decoder: Decoder, after: int, count: int
) -> None:
    asked = iter(range(100))
    tokens, stats = run(decoder, [1, 2, 3], interrupted=lambda: next(asked) >= after)

    assert (len(tokens), stats.finish) == (count, "interrupted")


def test_what_the_cache_has_is_not_run_again(decoder: Decoder) -> None:
    run(decoder, [1, 2], max_tokens=1)
    backend = decoder.backend
    assert isinstance(backend, ScriptedBackend)
    backend.positions.clear()

    _, stats = run(decoder, [1, 2, 9], max_tokens=1)

    assert backend.positions == [2]
    assert stats.kept_tokens == 2


def test_the_same_prompt_again_runs_its_last_token_alone(decoder: Decoder) -> None:
    first = run(decoder, [1, 2, 3], max_tokens=1)[0]
    assert run(decoder, [1, 2, 3], max_tokens=1)[0] == first
    assert decoder.tokens == [1, 2, 3]


def test_a_ring_that_was_written_over_is_begun_anew(decoder: Decoder) -> None:
    # The toy's sliding layers keep 4 positions.
    run(decoder, [1, 2, 3, 4, 5, 6], max_tokens=1)

    assert decoder.keep([1, 2, 3, 9]) == 0
    assert decoder.tokens == []


def test_a_ring_that_was_not_written_over_is_gone_back_in(decoder: Decoder) -> None:
    run(decoder, [1, 2, 3, 4], max_tokens=1)

    assert decoder.keep([1, 2, 9]) == 2
    assert decoder.tokens == [1, 2]


def test_a_lost_board_leaves_the_tokens_that_came() -> None:
    bundle = Bundle.open(toy_file("toy_torq"))
    decoder = Decoder(bundle, ScriptedBackend(bundle, SCRIPT, lost=5), candidates=0)
    tokens = generate(decoder, Sampler(Sampling()), [1, 2, 3], Limits(max_tokens=9), Stats())
    given: list[int] = []

    with pytest.raises(RunError, match="lost"):
        given.extend(tokens)

    assert given == [13, 14, 15]
    assert decoder.tokens == [1, 2, 3, 13, 14]


class Only:
    """A constraint that wants these tokens, in this order."""

    def __init__(self, tokens: list[int]) -> None:
        self.tokens = tokens

    @property
    def finished(self) -> bool:
        return not self.tokens

    def allowed(self) -> np.ndarray:
        allowed = np.zeros(288, bool)
        allowed[self.tokens[0]] = True
        return allowed

    def accept(self, token: int) -> None:
        assert self.tokens.pop(0) == token


def test_a_constraint_chooses_and_ends(decoder: Decoder) -> None:
    stats = Stats()
    tokens = generate(
        decoder, Sampler(Sampling()), [1], Limits(max_tokens=9), stats, Only([50, 60, 70])
    )

    assert list(tokens) == [50, 60, 70]
    assert stats.finish == "stop"


def test_a_prompt_that_is_too_long_is_refused_with_both_numbers() -> None:
    with pytest.raises(RunError, match=r"the prompt has 17 tokens, the context 16; .*--cut_prompt"):
        fit(list(range(17)), 16, 4, cut=False)


@pytest.mark.parametrize(("room", "length"), [(4, 12), (100, 8), (1, 15)])
def test_a_cut_prompt_keeps_its_first_token_and_its_end(room: int, length: int) -> None:
    cut = fit(list(range(40)), 16, room, cut=True)

    assert cut[0] == 0
    assert len(cut) == length
    assert cut[1:] == list(range(41 - length, 40))


def test_a_prompt_that_fits_is_as_it_was_and_an_empty_one_refused() -> None:
    assert fit(list(range(16)), 16, 4, cut=True) == list(range(16))
    with pytest.raises(RunError, match="empty"):
        fit([], 16, 4, cut=True)
