"""Heads compared on the same hidden states: what each would cost, before and after rescoring."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gguf import quants
from gguf.constants import GGML_QUANT_SIZES
from gguf.constants import GGMLQuantizationType as Type

from tools.report import metrics
from tools.report.pairs import spread
from tools.report.stages import HeadFunction, exact_head

Json = dict[str, Any]

# What the best of is computed anew; 1 is none.
CANDIDATES = (1, 4, 8, 16, 32, 64, 128)

_CHUNK = 64


def quantised_heads(
    matrix: np.ndarray, cap: float | None
) -> Mapping[str, tuple[int, HeadFunction]]:
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


def compare_head(
    name: str, size: int, head: HeadFunction, exact: HeadFunction, hidden: np.ndarray, used: bool
) -> Json:
    """One head beside the exact one, on hidden states [positions, hidden_size]."""
    numbers: dict[str, list[np.ndarray]] = {}
    for start in range(0, len(hidden), _CHUNK):
        states = hidden[start : start + _CHUNK]
        wanted, found = exact(states), head(states)
        tops = metrics.best(wanted, 10), metrics.best(found, max(CANDIDATES))
        logs = metrics.log_softmax(wanted), metrics.log_softmax(found)
        values = {
            "cosine": metrics.cosines(wanted, found),
            "kl": metrics.kl_divergence(*logs),
            "top_10": metrics.shared(tops[0], tops[1][:, :10]),
        }
        for count in CANDIDATES:
            chosen = tops[1][:, :count]
            values[f"held_{count}"] = (chosen == tops[0][:, :1]).any(axis=-1)
            values[f"ten_{count}"] = metrics.shared(tops[0], chosen)
        for key, value in values.items():
            numbers.setdefault(key, []).append(value)
    of = {key: np.concatenate(value) for key, value in numbers.items()}
    return {
        "head": name,
        "bytes": size,
        "used": used,
        "positions": len(hidden),
        "logits_cosine": spread(of["cosine"]),
        "kl": {"mean": float(of["kl"].mean()), "max": float(of["kl"].max())}
        | {f"p{p}": float(np.percentile(of["kl"], p)) for p in (50, 90, 99)},
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
