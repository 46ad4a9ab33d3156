"""Files of the export appear when they are whole, or not at all; programs fail with one line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from export.files import whole_file
from export.trace import trace


def test_a_file_appears_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("old")

    with whole_file(path) as partial:
        partial.write_text("new")
        assert path.read_text() == "old"

    assert path.read_text() == "new"
    assert [file.name for file in tmp_path.iterdir()] == ["out"]


def test_an_exception_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("old")

    def fill_the_disk() -> None:
        with whole_file(path) as partial:
            partial.write_text("half")
            raise OSError("disk full")

    with pytest.raises(OSError, match="full"):
        fill_the_disk()

    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["out"]


def test_a_program_names_the_stage_the_fault_and_the_command_to_repeat_it(tmp_path: Path) -> None:
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"not a GGUF file")
    command = [
        sys.executable,
        trace.__file__,
        f"--gguf={bad}",
        "--context=8",
        "--label=//a:b.traced",
    ]
    command += [f"--module={tmp_path / 'module'}", f"--description={tmp_path / 'description'}"]

    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )

    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"trace: {bad}: starts with 0x20746f6e; no GGUF file",
        "to repeat this stage alone: tools/bazelw build //a:b.traced",
    ]
    assert [file.name for file in tmp_path.iterdir()] == ["bad.gguf"]
