"""The manifest: what is written is valid by the schema, and what is not valid is named."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from export.bundle import manifest
from export.bundle.tokenizer import vocabulary
from export.errors import ExportError
from export.gguf import reader
from export.models.read import read_config
from export.trace.description import describe
from export.trace.packing import Packing
from export.trace.weights import packed_weights
from tests.toy.toy import Toy

COMPILED = {
    "dispatches": 1,
    "mixed_quant_matmul_tiles": 30,
    "tiles": {"jit(step)/output/dot_general": 30},
    "timeline": {"end": 10, "tasks": 3, "busy": {"DMA In": 4}, "bytes": {"DMA In": 9}},
    "flags": ["--torq-hw=SL2610"],
    "tools": {"iree-base-compiler": "3.11.0"},
}


@pytest.fixture
def content(tmp_path: Path) -> dict[str, Any]:
    gguf = reader.read(Toy(default_type="Q8_0").write(tmp_path / "toy.gguf"))
    config = read_config(gguf)
    weights = packed_weights(gguf, config, Packing())
    return manifest.build(
        name="toy",
        # As the trace leaves it: a file of JSON.
        description=json.loads(json.dumps(describe(config, 16, Packing(), weights))),
        checkpoint={"name": "toy", "licence": "none", "sha256": "0" * 64},
        embedding={"file": "embedding.bin", "type": "Q8_0", "rows": 288, "columns": 64},
        head_rows={"file": "embedding.bin", "type": "Q8_0", "rows": 288, "columns": 64},
        tokenizer={"file": "tokenizer.model", **vocabulary(gguf).description},
        stages={
            "fuse": {"fused": 15, "parts": 15},
            "cpu": {"target": "x86-64-v3", "flags": ["--iree-input-type=auto"]},
            "bf16": {"values": 3, "constants": 2, "conversions": 1},
            "compile": COMPILED,
        },
        torq_version="2.3.0",
        digests={"model.vmfb": "1" * 64},
    )


def test_ports_tensors_and_kinds_are_in_it(content: dict[str, Any]) -> None:
    assert content["inputs"][0] == {"name": "embedded", "shape": [1, 1, 64]}
    assert [kind["name"] for kind in content["layer_kinds"]] == ["Global", "Sliding"]
    assert [(cache["argument"], cache["kind"]) for cache in content["caches"]] == [
        ("l0.k", "Sliding"),
        ("l0.v", "Sliding"),
        ("l1.k", "Global"),
        ("l1.v", "Global"),
    ]
    assert content["counts"]["fusions"] == 15
    assert {"name", "file_type", "packed_type", "shape", "bytes", "parts"} == set(
        content["tensors"][0]
    )
    assert content["tools"]["torq"] == "2.3.0"


# Every level of the manifest, a value that may not stand there, and the place that the error names.
WRONG: dict[str, tuple[list[str | int], object, str]] = {
    "another version": (["version"], 1, "version"),
    "two dispatches": (["counts", "dispatches"], 2, "counts/dispatches"),
    "a torq program in f32": (["programs", "torq", "dtype"], "f32", "programs/torq/dtype"),
    "a port of size 0": (["outputs", 1, "shape"], [0], "outputs/1/shape/0"),
    "a short digest": (["checkpoint", "sha256"], "abc", "checkpoint/sha256"),
    "an unknown field": (["extra"], 1, "the top level"),
    "a table without angles": (["ropes", 1, "frequencies"], [], "ropes/1/frequencies"),
    "a gate that is not known": (["model", "gate"], "relu", "model/gate"),
    "a window of text": (["layer_kinds", 0, "window"], "all", "layer_kinds/0/window"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_not_valid_is_named_by_its_place(name: str, content: dict[str, Any]) -> None:
    path, value, place = WRONG[name]
    changed = copy.deepcopy(content)
    at: Any = changed
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value

    with pytest.raises(ExportError, match=f"manifest: {place}: "):
        manifest.validate(changed)


@pytest.mark.parametrize("field", ["ports", "inputs", "digests", "checkpoint", "tools"])
def test_a_missing_field_is_named(field: str, content: dict[str, Any]) -> None:
    if field == "ports":
        del content["inputs"][0]["shape"]
    else:
        del content[field]

    with pytest.raises(ExportError, match="is a required property"):
        manifest.validate(content)
