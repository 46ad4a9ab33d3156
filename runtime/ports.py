"""The ports of a step: which there are, and what the host gives to those of a position."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from runtime.errors import RunError
from runtime.positions import LayerKind


@dataclass(frozen=True)
class Port:
    """One argument or result of a step."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class CachePorts:
    """A layer's cache: the arguments, and the results that hold its new rows.

    axis: that of the positions, for K [kv_heads, head_dim, past] and V [kv_heads, past, head_dim].
    """

    argument: str
    row: str
    kind: LayerKind
    axis: int


def cache_ports(kinds: Mapping[str, LayerKind], layers: Sequence[str]) -> list[CachePorts]:
    """The caches of every layer, K before V."""
    return [
        CachePorts(f"l{layer}.{part}", f"l{layer}.{part}Row", kinds[name], axis)
        for layer, name in enumerate(layers)
        for part, axis in (("k", 2), ("v", 1))
    ]


def position_values(kinds: Iterable[LayerKind], position: int) -> dict[str, np.ndarray]:
    """RoPE rows and masks of a position by port, float32."""
    values = {}
    for kind in kinds:
        values[f"cos{kind.name}"], values[f"sin{kind.name}"] = kind.rope(position)
        values[f"mask{kind.name}"] = kind.mask(position)
    return values


def check_ports(
    manifest: Path,
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    kinds: Mapping[str, LayerKind],
    layers: Sequence[str],
) -> None:
    """Raises RunError unless the ports are just those that this runtime fills and reads."""
    if unknown := {str(name) for name in layers} - set(kinds):
        raise RunError(f"{manifest}: layers of unknown kind {', '.join(sorted(unknown))}")
    caches = cache_ports(kinds, layers)
    wanted_inputs = {"embedded", *position_values(kinds.values(), 0)}
    wanted_inputs |= {cache.argument for cache in caches}
    wanted_outputs = {"logits", "hidden"} | {cache.row for cache in caches}
    for place, ports, wanted in (
        ("inputs", inputs, wanted_inputs),
        ("outputs", outputs, wanted_outputs),
    ):
        names = [port.name for port in ports]
        if unknown := set(names) - wanted:
            raise RunError(
                f"{manifest}: {place}: unknown port {', '.join(sorted(unknown))}; this runtime "
                "does not know what to do with it, use one of the bundle's version"
            )
        if missing := wanted - set(names):
            raise RunError(f"{manifest}: {place}: no port {', '.join(sorted(missing))}")
        if len(names) != len(wanted):
            raise RunError(f"{manifest}: {place}: a port twice")
    shapes = {port.name: port.shape for port in (*inputs, *outputs)}
    for cache in caches:
        shape, row = shapes[cache.argument], shapes[cache.row]
        one = tuple(1 if axis == cache.axis else size for axis, size in enumerate(shape))
        if len(shape) != 3 or shape[cache.axis] != cache.kind.past or row != one:
            raise RunError(
                f"{manifest}: {cache.argument} {list(shape)} with {cache.row} {list(row)} is no "
                f"cache of {cache.kind.past} positions along axis {cache.axis}"
            )
