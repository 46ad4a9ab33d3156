"""A whole export, as the build left it: the bundle, its manifest and its report."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from export.bundle import manifest

# Counted by hand: 7 projections a layer and the head.
FUSIONS = {"gemma3_270m_torq": 127, "smollm2_135m_torq": 211, "smollm2_short_torq": 211}


@pytest.fixture(scope="module")
def bundle(request: pytest.FixtureRequest) -> Path:
    return Path(request.config.getoption("--bundle"))


@pytest.fixture(scope="module")
def content(bundle: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((bundle / manifest.FILE).read_text("utf-8"))
    return value


def test_the_manifest_is_valid(content: dict[str, Any]) -> None:
    manifest.validate(content)


def test_the_bundle_holds_the_files_that_the_manifest_names_and_no_others(
    bundle: Path, content: dict[str, Any]
) -> None:
    assert {path.name for path in bundle.iterdir()} == {manifest.FILE, *content["digests"]}
    for name, digest in content["digests"].items():
        assert hashlib.sha256((bundle / name).read_bytes()).hexdigest() == digest


def test_every_projection_is_fused_and_became_mixed_quant_matmul(content: dict[str, Any]) -> None:
    counts = content["counts"]
    layers = content["model"]["layers"]

    assert counts["dispatches"] == 1
    assert counts["fusions"] == len(counts["tiles"]) == 7 * layers + 1
    assert min(counts["tiles"].values()) > 0
    assert sum(counts["tiles"].values()) == counts["mixed_quant_matmul_tiles"]
    if content["name"] in FUSIONS:
        assert counts["fusions"] == FUSIONS[content["name"]]


def test_a_packed_tensor_of_the_file_is_packed_in_the_program(content: dict[str, Any]) -> None:
    floats = {"F32", "F16", "BF16"}
    for tensor in content["tensors"]:
        if tensor["packed_type"] and tensor["file_type"] not in floats:
            assert tensor["packed_type"] == tensor["file_type"]


def test_the_simulated_step_agrees_with_float32(request: pytest.FixtureRequest) -> None:
    path = request.config.getoption("--report")
    if path is None:
        pytest.skip("this export has no report: the simulator gives a step 300 s")
    report = json.loads(path.read_text("utf-8"))

    assert report["lowest_k_cosine"] >= 0.999
    assert report["lowest_v_cosine"] >= 0.999
    assert report["logits_cosine"] >= 0.999
    assert report["same_top_1"]
