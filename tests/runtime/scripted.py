"""A backend whose tokens are known beforehand, for tests of the loop around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from runtime.backends.backend import Backend
from runtime.bundle import Bundle
from runtime.errors import RunError


class ScriptedBackend(Backend):
    """After n tokens it gives script[n], for sure; it is lost after `lost` steps."""

    def __init__(self, bundle: Bundle, script: Sequence[int], lost: int | None = None) -> None:
        super().__init__(bundle, bundle.program("cpu"))
        self.script, self.lost = script, lost
        self.positions: list[int] = []

    def _run(self, _values: Mapping[str, np.ndarray], position: int) -> Mapping[str, np.ndarray]:
        if self.lost is not None and len(self.positions) >= self.lost:
            raise RunError("the board was lost")
        self.positions.append(position)
        results = {port.name: np.zeros(port.shape, np.float32) for port in self.bundle.outputs}
        results["logits"][0, 0, self.script[(position + 1) % len(self.script)]] = 1
        results["l0.kRow"][:] = position + 1
        return results
