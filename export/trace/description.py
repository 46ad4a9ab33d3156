"""What a traced step is, as JSON: the part of the manifest that is known before compilation."""

from __future__ import annotations

import importlib.metadata
from dataclasses import asdict
from typing import Any

from export.models.config import DecoderConfig
from export.trace.packing import Packing
from export.trace.ports import cache_ports, input_ports, layer_kinds, output_ports, rope_tables
from export.trace.weights import StepWeights


def describe(
    config: DecoderConfig, context: int, packing: Packing, weights: StepWeights
) -> dict[str, Any]:
    """Model, context, kinds of layers, ports in order, and what became of each tensor."""
    return {
        "model": asdict(config),
        "context": context,
        "packing": asdict(packing) | {"projections": dict(packing.projections)},
        "head": {
            "tensor": config.head,
            "mean": None if weights.head_mean is None else weights.head_mean.tolist(),
            "cap": config.logit_cap,
        },
        "ropes": [asdict(table) for table in rope_tables(config)],
        "layer_kinds": [asdict(kind) for kind in layer_kinds(config, context)],
        "caches": [asdict(cache) for cache in cache_ports(config)],
        "inputs": [_port(port.name, port.shape) for port in input_ports(config, context)],
        "outputs": [_port(port.name, port.shape) for port in output_ports(config)],
        "tensors": [asdict(record) | {"shape": [*record.shape]} for record in weights.records],
        "fusions": weights.projections,
        "tools": {
            name: importlib.metadata.version(name) for name in ("gguf", "jax", "jaxlib", "numpy")
        },
    }


def _port(name: str, shape: tuple[int, ...]) -> dict[str, Any]:
    return {"name": name, "shape": list(shape)}
