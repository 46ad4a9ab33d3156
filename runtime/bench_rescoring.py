"""What rescoring costs a step on this machine.

    bazel run //runtime:bench_rescoring -- [--vocabulary=262144 --columns=640 --candidates=64]

Random logits, and random Q8_0 rows of the size of Gemma 3 270M's. Prints JSON: milliseconds a step
(median and 99th percentile), multiply-adds, and bytes of rows read.
"""

from __future__ import annotations

import json
import time

import numpy as np
from absl import app, flags
from gguf import quants
from gguf.constants import GGMLQuantizationType

from runtime.embedding import EmbeddingRows
from runtime.rescoring import Head

_VOCABULARY = flags.DEFINE_integer("vocabulary", 262_144, "Tokens.", lower_bound=1)
_COLUMNS = flags.DEFINE_integer("columns", 640, "Values of a row, a multiple of 32.")
_CANDIDATES = flags.DEFINE_integer("candidates", 64, "How many are computed again.", lower_bound=1)
_STEPS = flags.DEFINE_integer("steps", 200, "Steps that are measured.", lower_bound=1)


def main(_: list[str]) -> None:
    """Measures and prints."""
    random = np.random.default_rng(0)
    values = random.standard_normal((_VOCABULARY.value, _COLUMNS.value)).astype(np.float32)
    kind = GGMLQuantizationType.Q8_0
    rows = EmbeddingRows(quants.quantize(values, kind), kind, np.float32(1))
    mean = values.mean(axis=0)
    head = Head(rows=rows, mean=mean, cap=None, candidates=_CANDIDATES.value)
    milliseconds = []
    for _step in range(_STEPS.value):
        logits = random.standard_normal(_VOCABULARY.value).astype(np.float32)
        hidden = random.standard_normal(_COLUMNS.value).astype(np.float32)
        start = time.perf_counter()
        head.rescore(logits, hidden, _CANDIDATES.value)
        milliseconds.append(1000 * (time.perf_counter() - start))
    result = {
        "candidates": _CANDIDATES.value,
        "milliseconds_p50": float(np.percentile(milliseconds, 50)),
        "milliseconds_p99": float(np.percentile(milliseconds, 99)),
        "multiply_adds": _CANDIDATES.value * _COLUMNS.value,
        "bytes": _CANDIDATES.value * head.row_bytes,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    app.run(main)
