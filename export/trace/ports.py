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
    kinds = _kinds(config)
    for kind in kinds:
        ports += [Port(f"cos{kind}", (1, half)), Port(f"sin{kind}", (1, half))]
    ports += [Port(f"mask{kind}", (1, _past(config, kind, context))) for kind in kinds]
    for layer in range(config.layers):
        past = config.past(layer, context)
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


def _kinds(config: DecoderConfig) -> tuple[str, ...]:
    """The kinds of layer that the model has, in the order of their ports."""
    sliding = {config.is_sliding(layer) for layer in range(config.layers)}
    return tuple(name for name, has in (("Global", False), ("Sliding", True)) if has in sliding)


def _past(config: DecoderConfig, kind: str, context: int) -> int:
    return min(context, config.window) if kind == "Sliding" else context


def step_arguments(
    config: DecoderConfig, values: Mapping[str, jax.Array]
) -> tuple[jax.Array, dict[str, LayerKind], tuple[Cached, ...]]:
    """Port values by name as the arguments that `decoder.step` takes after the weights."""
    kinds = {
        kind.lower(): LayerKind(
            RopeRow(values[f"cos{kind}"], values[f"sin{kind}"]), values[f"mask{kind}"]
        )
        for kind in _kinds(config)
    }
    cache = tuple(
        Cached(values[f"l{layer}.k"], values[f"l{layer}.v"]) for layer in range(config.layers)
    )
    return values["embedded"], kinds, cache


def step_results(result: StepResult) -> list[jax.Array]:
    """A step's result as a flat list in the order of `output_ports`."""
    return [result.logits, result.hidden, *(value for row in result.rows for value in row)]
