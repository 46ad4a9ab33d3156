"""A report with everything in it, of the size of a real one, its numbers drawn from a seed."""

from __future__ import annotations

from typing import Any

import numpy as np

STAGES = ("file", "packed", "bf16", "torq")
PAIRS = (
    ("file", "packed"),
    ("packed", "bf16"),
    ("bf16", "torq"),
    ("file", "bf16"),
    ("file", "torq"),
    ("packed", "torq"),
    ("file", "rescored"),
)
HOSTILE = (
    "<script>alert(1)</script>",
    "\u202egnirts a",
    "line\nbreak\r\ttab",
    "\x00\x1b[31m",
    "'\" onload=alert(1) x='",
    "{{ 7 * 7 }}",
    "\ud800",
    "e\u0301\u0301\u0301",
    "\u200b\u2028\ufeff",
    "x" * 5000,
    "مرحبا",
    "",
)
TEXTS = (("prose.txt", "prose"), ("code.txt", "code"), ("chat.txt", "conversation"))
HEADS = (
    ("Q8_0", 178_257_920),
    ("Q6_K", 137_625_600),
    ("Q5_0", 115_343_360),
    ("Q4_1", 104_857_600),
    ("Q4_0", 94_371_840),
    ("Q3_K", 72_089_600),
)


def spread(random: np.random.Generator, error: float) -> dict[str, float]:
    values = 1 - np.sort(error * random.lognormal(0, 1, 900))[::-1]
    percentiles = {f"p{p}": float(np.percentile(values, p)) for p in (1, 5, 50)}
    return {"mean": float(values.mean()), "min": float(values.min()), **percentiles}


def pair(random: np.random.Generator, reference: str, found: str, error: float) -> dict[str, Any]:
    kl = error * random.lognormal(0, 1.5, 900)
    counts, edges = np.histogram(np.log10(kl), np.arange(-8, 1, 0.5))
    logits = random.normal(-4, 6, 2000)
    return {
        "reference": reference,
        "found": found,
        "positions": 900,
        "logits_cosine": spread(random, error),
        "hidden_cosine": spread(random, 2 * error),
        "kl": {"mean": float(kl.mean()), "max": float(kl.max())}
        | {f"p{p}": float(np.percentile(kl, p)) for p in (50, 90, 99)},
        "kl_histogram": {"log10_edges": edges.tolist(), "counts": counts.tolist()},
        "top_1": 1 - 10 * error,
        "top_5": 1 - 12 * error,
        "top_10": 1 - 15 * error,
        "error_ulp": {"mean": 300 * error, "max": 9000 * error},
        "perplexity": {"reference": 23.417, "found": 23.417 * (1 + error)},
        "divergence": [
            {"text": name, "position": None if index == 2 else 17 + 31 * index}
            for index, (name, _) in enumerate(TEXTS)
        ],
        "layers": [layer(random, index, error) for index in range(18)],
        "worst": [
            {
                "text": TEXTS[index % 3][0],
                "position": 31 * index + 7,
                "token": HOSTILE[index % len(HOSTILE)],
                "reference_token": " return",
                "found_token": HOSTILE[(index + 3) % len(HOSTILE)],
                "logits_cosine": 0.99 + index / 1100,
                "kl": 0.05 / (index + 1),
            }
            for index in range(12)
        ],
        "scatter": {
            "reference": logits.tolist(),
            "found": (logits + random.normal(0, 40 * error, 2000)).tolist(),
        },
    }


def layer(random: np.random.Generator, index: int, error: float) -> dict[str, Any]:
    k, v = (error * (1 + index / 6) * random.lognormal(0, 0.3) for _ in range(2))
    return {
        "layer": index,
        "kind": "Global" if index % 6 == 5 else "Sliding",
        "k": {"mean": 1 - k, "min": 1 - 8 * k},
        "v": {"mean": 1 - 3 * v, "min": 1 - 20 * v},
    }


def head(random: np.random.Generator, index: int, name: str, size: int) -> dict[str, Any]:
    missed = min(0.002 * 2.2**index, 0.9)
    candidates = (1, 4, 16, 64, 256)
    return {
        "head": name,
        "bytes": size,
        "logits_cosine": spread(random, missed / 50),
        "kl": {"mean": missed / 20, "p50": missed / 40, "p90": missed / 8, "p99": missed / 2},
        "top_1": 1 - missed,
        "top_10": 1 - 2 * missed,
        "used": name == "Q4_1",
        "rescored": [
            {
                "candidates": count,
                "top_1": 1 - missed / count if index or count < 64 else 1.0,
                "top_10": 1 - 2 * missed / count,
                "reference_in_candidates": 1 - missed / count / 2,
            }
            for count in candidates
        ],
    }


