"""inspect as people start it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.toy.toy import Toy

ROOT = Path(__file__).parents[2]
# Says on stderr which modules the program imported.
TRACED = """
import atexit, runpy, sys
atexit.register(lambda: print(*sorted(sys.modules), file=sys.stderr))
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(arguments: list[str], folder: Path, *python: str) -> tuple[int, str, str]:
    paths = ":".join([str(ROOT), *(path for path in sys.path if path)])
    program = str(ROOT / "tools" / "inspect" / "inspect_gguf.py")
    process = subprocess.run(
        [sys.executable, *python, program, *arguments],
        env={**os.environ, "PYTHONPATH": paths, "BUILD_WORKING_DIRECTORY": str(folder)},
        capture_output=True,
        text=True,
        cwd="/",
        timeout=120,
        check=False,
    )
    return process.returncode, process.stdout, process.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Toy(default_type="Q8_0").write(tmp_path / "toy.gguf")
    Toy(ffn_size=48, layers=9).write(tmp_path / "bad.gguf")
    return tmp_path


def test_a_file_that_torq_can_take_ends_with_0(folder: Path) -> None:
    status, out, err = run(["toy.gguf"], folder)

    assert (status, err) == (0, "")
    assert "Torq can take it    yes\n" in out


def test_a_file_that_it_cannot_take_ends_with_1_and_layers_alike_are_one_line(folder: Path) -> None:
    status, out, err = run(["bad.gguf"], folder)

    assert (status, err) == (1, "")
    assert "Torq can take it    no\n" in out
    assert out.count("rows of 48 values") == 1
    assert "(9 layers)" in out


def test_json_has_every_reason(folder: Path) -> None:
    status, out, _ = run(["bad.gguf", "--json"], folder)

    said = json.loads(out)
    assert (status, said["torq_can_take_it"], said["step"]) == (1, False, None)
    assert len(said["reasons"]) == 9


def test_flags_say_how_it_would_be_built(folder: Path) -> None:
    status, out, _ = run(["toy.gguf", "--json", "--context=64", "--head=Q4_0"], folder)

    said = json.loads(out)
    assert (status, said["step"]["context"], said["packing"]["head"]) == (0, 64, "Q4_0")


@pytest.mark.parametrize("content", [b"", b"GGML" * 9, b"GGUF" + bytes(20)])
def test_what_is_no_gguf_file_ends_with_2_and_one_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "no.gguf").write_bytes(content)

    status, out, err = run(["no.gguf"], tmp_path)

    assert (status, out) == (2, "")
    assert err.startswith("inspect: ")
    assert err.count("\n") == 1


def test_jax_is_not_imported(folder: Path) -> None:
    (folder / "traced.py").write_text(TRACED)

    status, _, err = run(["toy.gguf"], folder, str(folder / "traced.py"))

    modules = err.split()
    assert (status, "tools.inspect.survey" in modules) == (0, True)
    assert not {"jax", "jaxlib", "ml_dtypes"} & set(modules)
