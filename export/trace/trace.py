"""Traces one decode step of a GGUF checkpoint to StableHLO.

trace --gguf=FILE --context=N --module=OUT.mlirbc --description=OUT.json
"""

from __future__ import annotations

from pathlib import Path

from absl import flags

from export import cli
from export.gguf import reader
from export.gguf.forms import QUANTISE_TYPES
from export.models.read import read_config
from export.trace import lower
from export.trace.description import describe
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
_MODULE = flags.DEFINE_string("module", None, "Where the bytecode goes.", required=True)
_DESCRIPTION = flags.DEFINE_string("description", None, "Where the JSON goes.", required=True)


def main() -> None:
    """Reads, packs, traces and writes."""
    gguf = reader.read(Path(_GGUF.value))
    config = read_config(gguf)
    packing = Packing(requantise=_REQUANTISE.value, quantise=_QUANTISE.value, head=_HEAD.value)
    weights = packed_weights(gguf, config, packing)
    module = lower.trace(config, _CONTEXT.value, weights)
    lower.write_bytecode(module, Path(_MODULE.value))
    cli.write_json(Path(_DESCRIPTION.value), describe(config, _CONTEXT.value, packing, weights))


if __name__ == "__main__":
    cli.run("trace", main)