def report(pairs: int = len(PAIRS)) -> dict[str, Any]:
    """A report as the measuring part writes it, with so many pairs."""
    random = np.random.default_rng(5)
    projections = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    return {
        "bundle": {
            "name": "gemma3_270m_torq",
            "checkpoint": "Gemma 3 270M",
            "sha256": "5f2c1d6a" * 8,
            "context": 1024,
            "head": "Q4_1, calibrated",
            "bytes_per_step": 130_000_000,
            "torq": "2.3.0",
        },
        "text": [{"name": name, "kind": kind, "positions": 300} for name, kind in TEXTS],
        "stages": [
            {"name": "file", "meaning": "float32 arithmetic on the file's own weights"},
            {"name": "packed", "meaning": "float32 arithmetic on the weights as they are packed"},
            {"name": "bf16", "meaning": "the exported step in bf16, on this CPU"},
            {"name": "torq", "meaning": "simulator of torq-runtime; a board was not measured"},
        ],
        "pairs": [
            pair(random, *stages, 2e-5 * 1.9**index) for index, stages in enumerate(PAIRS[:pairs])
        ],
        "heads": [head(random, index, *entry) for index, entry in enumerate(HEADS)],
        "rescoring": {"candidates": 64, "multiply_adds": 40960, "bytes": 43520},
        "projections": [
            {
                "projection": projection,
                "layer": index,
                "block_type": "Q4_1",
                "bytes_saved": 400_000 * (1 + column),
                "kl": (saved := 0.0004 * (1 + column) * random.lognormal(0, 1)),
                "kl_per_megabyte": saved / (0.4 * (1 + column)),
            }
            for column, projection in enumerate(projections)
            for index in range(18)
        ],
        "simulated": [
            {
                "position": 12 + 100 * index,
                "text": "prose.txt",
                "logits_cosine": 0.99996 - index / 1e5,
                "hidden_cosine": 0.99991,
                "lowest_k_cosine": 0.9999,
                "lowest_v_cosine": 0.99953,
                "same_top_1": index != 2,
                "of_top_10": 9,
                "reference": "bf16",
            }
            for index in range(3)
        ],
        "gates": [
            gate(
                "head_after_rescoring_top_1",
                "the exact head on the same hidden states",
                0.9995,
                0.999,
            ),
            gate("lowest_v_cosine", "float32 arithmetic on the file's own weights", 0.99953, 0.999),
            gate("logits_cosine_p1", "the stage before", 0.99897, 0.999),
            gate(
                "kl_p99",
                "float32 arithmetic on the file's own weights",
                0.0081,
                0.02,
                at_least=False,
            ),
        ],
    }


def awkward() -> dict[str, Any]:
    """A report of an odd shape: many layers, heads of like size, names without a break."""
    random = np.random.default_rng(6)
    value = report(pairs=1)
    name = "a_name_without_a_place_to_break_" * 4
    value["bundle"] |= {"name": name, "checkpoint": name, "head": name, "torq": name}
    value["gates"][0] |= {"gate": name, "reference": name, "value": 1 / 3}
    value["stages"][0] |= {"name": name, "meaning": name}
    value["text"][0] |= {"name": name, "kind": name}
    value["pairs"][0] |= {
        "reference": name,
        "found": name,
        "layers": [layer(random, index, 1e-9 * 10 ** (index % 9)) for index in range(48)],
        "kl_histogram": {"log10_edges": [-0.5, 0.0], "counts": [900]},
        "scatter": {"reference": [-123456.0], "found": [-123456.0]},
        "divergence": [{"text": name, "position": 1}],
    }
    value["pairs"][0]["worst"][0] |= {"text": name, "token": name}
    value["heads"] = [
        head(random, index, f"Q4_{index}, calibrated on {name}", 94_371_840 + index)
        for index in range(9)
    ]
    value["heads"].append(head(random, 0, "Q8_0", 94_371_840 + 9))
    value["projections"] = [
        {
            "projection": projection,
            "layer": index,
            "block_type": block_type,
            "bytes_saved": 1,
            "kl": 0.1,
            "kl_per_megabyte": None if index == 3 else 0.0123,
        }
        for block_type in ("Q4_1", name)
        for projection in ("attn_q", name)
        for index in range(48)
    ]
    value["simulated"][0] |= {"text": name, "reference": name}
    return value


def gate(
    name: str, reference: str, value: float, limit: float, *, at_least: bool = True
) -> dict[str, Any]:
    return {
        "gate": name,
        "reference": reference,
        "value": value,
        "limit": limit,
        "at_least": at_least,
        "passed": value >= limit if at_least else value <= limit,
    }
