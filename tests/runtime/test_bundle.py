"""Opening bundles: what is read, and each way in which one can be wrong."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export.gguf import reader
from export.gguf.dense import dense
from runtime.bundle import Bundle
from runtime.errors import RunError
from tests.runtime.toy_bundle import toy_file


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A bundle that a test may break."""
    folder = tmp_path / "bundle"
    shutil.copytree(toy_file("toy_torq"), folder)
    folder.chmod(0o755)
    for path in folder.iterdir():
        path.chmod(0o644)
    return folder


def change(folder: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    path = folder / "manifest.json"
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


def test_embedding_rows_are_the_checkpoints_times_the_scale() -> None:
    bundle = Bundle.open(toy_file("toy_torq"))
    gguf = reader.read(toy_file("toy.gguf"))
    values = dense(gguf.tensor("token_embd.weight"))

    for token in (0, 1, 100, bundle.vocabulary - 1):
        np.testing.assert_array_equal(
            bundle.embedding.row(token), values[token] * np.float32(np.sqrt(values.shape[1]))
        )


@pytest.mark.parametrize("token", [-1, 288])
def test_a_token_beyond_the_vocabulary_is_refused(token: int) -> None:
    with pytest.raises(RunError, match=f"token {token} has no embedding; there are 288"):
        Bundle.open(toy_file("toy_torq")).embedding.row(token)


def _rename_port(content: dict[str, Any]) -> None:
    content["inputs"][3]["name"] = "cosMiddle"


def _twice(content: dict[str, Any]) -> None:
    content["outputs"].append(content["outputs"][0])


def _drop_port(content: dict[str, Any]) -> None:
    del content["outputs"][1]


def _narrow_cache(content: dict[str, Any]) -> None:
    next(port for port in content["inputs"] if port["name"] == "l0.k")["shape"][2] = 7


EDITS: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "another version": (lambda c: c.update(version=1), r"version 1; this runtime reads .* 4"),
    "another format": (lambda c: c.update(format="zip"), "format 'zip'"),
    "no field": (lambda c: c.pop("context"), "no field context"),
    "a field of text": (lambda c: c.update(context="16"), "context is str, int was expected"),
    "a boolean": (lambda c: c.update(context=True), "context is bool, int was expected"),
    "an unknown port": (_rename_port, "inputs: unknown port cosMiddle"),
    "a port twice": (_twice, "outputs: a port twice"),
    "no port": (_drop_port, "outputs: no port hidden"),
    "a cache of another size": (_narrow_cache, r"l0.k \[2, 16, 7\] .* is no cache of 4 positions"),
    "an unknown kind": (
        lambda c: c["caches"][2].update(kind="Local"),
        "caches/2: unknown kind of layer Local",
    ),
    "a cache without rows": (
        lambda c: c["caches"][1].update(rows=[]),
        "caches/1: expected axis 1 or 2, and rows",
    ),
    "a cache along its heads": (
        lambda c: c["caches"][1].update(axis=0),
        "caches/1: expected axis 1 or 2, and rows",
    ),
    "a cache of a layer more": (
        lambda c: c["caches"][1]["rows"].append("l1.vRow"),
        r"outputs: a port twice",
    ),
    "a kind with a field more": (
        lambda c: c["layer_kinds"][0].update(extra=1),
        "layer_kinds/0 is not an object of",
    ),
    "a list": (lambda c: c.update(outputs={}), "outputs is dict, list was expected"),
}


@pytest.mark.parametrize("name", EDITS)
def test_a_manifest_that_cannot_be_used_is_named(name: str, copy: Path) -> None:
    edit, message = EDITS[name]
    change(copy, edit)

    with pytest.raises(RunError, match=message):
        Bundle.open(copy)


def test_what_is_no_bundle_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no bundle: manifest.json: No such file"):
        Bundle.open(tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(RunError, match=r"manifest.json: no JSON"):
        Bundle.open(tmp_path)
    (tmp_path / "manifest.json").write_text("[]")
    with pytest.raises(RunError, match="no field format"):
        Bundle.open(tmp_path)


@pytest.mark.parametrize("program", ["torq", "cpu", "stablehlo"])
def test_a_truncated_program_is_refused(program: str, copy: Path) -> None:
    path = Bundle.open(copy).program(program).path
    path.write_bytes(path.read_bytes()[:-1])

    with pytest.raises(RunError, match=r"sha256 .* where the manifest says .*truncated or changed"):
        Bundle.open(copy).program(program)


def test_one_changed_byte_of_the_embedding_or_tokenizer_is_refused(copy: Path) -> None:
    for name, use in (("embedding.bin", "embedding"), ("tokenizer.model", "tokenizer")):
        path = copy / name
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        with pytest.raises(RunError, match=f"{name}: sha256"):
            getattr(Bundle.open(copy), use)


def test_a_missing_file_is_named(copy: Path) -> None:
    (copy / "cpu.vmfb").unlink()

    with pytest.raises(RunError, match=r"cpu.vmfb: No such file"):
        Bundle.open(copy).program("cpu")


def test_a_file_outside_of_the_bundle_is_refused(copy: Path) -> None:
    def escape(content: dict[str, Any]) -> None:
        content["programs"]["cpu"]["file"] = "../secret"
        content["digests"]["../secret"] = "0" * 64

    change(copy, escape)
    with pytest.raises(RunError, match=r"no digest of '../secret'"):
        Bundle.open(copy).program("cpu")


def test_embedding_of_a_size_that_does_not_fit_is_refused(copy: Path) -> None:
    change(copy, lambda content: content["embedding"].update(rows=287))

    with pytest.raises(RunError, match="bytes are not 287 rows of 64 Q8_0 values"):
        _ = Bundle.open(copy).embedding
