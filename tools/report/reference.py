"""The float32 reference: a checkpoint's own step in JAX, token after token, with its cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import jax
import numpy as np

from export.gguf.dense import dense
from export.gguf.reader import GgufFile
from export.models import decoder
from export.models.config import DecoderConfig
from export.trace import arguments, ports
from runtime.ports import CachePorts, position_values
from runtime.positions import LayerKind, Rope

# The reference runs on the CPU, and must not look for an accelerator.
jax.config.update("jax_platforms", "cpu")


class ReferenceDecoder:
    """Runs a decoder's step in float32, from position 0 on.

    weights: as `decoder.step` takes them, dense or packed.
    context: positions of the cache.
    """

    def __init__(
        self, gguf: GgufFile, config: DecoderConfig, weights: decoder.Weights, context: int
    ) -> None:
        self.config, self.position = config, 0
        self.inputs = ports.input_ports(config, context)
        self.outputs = ports.output_ports(config)
        kinds = [LayerKind(**asdict(kind)) for kind in ports.layer_kinds(config, context)]
        self._ropes = [Rope(**asdict(table)) for table in ports.rope_tables(config)]
        self._kinds = {kind.name: kind for kind in kinds}
        caches = ports.cache_ports(config)
        self._caches = [
            CachePorts(**asdict(cache) | {"kind": self._kinds[cache.kind]}) for cache in caches
        ]
        held = {cache.argument for cache in caches}
        self._cache = {
            port.name: np.zeros(port.shape, np.float32) for port in self.inputs if port.name in held
        }
        embedding = gguf.tensor("token_embd.weight")
        self._embedding = dense(embedding) * np.float32(config.embedding_scale)
        self._weights = jax.device_put(weights)
        self._step = jax.jit(self._results)

    def _results(
        self, weights: decoder.Weights, values: Mapping[str, jax.Array]
    ) -> Sequence[jax.Array]:
        taken = arguments.step_arguments(self.config, values)
        return arguments.step_results(decoder.step(self.config, weights, *taken))

    def port_values(self, token: int) -> dict[str, np.ndarray]:
        """The step's arguments for a token at the current position, by port, in contract order."""
        values = dict(self._cache)
        values["embedded"] = self._embedding[token][None, None]
        values |= position_values(self._ropes, self._kinds.values(), self.position)
        return {port.name: values[port.name] for port in self.inputs}

    def step(self, token: int) -> dict[str, np.ndarray]:
        """Runs one token, writes its K and V to the cache; returns the results by port."""
        results = self._step(self._weights, self.port_values(token))
        named = {
            port.name: np.asarray(value) for port, value in zip(self.outputs, results, strict=True)
        }
        for cache in self._caches:
            cache.write(self._cache[cache.argument], cache.kind.slot(self.position), named)
        self.position += 1
        return named
