"""Positions: RoPE rows by their formula in complex numbers, masks and slots by simulation."""

from __future__ import annotations

import cmath

import numpy as np
import pytest

from runtime.positions import MASKED, LayerKind, Rope


def kind(past: int, window: int | None) -> LayerKind:
    return LayerKind(name="Global", past=past, window=window, rope="Global")


@pytest.mark.parametrize("position", [0, 1, 17, 600, 32_767])
def test_rope_rows_are_powers_of_one_rotation_a_pair(position: int) -> None:
    frequencies = (1.0, 0.1, 0.03, 1e-6)

    cos, sin = Rope(name="Global", frequencies=frequencies).row(position)

    for pair, frequency in enumerate(frequencies):
        turn = cmath.exp(1j * position * frequency)
        assert cos[0, pair] == pytest.approx(turn.real, abs=1e-6)
        assert sin[0, pair] == pytest.approx(turn.imag, abs=1e-6)
    assert cos.shape == sin.shape == (1, 4)


# (context or ring, window): a global layer, a sliding ring, and a window wider than the context.
@pytest.mark.parametrize(("past", "window"), [(24, None), (4, 4), (8, 4), (24, 4), (6, 512)])
def test_mask_shows_the_window_of_what_the_slots_hold(past: int, window: int | None) -> None:
    layer = kind(past, window)
    held: dict[int, int] = {}
    positions = past if window is None or window > past else 5 * past
    for position in range(positions):
        visible = {
            slot for slot, earlier in held.items() if window is None or position - earlier < window
        }
        mask = layer.mask(position)
        assert mask.shape == (1, past)
        assert set(np.flatnonzero(mask[0] == 0)) == visible
        assert set(np.unique(mask)) <= {0.0, np.float32(MASKED)}
        held[layer.slot(position)] = position


def test_a_sliding_ring_of_its_window_holds_all_that_is_visible() -> None:
    layer = kind(4, 4)

    assert [int((layer.mask(position) == 0).sum()) for position in range(7)] == [
        0,
        1,
        2,
        3,
        3,
        3,
        3,
    ]
