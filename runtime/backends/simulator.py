"""The step in the Torq simulator: exact, and minutes a token for a whole model."""

from __future__ import annotations

import numpy as np

from runtime.backends.backend import HostBackend
from runtime.bundle import Bundle
from runtime.errors import RunError
from third_party.torq.torq_tools import Output, ToolError, TorqTools

# Seconds; a step of Gemma 3 270M takes about two minutes (measured, 2 cores).
_TIMEOUT = 3600


class SimulatorBackend(HostBackend):
    """Runs torq-run-module once a step.

    tools: the programs of a Torq release.
    """

    def __init__(self, bundle: Bundle, tools: TorqTools) -> None:
        super().__init__(bundle, bundle.program("torq"))
        self._tools = tools
        self._outputs = [Output(port.shape, self.program.dtype) for port in bundle.outputs]

    def _call(self, arguments: list[np.ndarray]) -> list[np.ndarray]:
        try:
            return self._tools.simulate(self.program.path, arguments, self._outputs, _TIMEOUT)
        except ToolError as error:
            raise RunError(f"the simulator: {error}") from None
