"""The K/V cache of a conversation on the host."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from runtime.bundle import Bundle
from runtime.ports import CachePorts, cache_ports


class Cache:
    """Every layer's K and V by port, in the dtype of a program; zeros at first.

    A kind of layer keeps its last `past` positions: position p lies in slot p % past.
    """

    def __init__(self, bundle: Bundle, dtype: np.dtype) -> None:
        self._ports = cache_ports(bundle.kinds, bundle.layers)
        shapes = {port.name: port.shape for port in bundle.inputs}
        self.values = {
            cache.argument: np.zeros(shapes[cache.argument], dtype) for cache in self._ports
        }

    def write(self, position: int, results: Mapping[str, np.ndarray]) -> None:
        """Writes the rows of a step's results to the slots of a position."""
        for cache in self._ports:
            slot = cache.kind.slot(position)
            self.values[cache.argument][_slots(cache, slot, slot + 1)] = results[cache.row]

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
        return _slots(cache, 0, min(positions, cache.kind.past))


def _slots(cache: CachePorts, start: int, stop: int) -> tuple[slice, ...]:
    """The index of a range of slots in a cache."""
    return tuple(slice(start, stop) if axis == cache.axis else slice(None) for axis in range(3))
