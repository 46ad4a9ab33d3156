"""Steps of a bundle's program in the simulator, beside the bf16 stage at the same positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from export.errors import ExportError
from export.models.sequence import SequenceResult
from runtime.bundle import Bundle
from runtime.ports import position_values
from third_party.torq.torq_tools import TorqTools
from tools.report.compare import compare, simulated_step
from tools.texts import Text

Json = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """A position of a text, by the texts' order."""

    text: int
    position: int

    @classmethod
    def parse(cls, spelled: str, texts: Sequence[Text], context: int) -> Place:
        """From NAME:POSITION; ExportError where there is no such place, or no room for it."""
        name, _, position = spelled.rpartition(":")
        names = [text.name for text in texts]
        if name not in names or not position.isdecimal():
            raise ExportError(f"step {spelled!r}: NAME:POSITION with one of {', '.join(names)}")
        place = cls(names.index(name), int(position))
        if place.position >= min(context, len(texts[place.text].tokens)):
            raise ExportError(
                f"step {spelled}: the text has {len(texts[place.text].tokens)} tokens, the bundle "
                f"{context} positions"
            )
        return place


def port_values(
    bundle: Bundle, result: SequenceResult, embedded: np.ndarray, position: int
) -> dict[str, np.ndarray]:
    """A step's arguments by port: what the cache holds after the positions before it.

    embedded: the position's own, [hidden_size].
    """
    values = {port.name: np.zeros(port.shape, np.float32) for port in bundle.inputs}
    for before in range(position):
        rows = step_rows(bundle, result, before)
        for cache in bundle.caches:
            cache.write(values[cache.argument], cache.kind.slot(before), rows)
    values |= position_values(bundle.ropes, bundle.kinds.values(), position)
    values["embedded"] = embedded[None, None]
    return values


def step_rows(bundle: Bundle, result: SequenceResult, position: int) -> dict[str, np.ndarray]:
    """The K and V rows of one position by port, float32."""
    shapes = {port.name: port.shape for port in bundle.outputs}
    rows = {}
    for part, layers in (("k", result.k), ("v", result.v)):
        for layer, value in enumerate(layers):
            name = f"l{layer}.{part}Row"
            rows[name] = np.asarray(value[position], np.float32).reshape(shapes[name])
    return rows


def simulate(
    folder: Path, values: Sequence[dict[str, np.ndarray]], tools: TorqTools, timeout: float
) -> list[dict[str, np.ndarray]]:
    """The results of steps by port, in the order of their arguments."""
    return [simulated_step(folder, given, tools, timeout) for given in values]


def compared(
    text: str, place: Place, found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]
) -> Json:
    """One simulated step beside the bf16 stage."""
    at = {"text": text, "position": place.position, "reference": "bf16"}
    return at | compare(found, wanted)


def sound(results: Sequence[dict[str, np.ndarray]]) -> bool:
    """Whether every result is finite, none is all zero, and no two steps have the same logits."""
    values = [value.astype(np.float32) for found in results for value in found.values()]
    finite = all(np.isfinite(value).all() for value in values)
    filled = all(value.any() for value in values)
    logits = [found["logits"].tobytes() for found in results]
    return finite and filled and len(set(logits)) == len(logits)
