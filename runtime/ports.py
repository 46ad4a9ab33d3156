"""The ports of a step: which there are, and what the host gives to those of a position."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from runtime.errors import RunError
from runtime.positions import LayerKind, Rope


@dataclass(frozen=True)
class Port:
    """One argument or result of a step."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class CachePorts:
    """An argument that holds K or V of some layers, and the results that hold their new rows.

    rows: by layer; the layers' heads lie one after the other along the argument's first axis.
    axis: that of the positions, for K [heads, head_dim, past] and V [heads, past, head_dim].
    """

    argument: str
    rows: tuple[str, ...]
    kind: LayerKind
    axis: int

    def slots(self, start: int, stop: int) -> tuple[slice, ...]:
        """The index of a range of slots in the argument."""
        return tuple(slice(start, stop) if axis == self.axis else slice(None) for axis in range(3))

    def write(self, value: np.ndarray, slot: int, results: Mapping[str, np.ndarray]) -> None:
        """Writes each layer's new row to a slot of the argument's value."""
        for row, layer in zip(self.rows, np.split(value, len(self.rows)), strict=True):
            layer[self.slots(slot, slot + 1)] = results[row]


def position_values(
    ropes: Iterable[Rope], kinds: Iterable[LayerKind], position: int
) -> dict[str, np.ndarray]:
    """RoPE rows and masks of a position by port, float32."""
    values = {}
    for rope in ropes:
        values[f"cos{rope.name}"], values[f"sin{rope.name}"] = rope.row(position)
    for kind in kinds:
        values[f"mask{kind.name}"] = kind.mask(position)
    return values


def check_ports(
    manifest: Path,
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    ropes: Sequence[Rope],
    kinds: Sequence[LayerKind],
    caches: Sequence[CachePorts],
) -> None:
    """Raises RunError unless the ports are just those that this runtime fills and reads."""
    wanted_inputs = ["embedded", *position_values(ropes, kinds, 0)]
    wanted_inputs += [cache.argument for cache in caches]
    wanted_outputs = ["logits", "hidden"] + [row for cache in caches for row in cache.rows]
    for place, ports, wanted in (
        ("inputs", inputs, wanted_inputs),
        ("outputs", outputs, wanted_outputs),
    ):
        names = [port.name for port in ports]
        if unknown := set(names) - set(wanted):
            raise RunError(
                f"{manifest}: {place}: unknown port {', '.join(sorted(unknown))}; this runtime "
                "does not know what to do with it, use one of the bundle's version"
            )
        if missing := set(wanted) - set(names):
            raise RunError(f"{manifest}: {place}: no port {', '.join(sorted(missing))}")
        if len(names) != len(wanted):
            raise RunError(f"{manifest}: {place}: a port twice")
    shapes = {port.name: port.shape for port in (*inputs, *outputs)}
    for cache in caches:
        shape = shapes[cache.argument]
        row = [size // len(cache.rows) if axis == 0 else size for axis, size in enumerate(shape)]
        if len(shape) == 3:
            row[cache.axis] = 1
        if (
            len(shape) != 3
            or shape[cache.axis] != cache.kind.past
            or shape[0] % len(cache.rows)
            or any(shapes[name] != tuple(row) for name in cache.rows)
        ):
            raise RunError(
                f"{manifest}: {cache.argument} {list(shape)} with {cache.rows[0]} "
                f"{list(shapes[cache.rows[0]])} is no cache of {cache.kind.past} positions along "
                f"axis {cache.axis} for {len(cache.rows)} layers"
            )
