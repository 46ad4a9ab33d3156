"""A whole export, as the build left it: the bundle, its manifest and its report."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from export.bundle import manifest
from tools.report import gates

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
    packing = content["packing"]
    chosen = {"", packing["head"], *packing["projections"].values()}
    for tensor in content["tensors"]:
        if tensor["packed_type"] and tensor["file_type"] not in floats:
            assert tensor["packed_type"] in {tensor["file_type"], *map(str.upper, chosen)}
    changed = {t["name"] for t in content["tensors"] if t["packed_type"] in chosen - {""}}
    assert bool(changed) == (chosen != {""})


def test_a_mean_row_is_left_out_only_of_a_gptq_head_without_a_cap(content: dict[str, Any]) -> None:
    capped = content["model"]["logit_cap"] is not None
    centred = content["packing"]["head"] == "Q4_GPTQ" and not capped

    assert (content["head"]["mean"] is not None) == centred
    assert content["head"]["rows"]["file"] == (
        "head.bin" if content["model"]["own_head"] else "embedding.bin"
    )


@pytest.fixture(scope="module")
def report(request: pytest.FixtureRequest) -> dict[str, Any]:
    path = request.config.getoption("--report")
    if path is None:
        pytest.skip("this export has no report")
    value: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return value


def test_every_gate_was_passed_on_512_positions_and_more(report: dict[str, Any]) -> None:
    assert {gate["gate"] for gate in report["gates"]} == set(gates.REFERENCES)
    assert all(gate["passed"] for gate in report["gates"])
    if report["bundle"]["name"] in FUSIONS:
        assert sum(text["positions"] for text in report["text"]) >= 512
        limits = {gate["gate"]: gate["limit"] for gate in report["gates"]}
        assert limits["head_rescored_top_1"] >= 0.999
        assert limits["bf16_kv_cosine"] >= 0.9998


def test_the_simulated_steps_agree_with_the_bf16_stage(
    report: dict[str, Any], content: dict[str, Any]
) -> None:
    assert len(report["simulated"]) == 2
    for step in report["simulated"]:
        assert step["lowest_k_cosine"] >= 0.999
        assert step["lowest_v_cosine"] >= 0.999
        assert step["logits_cosine"] >= 0.999
        # Two bf16 logits of a 4-bit head are equal more often; the host tells them apart.
        assert step["same_top_1"] or content["packing"]["head"] == "Q4_GPTQ"


def test_the_head_of_the_program_is_the_one_compared(
    report: dict[str, Any], content: dict[str, Any]
) -> None:
    (used,) = [head for head in report["heads"] if head["used"]]
    (tensor,) = [t for t in content["tensors"] if t["name"] == content_head(content)]

    assert (used["head"], used["bytes"]) == (tensor["packed_type"], tensor["bytes"])


def content_head(content: dict[str, Any]) -> str:
    return "output.weight" if content["model"]["own_head"] else "token_embd.weight"


def test_the_page_says_every_gate(request: pytest.FixtureRequest, report: dict[str, Any]) -> None:
    page = Path(request.config.getoption("--report")).with_suffix(".html").read_text("utf-8")

    for gate in report["gates"]:
        assert gate["gate"] in page
    assert "<script" not in page
