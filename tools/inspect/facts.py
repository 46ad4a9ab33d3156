"""What a survey says of a checkpoint, as JSON values with stable keys."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from export.models.config import DecoderConfig, Rope
from export.trace import packing as plan
from export.trace.ports import MAX_ARGUMENTS, cache_ports, input_ports, layer_kinds
from tools.inspect.estimate import Load, errors
from tools.inspect.survey import Survey

NOT_READ = "tensors' data are not read: a scale that is NaN or infinite is found by the build"
UNIT = "units of torq-compile's timeline, not calibrated to a board"
_BF16_BYTES = 2

_SIZE_KEYS = {
    "layers": "block_count",
    "hidden_size": "embedding_length",
    "ffn_size": "feed_forward_length",
    "heads": "attention.head_count",
    "kv_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "context_length": "context_length",
}


def facts(found: Survey) -> dict[str, Any]:
    """Everything, by stable keys; what cannot be known of a file that is refused is None."""
    known = _step(found, found.config) if found.config and not found.reasons else None
    return {
        "file": str(found.gguf.path),
        "file_bytes": found.gguf.path.stat().st_size,
        "torq_can_take_it": not found.reasons,
        "reasons": list(found.reasons),
        "model": _model(found),
        "packing": asdict(found.packing),
        "tensors": _tensors(found),
        "step": known,
        "not_checked": NOT_READ,
    }


def _model(found: Survey) -> dict[str, Any]:
    tensors, config = found.gguf.tensors, found.config
    said = found.vocabulary.description if found.vocabulary else {}
    sliding = config.sliding if config else None
    embedding = tensors.get(plan.EMBEDDING)
    return {
        "name": _text(found, "general.name"),
        "architecture": _text(found, "general.architecture"),
        "licence": _text(found, "general.license"),
        "parameters": sum(math.prod(tensor.shape) for tensor in tensors.values()),
        **{size: _size(found, size, key) for size, key in _SIZE_KEYS.items()},
        "vocabulary": embedding.shape[0] if embedding else None,
        "own_head": plan.HEAD in tensors,
        "window": sliding.window if sliding else None,
        "sliding_layers": sum(sliding.layers[: config.layers]) if sliding and config else 0,
        "ropes": _ropes(config) if config else [],
        "tokenizer": said.get("kind"),
        "tokenizer_in_file": _text(found, "tokenizer.ggml.model"),
        "chat_template": _text(found, "tokenizer.chat_template") is not None,
    }


def _text(found: Survey, key: str) -> str | None:
    said = found.gguf.metadata.get(key)
    return said if isinstance(said, str) else None


def _size(found: Survey, size: str, key: str) -> int | None:
    """A hyperparameter, or what the file says where they cannot all be read."""
    if found.config:
        return int(getattr(found.config, size))
    said = found.gguf.metadata.get(f"{_text(found, 'general.architecture')}.{key}")
    return said if isinstance(said, int) else None


def _ropes(config: DecoderConfig) -> list[dict[str, Any]]:
    """The angles of each kind of layer that there is."""
    kinds = {config.kind(layer) for layer in range(config.layers)}
    ropes: dict[str, Rope] = {"Global": config.rope}
    if config.sliding:
        ropes["Sliding"] = config.sliding.rope
    return [
        {"layers": kind, "base": rope.base, "scale": rope.scale, "factors": len(rope.factors)}
        for kind, rope in ropes.items()
        if kind in kinds
    ]


def _tensors(found: Survey) -> list[dict[str, Any]]:
    """Counts by type in the file, by what becomes of it, and by type in the program."""
    groups: dict[tuple[str, str, str | None], list[int]] = {}
    becomes = dict(_becomes(found))
    for name, tensor in found.gguf.tensors.items():
        fate, packed = becomes.get(name, ("unknown", None))
        group = groups.setdefault((tensor.type.name, fate, packed), [0, 0, 0])
        for index, more in enumerate((1, math.prod(tensor.shape), tensor.data.nbytes)):
            group[index] += more
    return [
        {
            "file_type": file_type,
            "becomes": fate,
            "packed_type": packed,
            "count": count,
            "values": values,
            "file_bytes": size,
        }
        for (file_type, fate, packed), (count, values, size) in groups.items()
    ]


def _becomes(found: Survey) -> Iterator[tuple[str, tuple[str, str | None]]]:
    """What becomes of each tensor, and its type in the program."""
    yield plan.EMBEDDING, ("embedding", None)
    yield plan.ROPE_FACTORS, ("rope", None)
    for name, tensor in found.gguf.tensors.items():
        if found.config is None and len(tensor.shape) == 1:
            yield name, ("dense", None)
    if found.config:
        for slot in plan.vector_slots(found.config):
            yield slot.tensor, ("dense", None)
    for matrix in found.matrices:
        if matrix.kind is None:
            fate = "refused"
        elif matrix.kind == matrix.tensor.type:
            fate = "packed"
        else:
            fate = "requantised" if found.packing.forced(matrix.slot.name) else "quantised"
        yield matrix.tensor.name, (fate, matrix.kind.name if matrix.kind else None)


def _step(found: Survey, config: DecoderConfig) -> dict[str, Any]:
    """The program of a file that is not refused."""
    context = found.context
    caches = cache_ports(config)
    names = {cache.argument for cache in caches}
    ports = input_ports(config, context)
    past = {kind.name: kind.past for kind in layer_kinds(config, context)}
    load = Load(
        layers=config.layers,
        packed=sum(matrix.bytes for matrix in found.matrices),
        caches=sum(math.prod(port.shape) for port in ports if port.name in names) * _BF16_BYTES,
        scores=config.heads * sum(past[config.kind(layer)] for layer in range(config.layers)),
    )
    return {
        "context": context,
        "fusions": len(found.matrices),
        "parts": sum(len(matrix.parts) for matrix in found.matrices),
        "arguments": len(ports),
        "most_arguments": MAX_ARGUMENTS,
        "stacked_caches": any(len(cache.rows) > 1 for cache in caches),
        "packed_bytes": load.packed,
        "embedding_bytes": found.gguf.tensor(plan.EMBEDDING).data.nbytes,
        "cache_bytes": load.caches,
        "estimate": {
            "program_bytes": load.program,
            "dma_units": load.dma,
            "end_units": load.end,
            "unit": UNIT,
            "off_by": [asdict(error) for error in errors()],
        },
    }
