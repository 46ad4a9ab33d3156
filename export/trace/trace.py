"""Traces one decode step of a GGUF checkpoint to StableHLO.

trace --gguf=FILE --context=N --module=OUT.mlirbc --description=OUT.json
"""

from __future__ import annotations

from pathlib import Path

from absl import flags

from export import cli
from export.gguf import reader
from export.gguf.forms import GPTQ, QUANTISE_TYPES
from export.models.read import read_config
from export.trace import lower
from export.trace.description import describe
from export.trace.importance import read_importance
from export.trace.packing import Packing
from export.trace.weights import packed_weights

_GGUF = flags.DEFINE_string("gguf", None, "The checkpoint.", required=True)
_CONTEXT = flags.DEFINE_integer("context", None, "Positions of the cache.", required=True)
_REQUANTISE = flags.DEFINE_string(
    "requantise", "", f"Bring every projection to this block type ({', '.join(QUANTISE_TYPES)})."
)
_QUANTISE = flags.DEFINE_string(
    "quantise", "Q8_0", "The block type for projections that have no packed form of their own."
)
_HEAD = flags.DEFINE_string("head", "", "The block type of the head; as the projections if empty.")
_PROJECTION = flags.DEFINE_multi_string("projection", [], "PATTERN=TYPE: a block type for some.")
_IMPORTANCE = flags.DEFINE_string("importance", "", f"The importance matrix that {GPTQ} needs.")
_MODULE = flags.DEFINE_string("module", None, "Where the bytecode goes.", required=True)
_DESCRIPTION = flags.DEFINE_string("description", None, "Where the JSON goes.", required=True)


def main() -> None:
    """Reads, packs, traces and writes."""
    gguf = reader.read(Path(_GGUF.value))
    config = read_config(gguf)
    packing = Packing(
        requantise=_REQUANTISE.value.upper(),
        quantise=_QUANTISE.value.upper(),
        head=_HEAD.value.upper(),
        projections=tuple(_projection(item) for item in _PROJECTION.value),
    )
    importance = read_importance(Path(_IMPORTANCE.value)) if _IMPORTANCE.value else {}
    weights = packed_weights(gguf, config, packing, importance)
    module = lower.trace(config, _CONTEXT.value, weights)
    lower.write_bytecode(module, Path(_MODULE.value))
    cli.write_json(Path(_DESCRIPTION.value), describe(config, _CONTEXT.value, packing, weights))


def _projection(item: str) -> tuple[str, str]:
    pattern, _, kind = item.rpartition("=")
    return pattern, kind.upper()


if __name__ == "__main__":
    cli.run("trace", main)
