"""Runs a bundle's program in the simulator beside the float32 reference, and compares.

report --gguf=FILE --bundle=FOLDER --tools=FOLDER --token=ID … --report=OUT.json

The reference runs all tokens but the last; the simulator then runs the last one on the reference's
cache, rounded to bf16, so that what is compared is one step and not a drift.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from absl import flags, logging

from export import cli
from export.errors import ExportError
from export.gguf import reader
from export.models import gemma3
from export.trace.weights import dense_weights
from third_party.torq.torq_tools import Output, TorqTools
from tools.report.reference import ReferenceDecoder

_GGUF = flags.DEFINE_string("gguf", None, "The checkpoint.", required=True)
_BUNDLE = flags.DEFINE_string("bundle", None, "The bundle.", required=True)
_TOOLS = flags.DEFINE_string("tools", None, "The folder of torq-run-module.", required=True)
_TOKEN = flags.DEFINE_multi_integer("token", [], "The tokens, in order.")
_REPORT = flags.DEFINE_string("report", None, "Where the JSON goes.", required=True)
_MIN_ROW_COSINE = flags.DEFINE_float(
    "min_row_cosine", 0.999, "The lowest cosine of a K or V row that passes."
)
_TIMEOUT = flags.DEFINE_float("timeout", 3600, "Seconds that the simulator may take.")

_BF16 = np.dtype(ml_dtypes.bfloat16)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    """Cosine similarity of two arrays as vectors, in float64; NaN where either holds NaN or is 0."""
    x, y = a.astype(np.float64).ravel(), b.astype(np.float64).ravel()
    with np.errstate(invalid="ignore"):
        return float(x @ y / (np.linalg.norm(x) * np.linalg.norm(y)))


def compare(outputs: dict[str, np.ndarray], reference: dict[str, np.ndarray]) -> dict[str, Any]:
    """Agreement of a step's results with the reference, as JSON values."""
    rows = {name: cosine(outputs[name], reference[name]) for name in outputs if "Row" in name}
    ours, theirs = (values["logits"].astype(np.float64).ravel() for values in (outputs, reference))
    best = [set(np.argsort(-values)[:10].tolist()) for values in (ours, theirs)]
    return {
        "logits_cosine": cosine(ours, theirs),
        "hidden_cosine": cosine(outputs["hidden"], reference["hidden"]),
        "same_top_1": bool(ours.argmax() == theirs.argmax()),
        "of_top_10": len(best[0] & best[1]),
        "lowest_k_cosine": min(value for name, value in rows.items() if "kRow" in name),
        "lowest_v_cosine": min(value for name, value in rows.items() if "vRow" in name),
        "row_cosines": rows,
    }


def simulated_step(
    bundle: Path, values: dict[str, np.ndarray], tools: TorqTools, timeout: float
) -> dict[str, np.ndarray]:
    """Runs a bundle's program once in the simulator; port values by name, any float dtype."""
    manifest = json.loads((bundle / "manifest.json").read_text("utf-8"))
    inputs = [values[port["name"]].astype(_BF16) for port in manifest["inputs"]]
    outputs = [Output(tuple(port["shape"]), _BF16) for port in manifest["outputs"]]
    results = tools.simulate(bundle / manifest["program"]["file"], inputs, outputs, timeout)
    return {
        port["name"]: result
        for port, result in zip(manifest["outputs"], results, strict=True)
    }


def main() -> None:
    """Compares one step and writes the report; a gate that fails ends it with status 1."""
    gguf = reader.read(Path(_GGUF.value))
    config = gemma3.read_config(gguf)
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
    lowest = min(report["lowest_k_cosine"], report["lowest_v_cosine"])
    if not lowest >= _MIN_ROW_COSINE.value:
        raise ExportError(
            f"the lowest cosine of a K or V row is {lowest:.6f}; {_MIN_ROW_COSINE.value} was "
            f"expected: {json.dumps(report)}"
        )
    cli.write_json(Path(_REPORT.value), report)


if __name__ == "__main__":
    cli.run("report", main)
