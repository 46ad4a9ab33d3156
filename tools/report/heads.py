"""Heads compared on the same hidden states: what each would cost, before and after rescoring."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gguf import quants
from gguf.constants import GGML_QUANT_SIZES
from gguf.constants import GGMLQuantizationType as Type

from tools.report import metrics
from tools.report.pairs import Said, high_spread, spread
from tools.report.stages import HeadFunction, exact_head

Json = dict[str, Any]

# What the best of is computed anew; 1 is none.
CANDIDATES = (1, 4, 8, 16, 32, 64, 128)

_CHUNK = 64


def quantised_heads(matrix: np.ndarray, cap: float | None) -> dict[str, tuple[int, HeadFunction]]:
    """Heads of GGUF's own quantisers by type: the bytes of each, and its logits.

    matrix: float32 [k, vocabulary].
    """
    rows = np.ascontiguousarray(matrix.T)
    out = {}
    for kind in (Type.Q8_0, Type.Q4_0, Type.Q4_1):
        if rows.shape[-1] % GGML_QUANT_SIZES[kind][0] == 0:
            raw = quants.quantize(rows, kind)
            out[kind.name] = raw.nbytes, exact_head(quants.dequantize(raw, kind).T, cap)
    return out


def compare_heads(
    heads: Mapping[str, tuple[int, HeadFunction]],
    exact: HeadFunction,
    hidden: np.ndarray,
    used: str,
) -> list[Json]:
    """Heads by name, with their bytes, beside the exact one on hidden states.

    hidden: [positions, hidden_size]. used: the name of the program's own.
    """
    numbers: dict[str, dict[str, list[np.ndarray]]] = {name: {} for name in heads}
    for start in range(0, len(hidden), _CHUNK):
        states = hidden[start : start + _CHUNK]
        wanted = Said(exact(states))
        for name, (_, head) in heads.items():
            for key, value in _compared(wanted, Said(head(states), max(CANDIDATES))).items():
                numbers[name].setdefault(key, []).append(value)
    return [
        {"head": name, "bytes": size, "used": name == used, "positions": len(hidden)}
        | _summary({key: np.concatenate(value) for key, value in numbers[name].items()})
        for name, (size, _) in heads.items()
    ]


def _compared(wanted: Said, found: Said) -> dict[str, np.ndarray]:
    """One number a position by what it says."""
    values = {
        "cosine": metrics.cosines(wanted.logits, found.logits),
        "kl": metrics.kl_divergence(wanted.logs, found.logs),
        "top_10": metrics.shared(wanted.best, found.best[:, :10]),
    }
    for count in CANDIDATES:
        chosen = found.best[:, :count]
        values[f"held_{count}"] = (chosen == wanted.best[:, :1]).any(axis=-1)
        values[f"ten_{count}"] = metrics.shared(wanted.best, chosen)
    return values


def _summary(of: Mapping[str, np.ndarray]) -> Json:
    return {
        "logits_cosine": spread(of["cosine"]),
        "kl": high_spread(of["kl"]),
        "top_1": float(of["held_1"].mean()),
        "top_10": float(of["top_10"].mean()),
        "rescored": [
            {
                "candidates": count,
                # The best of exact values is the best of all, if it is among them.
                "top_1": float(of[f"held_{count}"].mean()),
                "top_10": float(of[f"ten_{count}"].mean()) if count >= 10 else None,
                "reference_in_candidates": float(of[f"held_{count}"].mean()),
            }
            for count in CANDIDATES
            if count > 1
        ],
    }
