"""The manifest of a bundle: everything that whoever runs it must know, checked by a schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema

from export.errors import ExportError

FILE = "manifest.json"
VERSION = 4

# The most likely tokens whose logits a host computes anew from the exact rows of the head. The best
# 16 of a plain Q4_0 head held the true best token at each of 400 positions (measured).
CANDIDATES = 64

# The files of the step's programs.
PROGRAMS = {"torq": "model.vmfb", "cpu": "cpu.vmfb", "stablehlo": "step.mlirbc"}

_SCHEMA = Path(__file__).with_name("manifest.schema.json")


def build(
    *,
    name: str,
    description: dict[str, Any],
    checkpoint: dict[str, Any],
    embedding: dict[str, Any],
    head_rows: dict[str, Any],
    tokenizer: dict[str, Any],
    stages: dict[str, dict[str, Any]],
    torq_version: str,
    digests: dict[str, str],
) -> dict[str, Any]:
    """The manifest's content, valid by the schema.

    description: of the traced step; head_rows: where the exact rows of the head are.
    stages: what each later stage counted, by its name.

    Raises ExportError, naming the place, where it is not valid.
    """
    compiled = stages["compile"]
    content = {
        "format": "torq-decoder-bundle",
        "version": VERSION,
        "name": name,
        "checkpoint": checkpoint,
        "model": description["model"],
        "context": description["context"],
        "ropes": description["ropes"],
        "layer_kinds": description["layer_kinds"],
        "caches": description["caches"],
        "inputs": description["inputs"],
        "outputs": description["outputs"],
        "embedding": embedding | {"scale": description["model"]["embedding_scale"]},
        "head": {
            "rows": head_rows,
            "mean": description["head"]["mean"],
            "cap": description["head"]["cap"],
            "candidates": CANDIDATES,
        },
        "tokenizer": tokenizer,
        "programs": {
            "torq": _program("torq", "SL2610", "bf16"),
            "cpu": _program("cpu", stages["cpu"]["target"], "f32"),
            "stablehlo": _program("stablehlo", "any", "f32"),
        },
        "packing": description["packing"],
        "tensors": description["tensors"],
        "counts": {
            "fusions": stages["fuse"]["fused"],
            "parts": stages["fuse"]["parts"],
            "bf16": stages["bf16"],
            "dispatches": compiled["dispatches"],
            "mixed_quant_matmul_tiles": compiled["mixed_quant_matmul_tiles"],
            "tiles": compiled["tiles"],
        },
        "timeline": compiled["timeline"],
        "tools": {
            "torq": torq_version,
            **description["tools"],
            **compiled["tools"],
            "torq_flags": compiled["flags"],
            "cpu_flags": stages["cpu"]["flags"],
        },
        "digests": digests,
    }
    validate(content)
    return content


def _program(name: str, target: str, dtype: str) -> dict[str, str]:
    return {"file": PROGRAMS[name], "function": "main", "target": target, "dtype": dtype}


def validate(content: dict[str, Any]) -> None:
    """Raises ExportError, naming the place, unless the content is a manifest of this version."""
    validator = jsonschema.Draft202012Validator(json.loads(_SCHEMA.read_text("utf-8")))
    for error in validator.iter_errors(content):
        place = "/".join(map(str, error.absolute_path)) or "the top level"
        raise ExportError(f"manifest: {place}: {error.message}")
