"""What an export must reach, or its build fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from export.errors import ExportError

Json = dict[str, Any]

# By name: what the value is compared with, for the report.
REFERENCES = {
    "head_rescored_top_1": "the exact head on the same hidden states",
    "head_cosine": "the exact head on the same hidden states, before rescoring (mean)",
    "bf16_kv_cosine": "float32 arithmetic on the same packed weights (mean, worst layer)",
    "bf16_top_1": "float32 arithmetic on the same packed weights, with the exact head",
    "simulated_cosine": "the bf16 stage at the same position (lowest of K, V, hidden, logits)",
    "simulated_sound": "1: every result finite, none all zero, different steps differ",
}


def check_names(limits: Mapping[str, float]) -> None:
    """Raises ExportError for a gate that is unknown."""
    if unknown := [name for name in limits if name not in REFERENCES]:
        raise ExportError(f"gates: unknown {', '.join(unknown)}; known: {', '.join(REFERENCES)}")


def gates(values: Mapping[str, float], limits: Mapping[str, float]) -> list[Json]:
    """Each gate with its value, limit and whether it passed; NaN never does."""
    return [
        {
            "gate": name,
            "reference": REFERENCES[name],
            "value": float(values[name]),
            "limit": limit,
            "at_least": True,
            "passed": bool(values[name] >= limit),
        }
        for name, limit in limits.items()
    ]


def require(found: list[Json]) -> None:
    """Raises ExportError, naming each gate that failed, its value and its reference."""
    failed = [
        f"{gate['gate']} is {gate['value']:.6f}, {gate['limit']:g} was expected, against "
        f"{gate['reference']}"
        for gate in found
        if not gate["passed"]
    ]
    if failed:
        raise ExportError(f"{len(failed)} of {len(found)} gates failed: " + "; ".join(failed))
