"""Sampling against distributions computed one token at a time, and by chi-squared tests."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special, stats

from runtime.errors import RunError
from runtime.sampling import Sampler, Sampling

LOGITS = np.array([2.0, 1.0, 0.5, 0.0, -1.0, -3.0, 1.9, 0.1], np.float32)
DRAWS = 20_000


def draws(sampling: Sampling, seen: list[int] | None = None) -> np.ndarray:
    sampler = Sampler(sampling)
    counts = np.zeros(len(LOGITS), int)
    for _ in range(DRAWS):
        counts[sampler.choose(LOGITS, seen or [])] += 1
    return counts


def expected(
    temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0
) -> np.ndarray:
    """The definition, token by token."""
    probabilities = special.softmax(LOGITS.astype(float) / temperature)
    order = sorted(range(len(LOGITS)), key=lambda token: -probabilities[token])
    if top_k:
        order = order[:top_k]
    total = math.fsum(probabilities[token] for token in order)
    kept, reached = [], 0.0
    for token in order:
        if reached >= top_p:
            break
        kept.append(token)
        reached += probabilities[token] / total
    best = probabilities[order[0]]
    kept = [token for token in kept if probabilities[token] >= min_p * best]
    out = np.zeros(len(LOGITS))
    for token in kept:
        out[token] = probabilities[token]
    return np.asarray(out / out.sum())


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0.5},
        {"temperature": 3.0},
        {"top_k": 3},
        {"top_k": 1},
        {"top_k": 100},
        {"top_p": 0.6},
        {"top_p": 1e-9},
        {"min_p": 0.2},
        {"min_p": 1.0},
        {"temperature": 1.5, "top_k": 6, "top_p": 0.9, "min_p": 0.1},
    ],
)
def test_tokens_come_as_often_as_the_definition_says(options: dict[str, float]) -> None:
    wanted = expected(**options)  # type: ignore[arg-type]
    found = draws(Sampling(**{"temperature": 1.0, "seed": 3, **options}))  # type: ignore[arg-type]

    assert not found[wanted == 0].any()
    possible = wanted > 0
    if possible.sum() > 1:
        assert stats.chisquare(found[possible], DRAWS * wanted[possible]).pvalue > 1e-4


def test_the_penalty_is_ctrls() -> None:
    scores = LOGITS.astype(float)
    seen = [0, 5, 0]
    scores[0] /= 1.7
    scores[5] *= 1.7
    wanted = special.softmax(scores)

    found = draws(Sampling(temperature=1.0, repetition_penalty=1.7), seen)

    assert stats.chisquare(found, DRAWS * wanted).pvalue > 1e-4


def test_temperature_0_takes_the_best_whatever_else_is_set() -> None:
    sampler = Sampler(Sampling(temperature=0, top_k=5, top_p=0.1))

    assert {sampler.choose(LOGITS) for _ in range(50)} == {0}


def test_the_same_seed_gives_the_same_tokens_and_another_others() -> None:
    def tokens(seed: int) -> list[int]:
        sampler = Sampler(Sampling(temperature=1.0, seed=seed))
        return [sampler.choose(LOGITS) for _ in range(200)]

    assert tokens(1) == tokens(1)
    assert tokens(1) != tokens(2)


def test_a_restored_state_goes_on_with_the_same_tokens() -> None:
    first = Sampler(Sampling(temperature=1.0, seed=9))
    for _ in range(10):
        first.choose(LOGITS)
    second = Sampler(Sampling(temperature=1.0, seed=0))
    second.state = first.state

    assert [first.choose(LOGITS) for _ in range(50)] == [second.choose(LOGITS) for _ in range(50)]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_only_allowed_tokens_are_chosen(temperature: float) -> None:
    allowed = np.zeros(len(LOGITS), bool)
    allowed[[4, 5]] = True
    sampler = Sampler(Sampling(temperature=temperature))

    found = {sampler.choose(LOGITS, allowed=allowed) for _ in range(200)}

    assert found == ({4} if temperature == 0 else {4, 5})


def test_logits_far_apart_and_infinite_do_not_break_it() -> None:
    logits = np.array([3e38, -3e38, -np.inf, 0], np.float32)

    assert Sampler(Sampling(temperature=1.0)).choose(logits) == 0


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_nothing_to_choose_is_an_error(value: float) -> None:
    logits = np.full(8, value, np.float32)

    with pytest.raises(RunError, match=r"NaN|no token is allowed"):
        Sampler(Sampling(temperature=1.0)).choose(logits)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.inf),
        ("temperature", math.nan),
        ("top_k", -1),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("min_p", -0.1),
        ("min_p", 1.5),
        ("repetition_penalty", 0.0),
        ("seed", -1),
    ],
)
def test_an_option_out_of_its_range_is_named(option: str, value: float) -> None:
    with pytest.raises(RunError, match=f"{option}="):
        Sampling(**{option: value})  # type: ignore[arg-type]
