"""Runs a bundle's program in the simulator beside the float32 reference, and compares.

report --gguf=FILE --bundle=FOLDER --tools=FOLDER --token=ID … --report=OUT.json

The reference runs all tokens but the last; the simulator then runs the last one on the reference's
cache, rounded to bf16, so that what is compared is one step and not a drift.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
from absl import flags, logging

from export import cli
from export.errors import ExportError
from export.gguf import reader
from export.models.read import read_config
from export.trace.weights import dense_weights
from third_party.torq.torq_tools import TorqTools
from tools.report.compare import compare, simulated_step
from tools.report.reference import ReferenceDecoder

_GGUF = flags.DEFINE_string("gguf", None, "The checkpoint.", required=True)
_BUNDLE = flags.DEFINE_string("bundle", None, "The bundle.", required=True)
_TOOLS = flags.DEFINE_string("tools", None, "The folder of torq-run-module.", required=True)
_TOKEN = flags.DEFINE_multi_integer("token", [], "The tokens, in order.")
_REPORT = flags.DEFINE_string("report", None, "Where the JSON goes.", required=True)
_MIN_COSINE = flags.DEFINE_float(
    "min_cosine", 0.999, "The lowest cosine that passes, of K and V rows, hidden and logits."
)
_TIMEOUT = flags.DEFINE_float("timeout", 3600, "Seconds that the simulator may take.")


def main() -> None:
    """Compares one step and writes the report; a gate that fails ends it with status 1."""
    gguf = reader.read(Path(_GGUF.value))
    config = read_config(gguf)
    bundle = Path(_BUNDLE.value)
    context = json.loads((bundle / "manifest.json").read_text("utf-8"))["context"]
    reference = ReferenceDecoder(gguf, config, dense_weights(gguf, config), context)
    *prompt, token = _TOKEN.value
    for past in prompt:
        reference.step(past)
    values = reference.port_values(token)
    logging.info("simulating one step at position %d", reference.position)
    started = time.monotonic()
    outputs = simulated_step(bundle, values, TorqTools(Path(_TOOLS.value)), _TIMEOUT.value)
    logging.info("simulated in %.0f s", time.monotonic() - started)
    report = {
        "position": reference.position,
        "reference": "float32 arithmetic on the checkpoint's own weights",
        "device": "simulator of torq-runtime; a board was not measured",
        **compare(outputs, reference.step(token)),
    }
    gated = ("lowest_k_cosine", "lowest_v_cosine", "hidden_cosine", "logits_cosine")
    # numpy's min, unlike Python's, is NaN where one of the values is.
    lowest = float(np.min([report[name] for name in gated]))
    if not lowest >= _MIN_COSINE.value:
        raise ExportError(
            f"the lowest cosine of K, V, hidden, logits is {lowest:.6f}; {_MIN_COSINE.value} was "
            f"expected: {json.dumps(report)}"
        )
    cli.write_json(Path(_REPORT.value), report)


if __name__ == "__main__":
    cli.run("report", main)
