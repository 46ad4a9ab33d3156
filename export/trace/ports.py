"""The ports of an exported step: names, shapes and order, the contract of every later stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax

from export.errors import ExportError
from export.models.config import DecoderConfig
from export.models.decoder import Cached, LayerKind, RopeRow, StepResult


@dataclass(frozen=True)
class Port:
    """One argument or result of the step: its name and shape."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class KindOfLayer:
    """What the host must know to fill the ports of one kind of layer.

    name: "Global" or "Sliding", the suffix of its ports.
    past: rows of its caches, a ring: position p is written to row p % past.
    window: positions attended to, the current one included; None for all.
    rope_base, rope_scale: angles are position * base^(-2i / head_dim) / scale.
    """

    name: str
    head_dim: int
    past: int
    window: int | None
    rope_base: float
    rope_scale: float


def layer_kinds(config: DecoderConfig, context: int) -> tuple[KindOfLayer, ...]:
    """The kinds of layer that the model has, in the order of their ports."""
    sliding = {config.is_sliding(layer) for layer in range(config.layers)}
    kinds = []
    if False in sliding:
        kinds.append(
            KindOfLayer(
                name="Global",
                head_dim=config.head_dim,
                past=context,
                window=None,
                rope_base=config.rope_base,
                rope_scale=config.rope_scale,
            )
        )
    if True in sliding:
        kinds.append(
            KindOfLayer(
                name="Sliding",
                head_dim=config.head_dim,
                past=min(context, config.window),
                window=config.window,
                rope_base=config.rope_base_sliding,
                rope_scale=1.0,
            )
        )
    return tuple(kinds)


def input_ports(config: DecoderConfig, context: int) -> tuple[Port, ...]:
    """The step's arguments, in order.

    embedded [1, 1, hidden]; cos and sin rows [1, head_dim / 2] and masks [1, past] of each kind of
    layer; then K [kv_heads, head_dim, past] and V [kv_heads, past, head_dim] of every layer.

    Raises ExportError for a context that the model was not trained for.
    """
    if not 1 <= context <= config.context_length:
        raise ExportError(
            f"context={context}: 1 to {config.context_length} positions were expected, what this "
            "model was trained for"
        )
    half = config.head_dim // 2
    ports = [Port("embedded", (1, 1, config.hidden_size))]
    kinds = layer_kinds(config, context)
    for kind in kinds:
        ports += [Port(f"cos{kind.name}", (1, half)), Port(f"sin{kind.name}", (1, half))]
    ports += [Port(f"mask{kind.name}", (1, kind.past)) for kind in kinds]
    past_of = {kind.name: kind.past for kind in kinds}
    for layer in range(config.layers):
        past = past_of[config.kind(layer)]
        ports.append(Port(f"l{layer}.k", (config.kv_heads, config.head_dim, past)))
        ports.append(Port(f"l{layer}.v", (config.kv_heads, past, config.head_dim)))
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


def step_arguments(
    config: DecoderConfig, values: Mapping[str, jax.Array]
) -> tuple[jax.Array, dict[str, LayerKind], tuple[Cached, ...]]:
    """Port values by name as the arguments that `decoder.step` takes after the weights."""
    kinds = {
        name: LayerKind(RopeRow(values[f"cos{name}"], values[f"sin{name}"]), values[f"mask{name}"])
        for name in ("Global", "Sliding")
        if f"mask{name}" in values
    }
    cache = tuple(
        Cached(values[f"l{layer}.k"], values[f"l{layer}.v"]) for layer in range(config.layers)
    )
    return values["embedded"], kinds, cache


def step_results(result: StepResult) -> list[jax.Array]:
    """A step's result as a flat list in the order of `output_ports`."""
    return [result.logits, result.hidden, *(value for row in result.rows for value in row)]
