"""The K/V cache of a conversation on the host."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from runtime.bundle import Bundle
from runtime.ports import CachePorts


class Cache:
    """Every layer's K and V by port, in the dtype of a program; zeros at first.

    A kind of layer keeps its last `past` positions: position p lies in slot p % past.
    """

    def __init__(self, bundle: Bundle, dtype: np.dtype) -> None:
        self._ports = bundle.caches
        shapes = {port.name: port.shape for port in bundle.inputs}
        self.values = {
            cache.argument: np.zeros(shapes[cache.argument], dtype) for cache in self._ports
        }

    def write(self, position: int, results: Mapping[str, np.ndarray]) -> None:
        """Writes the rows of a step's results to the slots of a position."""
        for cache in self._ports:
            cache.write(self.values[cache.argument], cache.kind.slot(position), results)

    def filled(self, positions: int) -> dict[str, np.ndarray]:
        """The slots that hold something after so many positions, as views."""
        return {
            cache.argument: self.values[cache.argument][self._first(cache, positions)]
            for cache in self._ports
        }

    def fill(self, positions: int, rows: Mapping[str, np.ndarray]) -> None:
        """Writes what `filled` gave, in any float dtype.

        Raises ValueError where ports or shapes differ; nothing is written then.
        """
        targets = self.filled(positions)
        shapes = {name: value.shape for name, value in rows.items()}
        if shapes != {name: value.shape for name, value in targets.items()}:
            raise ValueError("caches of other ports or shapes")
        for name, target in targets.items():
            target[...] = rows[name].astype(target.dtype)

    def _first(self, cache: CachePorts, positions: int) -> tuple[slice, ...]:
        return cache.slots(0, min(positions, cache.kind.past))
