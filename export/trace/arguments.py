"""Port values as what `decoder.step` takes, and what it gives as port values."""

from __future__ import annotations

from collections.abc import Mapping

import jax

from export.models.config import DecoderConfig
from export.models.decoder import Cached, LayerKind, RopeRow, StepResult
from export.trace.ports import POSITION_AXIS, port_groups, rope_names


def step_arguments(
    config: DecoderConfig, values: Mapping[str, jax.Array]
) -> tuple[jax.Array, dict[str, LayerKind], tuple[Cached, ...]]:
    """Port values by name as the arguments that `decoder.step` takes after the weights."""
    kinds = {
        name: LayerKind(RopeRow(values[f"cos{rope}"], values[f"sin{rope}"]), values[f"mask{name}"])
        for name, rope in rope_names(config).items()
    }
    cache: dict[int, Cached] = {}
    for name, layers in port_groups(config).items():
        k, v = (values[name.format(part)] for part in POSITION_AXIS)
        for index, layer in enumerate(layers):
            heads = slice(index * config.kv_heads, (index + 1) * config.kv_heads)
            cache[layer] = Cached(k[heads], v[heads])
    return values["embedded"], kinds, tuple(cache[layer] for layer in range(config.layers))


def step_results(result: StepResult) -> list[jax.Array]:
    """A step's result as a flat list in the order of `output_ports`."""
    return [result.logits, result.hidden, *(value for row in result.rows for value in row)]
