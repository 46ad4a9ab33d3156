"""Caches that hold one layer or several: each new row lands in its layer's heads and slot alone."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.ports import CachePorts
from runtime.positions import LayerKind

KIND = LayerKind(name="Global", past=5, window=None, rope="Global")


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("axis", [1, 2])
def test_a_row_is_written_to_its_layers_heads(layers: int, axis: int) -> None:
    heads, head_dim, slot = 2, 4, 3
    shape = [layers * heads, head_dim, head_dim]
    shape[axis] = KIND.past
    rows = tuple(f"l{layer}.kRow" for layer in range(layers))
    ports = CachePorts(argument="k", rows=rows, kind=KIND, axis=axis)
    value = np.zeros(shape)
    results = {
        name: np.full([heads, *(1 if i == axis else head_dim for i in (1, 2))], 1.0 + layer)
        for layer, name in enumerate(rows)
    }

    ports.write(value, slot, results)

    written = np.take(value, slot, axis)
    for layer in range(layers):
        assert (written[layer * heads : (layer + 1) * heads] == 1 + layer).all()
    assert np.count_nonzero(value) == written.size
