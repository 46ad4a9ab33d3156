"""The ports of an exported step: names, shapes and order, the contract of every later stage."""

from __future__ import annotations

from dataclasses import dataclass

from export.errors import ExportError
from export.models.config import DecoderConfig

# A dispatch of IREE's runtime, which Torq 2.3.0's is, has 64 bindings; all results are one of them
# (measured: "binding count 65 > 64" with 64 arguments).
MAX_ARGUMENTS = 63


@dataclass(frozen=True)
class Port:
    """One argument or result of the step: its name and shape."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class RopeTable:
    """The angles that a pair of ports is filled from.

    name: the suffix of the ports: that of the first kind of layer with these angles.
    frequencies: of position 1, in radians, [head_dim / 2].
    """

    name: str
    frequencies: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class KindOfLayer:
    """What the host must know to fill the ports of one kind of layer.

    name: "Global" or "Sliding", the suffix of its mask.
    past: rows of its caches, a ring: position p is written to row p % past.
    window: positions attended to, the current one included; None for all.
    rope: the name of its table.
    """

    name: str
    past: int
    window: int | None
    rope: str


@dataclass(frozen=True, kw_only=True)
class CachePort:
    """An argument that holds K or V, and the results that hold its new rows.

    argument: l<i>.k or l<i>.v, a layer's own; kGlobal and the like, those of all layers of a kind,
        their heads one layer after the other.
    rows: l<i>.kRow or l<i>.vRow of each of these layers.
    axis: that of the positions: K is [heads, head_dim, past], V [heads, past, head_dim].
    """

    argument: str
    rows: tuple[str, ...]
    kind: str
    axis: int


POSITION_AXIS = {"k": 2, "v": 1}


def rope_names(config: DecoderConfig) -> dict[str, str]:
    """The RoPE table of each kind of layer that the model has, in the order of their ports."""
    present = {config.kind(layer) for layer in range(config.layers)}
    names: dict[str, str] = {kind: kind for kind in ("Global", "Sliding") if kind in present}
    if len(names) == 2 and config.sliding and config.sliding.rope == config.rope:
        names["Sliding"] = "Global"
    return names


def rope_tables(config: DecoderConfig) -> tuple[RopeTable, ...]:
    """The tables that the kinds of layer name, in the order of their ports."""
    ropes = {"Global": config.rope}
    if config.sliding:
        ropes["Sliding"] = config.sliding.rope
    return tuple(
        RopeTable(name=name, frequencies=ropes[name].frequencies(config.head_dim))
        for name in dict.fromkeys(rope_names(config).values())
    )


def layer_kinds(config: DecoderConfig, context: int) -> tuple[KindOfLayer, ...]:
    """The kinds of layer that the model has, in the order of their ports."""
    windows = {"Global": None, "Sliding": config.sliding.window if config.sliding else None}
    return tuple(
        KindOfLayer(
            name=name, past=min(context, windows[name] or context), window=windows[name], rope=rope
        )
        for name, rope in rope_names(config).items()
    )


def port_groups(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    """The layers whose caches share a pair of ports, by the pair's name with {} for k or v."""
    names = rope_names(config)
    others = 1 + 2 * len(set(names.values())) + len(names)
    if others + 2 * config.layers <= MAX_ARGUMENTS:
        return {f"l{layer}.{{}}": (layer,) for layer in range(config.layers)}
    kinds = [config.kind(layer) for layer in range(config.layers)]
    return {
        f"{{}}{name}": tuple(layer for layer, kind in enumerate(kinds) if kind == name)
        for name in names
    }


def cache_ports(config: DecoderConfig) -> tuple[CachePort, ...]:
    """The caches, in the order of their ports.

    Each layer has its own, as long as a dispatch takes so many; a port of many layers costs the NPU
    nothing (measured: the same timeline).
    """
    return tuple(
        CachePort(
            argument=name.format(part),
            rows=tuple(f"l{layer}.{part}Row" for layer in layers),
            kind=config.kind(layers[0]),
            axis=axis,
        )
        for name, layers in port_groups(config).items()
        for part, axis in POSITION_AXIS.items()
    )


def input_ports(config: DecoderConfig, context: int) -> tuple[Port, ...]:
    """The step's arguments, in order.

    embedded [1, 1, hidden]; cos and sin rows [1, head_dim / 2] of each RoPE table; masks [1, past]
    of each kind of layer; then the caches, K [heads, head_dim, past] and V [heads, past, head_dim].

    Raises ExportError for a context that the model was not trained for.
    """
    if not 1 <= context <= config.context_length:
        raise ExportError(
            f"context={context}: 1 to {config.context_length} positions were expected, what this "
            "model was trained for"
        )
    half = config.head_dim // 2
    ports = [Port("embedded", (1, 1, config.hidden_size))]
    for table in rope_tables(config):
        ports += [Port(f"cos{table.name}", (1, half)), Port(f"sin{table.name}", (1, half))]
    kinds = layer_kinds(config, context)
    ports += [Port(f"mask{kind.name}", (1, kind.past)) for kind in kinds]
    past_of = {kind.name: kind.past for kind in kinds}
    for cache in cache_ports(config):
        shape = [len(cache.rows) * config.kv_heads, config.head_dim, config.head_dim]
        shape[cache.axis] = past_of[cache.kind]
        ports.append(Port(cache.argument, tuple(shape)))
    return tuple(ports)


def output_ports(config: DecoderConfig) -> tuple[Port, ...]:
    """The step's results, in order: logits, the hidden state, and each layer's new K and V row."""
    ports = [
        Port("logits", (1, 1, config.vocabulary)),
        Port("hidden", (1, 1, config.hidden_size)),
    ]
    for layer in range(config.layers):
        ports.append(Port(f"l{layer}.kRow", (config.kv_heads, config.head_dim, 1)))
        ports.append(Port(f"l{layer}.vRow", (config.kv_heads, 1, config.head_dim)))
    return tuple(ports)
