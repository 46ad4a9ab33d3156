"""What is said of toys, beside what the build makes of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from export.gguf import reader
from export.models.decoder import Projection
from export.models.read import read_config
from export.trace.packing import Packing
from export.trace.weights import packed_weights
from tests.runtime.toy_bundle import toy_file
from tests.toy.toy import Toy
from tools.inspect.estimate import errors
from tools.inspect.facts import facts
from tools.inspect.survey import survey
from tools.inspect.text import text

K_TYPES = {
    "attn_q": "Q2_K",
    "attn_k": "Q3_K",
    "attn_v": "Q4_K",
    "attn_output": "Q5_K",
    "ffn_gate": "Q6_K",
    "ffn_up": "IQ4_NL",
}
TOYS = {
    **{kind: (Toy(default_type=kind), Packing()) for kind in ("Q8_0", "Q5_0", "Q5_1", "Q4_1")},
    "Q4_0, an odd head": (Toy(default_type="Q4_0", vocabulary=301), Packing()),
    "K": (
        Toy(hidden_size=256, ffn_size=256, heads=8, types=K_TYPES, default_type="Q8_0"),
        Packing(),
    ),
    "floats": (Toy(types={"ffn_up": "F16", "attn_q": "BF16"}), Packing(quantise="Q4_1")),
    "requantised": (Toy(default_type="Q8_0", own_head=True), Packing(requantise="Q5_1")),
    "a head in 4 bits": (Toy(default_type="Q8_0"), Packing(head="Q4_0")),
    "a wide head": (Toy(default_type="Q4_0", vocabulary=65_539, layers=1), Packing()),
}


def bytes_of(part: Projection) -> int:
    q = part.q.size // 2 if part.q.dtype.name == "int4" else part.q.size
    zero_point = 0 if part.zero_point is None else part.zero_point.nbytes
    return int(q + part.scale.nbytes + zero_point)


def found(path: Path, packing: Packing, context: int | None = None) -> dict[str, Any]:
    return facts(survey(reader.read(path), packing, context))


@pytest.mark.parametrize("name", TOYS)
def test_packed_bytes_and_parts_are_those_that_the_trace_binds(name: str, tmp_path: Path) -> None:
    toy, packing = TOYS[name]
    path = toy.write(tmp_path / "toy.gguf")
    gguf = reader.read(path)
    matrices = packed_weights(gguf, read_config(gguf), packing).weights.matrices
    parts = [part for matrix in matrices.values() for part in matrix]

    step = found(path, packing)["step"]

    assert step["packed_bytes"] == sum(map(bytes_of, parts))
    assert step["parts"] == len(parts)
    assert step["fusions"] == len(matrices)


@pytest.mark.parametrize("name", TOYS)
def test_tensors_become_what_the_build_makes_of_them(name: str, tmp_path: Path) -> None:
    toy, packing = TOYS[name]
    path = toy.write(tmp_path / "toy.gguf")
    gguf = reader.read(path)
    records = packed_weights(gguf, read_config(gguf), packing).records

    groups = found(path, packing)["tensors"]

    counts = {(group["file_type"], group["packed_type"]): group["count"] for group in groups}
    if toy.own_head:
        assert counts.pop(("Q8_0", None)) == 1
    for pair, count in counts.items():
        assert count == sum((record.file_type, record.packed_type) == pair for record in records)
    assert sum(counts.values()) == len(records)
    assert sum(group["count"] for group in groups) == len(gguf.tensors)


def test_what_becomes_of_a_tensor_is_said(tmp_path: Path) -> None:
    toy = Toy(types={"ffn_up": "Q4_0", "ffn_down": "F16"}, default_type="Q8_0", own_head=True)
    packing = Packing(head="Q4_1", quantise="Q5_0")

    groups = found(toy.write(tmp_path / "toy.gguf"), packing)["tensors"]

    assert {(g["file_type"], g["becomes"], g["packed_type"], g["count"]) for g in groups} == {
        ("Q8_0", "embedding", None, 1),
        ("Q8_0", "packed", "Q8_0", 10),
        ("Q8_0", "requantised", "Q4_1", 1),
        ("Q4_0", "packed", "Q4_0", 2),
        ("F16", "quantised", "Q5_0", 2),
        ("F32", "dense", None, 13),
    }


def test_a_built_toy_has_the_step_that_was_foretold() -> None:
    bundle = toy_file("toy_torq")
    manifest = json.loads((bundle / "manifest.json").read_text())
    caches = [port["shape"] for port in manifest["inputs"] if port["name"][:1] == "l"]

    step = found(toy_file("toy.gguf"), Packing(), manifest["context"])["step"]

    assert step["fusions"] == manifest["counts"]["fusions"]
    assert step["parts"] == manifest["counts"]["parts"]
    assert step["arguments"] == len(manifest["inputs"])
    assert step["cache_bytes"] == sum(2 * a * b * c for a, b, c in caches)
    assert step["embedding_bytes"] == (bundle / "embedding.bin").stat().st_size
    size = (bundle / "model.vmfb").stat().st_size
    assert step["estimate"]["program_bytes"] == pytest.approx(size, rel=0.1)
    assert step["estimate"]["end_units"] == pytest.approx(manifest["timeline"]["end"], rel=0.1)


@pytest.mark.parametrize(("layers", "arguments", "stacked"), [(28, 63, False), (29, 11, True)])
def test_beyond_63_arguments_caches_are_stacked(
    layers: int, arguments: int, stacked: bool, tmp_path: Path
) -> None:
    """By hand: embedded, 2 tables of 2, 2 masks; 2 caches a layer, or a kind of layer."""
    toy = Toy(layers=layers, pattern=3, default_type="Q8_0")

    step = found(toy.write(tmp_path / "toy.gguf"), Packing())["step"]

    assert (step["arguments"], step["stacked_caches"]) == (arguments, stacked)


def test_the_model_is_described(tmp_path: Path) -> None:
    toy = Toy(layers=3, pattern=2, rope_scale=8.0, chat_template="{{ messages }}")

    model = found(toy.write(tmp_path / "toy.gguf"), Packing())["model"]

    expected = {
        "architecture": "gemma3",
        "layers": 3,
        "heads": 4,
        "kv_heads": 2,
        "head_dim": 32,
        "hidden_size": 64,
        "vocabulary": 288,
        "context_length": 1024,
        "window": 4,
        "sliding_layers": 2,
        "own_head": False,
        "tokenizer": "sentencepiece",
        "chat_template": True,
        "licence": None,
    }
    assert {key: model[key] for key in expected} == expected
    assert model["ropes"] == [
        {"layers": "Global", "base": 1_000_000.0, "scale": 8.0, "factors": 0},
        {"layers": "Sliding", "base": 10_000.0, "scale": 1.0, "factors": 0},
    ]


@pytest.mark.parametrize("name", TOYS)
def test_text_fits_in_100_columns(name: str, tmp_path: Path) -> None:
    toy, packing = TOYS[name]

    lines = text(found(toy.write(tmp_path / "toy.gguf"), packing)).splitlines()

    assert max(map(len, lines)) <= 100
    assert next(line.split() for line in lines if line.startswith("Torq"))[-1] == "yes"


def test_what_the_keys_say_is_shown_of_a_file_whose_angles_are_not_supported(
    tmp_path: Path,
) -> None:
    gguf = reader.read(Toy(default_type="Q8_0").write(tmp_path / "toy.gguf"))
    yarn = replace(gguf, metadata={**gguf.metadata, "gemma3.rope.scaling.type": "yarn"})

    said = facts(survey(yarn, Packing()))

    assert (said["step"], said["model"]["layers"], said["model"]["ropes"]) == (None, 2, [])
    assert "K/V 2, of 32 values" in text(said)


def test_what_a_file_says_of_itself_is_text_on_one_line_or_none(tmp_path: Path) -> None:
    gguf = reader.read(Toy(default_type="Q8_0").write(tmp_path / "toy.gguf"))
    keys = {
        "general.name": "a\x1b[2Jb\nc",
        "general.license": gguf.metadata["tokenizer.ggml.tokens"],
    }

    said = facts(survey(replace(gguf, metadata={**gguf.metadata, **keys}), Packing()))

    assert "a?[2Jb c; licence: not in the file\n" in text(said)
    assert json.loads(json.dumps(said))["model"]["licence"] is None


def test_the_estimates_are_near_what_was_measured() -> None:
    for error in errors():
        assert abs(error.program) < 0.02, error.name
        assert abs(error.end) < 0.042, error.name
