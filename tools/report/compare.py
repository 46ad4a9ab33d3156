"""Runs a bundle's program in the simulator, and compares a step's results with a reference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from third_party.torq.torq_tools import Output, TorqTools
from tools.report import metrics

_BF16 = np.dtype(ml_dtypes.bfloat16)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    """Cosine similarity of two arrays as vectors; NaN where either holds NaN or is all 0."""
    x, y = (values.astype(np.float64).reshape(1, -1) for values in (a, b))
    return float(metrics.cosines(x, y)[0])


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
        "lowest_k_cosine": _lowest(rows, "kRow"),
        "lowest_v_cosine": _lowest(rows, "vRow"),
    }


def _lowest(rows: dict[str, float], kind: str) -> float:
    """The lowest cosine of the rows of one kind; NaN where one of them is NaN."""
    return float(np.min([value for name, value in rows.items() if kind in name]))


def simulated_step(
    bundle: Path, values: dict[str, np.ndarray], tools: TorqTools, timeout: float
) -> dict[str, np.ndarray]:
    """Runs a bundle's program once in the simulator; port values by name, any float dtype."""
    manifest = json.loads((bundle / "manifest.json").read_text("utf-8"))
    inputs = [values[port["name"]].astype(_BF16) for port in manifest["inputs"]]
    outputs = [Output(tuple(port["shape"]), _BF16) for port in manifest["outputs"]]
    results = tools.simulate(
        bundle / manifest["programs"]["torq"]["file"], inputs, outputs, timeout
    )
    return {port["name"]: result for port, result in zip(manifest["outputs"], results, strict=True)}
