"""Measures what a checkpoint's matrices are given on a text: the importance matrix.

importance --gguf=FILE --text=FILE … --matrix=PATTERN … --output=OUT.npz

The second moment E[x x^T] of each input over all positions, in float32 arithmetic on the file's own
weights. What llama.cpp calls an importance matrix is its diagonal.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from absl import flags

from export import cli
from export.errors import ExportError
from export.gguf import reader
from export.models import sequence
from export.models.config import DecoderConfig
from export.models.decoder import Weights
from export.models.read import read_config
from export.trace.importance import write_importance
from export.trace.packing import input_name, matches, matrix_slots
from export.trace.weights import dense_weights
from tools.texts import embed, read_texts, tokenizer_of

_GGUF = flags.DEFINE_string("gguf", None, "The checkpoint.", required=True)
_TEXT = flags.DEFINE_multi_string("text", [], "A file of text.")
_MATRIX = flags.DEFINE_multi_string("matrix", ["output"], "Whose inputs: `output`, `attn_q`, …")
_OUTPUT = flags.DEFINE_string("output", None, "Where the matrix goes.", required=True)
_POSITIONS = flags.DEFINE_integer("positions", 1024, "Where a text is cut.")


def moments(
    config: DecoderConfig, weights: Weights, texts: Sequence[np.ndarray], wanted: Sequence[str]
) -> dict[str, np.ndarray]:
    """float64 [k, k] by input, of texts as scaled embeddings, float32 [positions, hidden_size]."""
    sums: dict[str, np.ndarray] = {}
    for embedded in texts:
        found = sequence.run(config, weights, embedded, wanted)
        for name, given in {**found.inputs, "output": found.hidden}.items():
            if name in wanted:
                rows = np.asarray(given)
                sums[name] = sums.get(name, np.float64(0)) + rows.T @ rows
    positions = sum(map(len, texts))
    return {name: total / positions for name, total in sums.items()}


def main() -> None:
    """Measures and writes."""
    gguf = reader.read(Path(_GGUF.value))
    config = read_config(gguf)
    names = [slot.name for slot in matrix_slots(config)]
    chosen = [name for name in names if any(matches(p, name) for p in _MATRIX.value)]
    if not chosen:
        raise ExportError(f"no matrix matches {_MATRIX.value}; the model has {', '.join(names)}")
    wanted = list(dict.fromkeys(map(input_name, chosen)))
    texts = read_texts(tokenizer_of(gguf), [Path(p) for p in _TEXT.value], _POSITIONS.value)
    embedded = embed(gguf, config, texts)
    found = moments(config, dense_weights(gguf, config), embedded, wanted)
    write_importance(Path(_OUTPUT.value), found)


if __name__ == "__main__":
    cli.run("importance", main)
