"""What every backend is: something that runs one step and keeps the cache of a conversation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from runtime.bundle import Bundle, Program
from runtime.cache import Cache
from runtime.errors import RunError
from runtime.ports import position_values


@dataclass(frozen=True, eq=False)
class StepResult:
    """logits: float32 [vocabulary]; hidden: float32 [hidden_size], after the last norm."""

    logits: np.ndarray
    hidden: np.ndarray


class Backend(ABC):
    """Runs a bundle's step, token after token, with the cache of one conversation.

    cache: the host's copy, whole after every step, so that a session can always be saved.
    """

    def __init__(self, bundle: Bundle, program: Program) -> None:
        self.bundle, self.program = bundle, program
        self.cache = Cache(bundle, program.dtype)

    def step(self, embedded: np.ndarray, position: int) -> StepResult:
        """Runs one token: its embedding float32 [hidden_size] at a position.

        Raises RunError where the position is beyond the context, or the machine is lost.
        """
        if not 0 <= position < self.bundle.context:
            raise RunError(
                f"position {position} is outside of the context of {self.bundle.context}"
            )
        values = position_values(self.bundle.ropes, self.bundle.kinds.values(), position)
        values["embedded"] = embedded[None, None]
        dtype = self.program.dtype
        results = self._run({name: value.astype(dtype) for name, value in values.items()}, position)
        self.cache.write(position, results)
        return StepResult(*(_flat(results[name]) for name in ("logits", "hidden")))

    @abstractmethod
    def _run(self, values: Mapping[str, np.ndarray], position: int) -> Mapping[str, np.ndarray]:
        """The results of one step by port; values: every port but the caches."""

    def cache_changed(self) -> None:
        """Called when the host's cache was written by something other than a step."""
        return

    def close(self) -> None:
        """Lets go of the machine."""
        return


class HostBackend(Backend):
    """A backend that is given the whole cache with each step."""

    def _run(self, values: Mapping[str, np.ndarray], _position: int) -> Mapping[str, np.ndarray]:
        arguments = {**self.cache.values, **values}
        results = self._call([arguments[port.name] for port in self.bundle.inputs])
        return {
            port.name: result for port, result in zip(self.bundle.outputs, results, strict=True)
        }

    @abstractmethod
    def _call(self, arguments: list[np.ndarray]) -> list[np.ndarray]:
        """The results of the program, in order of its ports."""


def _flat(value: np.ndarray) -> np.ndarray:
    return value.astype(np.float32).ravel()
