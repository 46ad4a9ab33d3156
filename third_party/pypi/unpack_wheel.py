"""Unpacks a wheel into a Bazel repository and writes its BUILD file.

unpack_wheel.py WHEEL FOLDER PYTHON_VERSION [LOCKED_PACKAGE ...]

Run by the repository rule, with the host's Python: pip is there, and with it the markers' parser.
"""

import email.parser
import pathlib
import shutil
import sys
import zipfile

from pip._vendor.packaging.requirements import Requirement

BUILD = """package(default_visibility = ["//visibility:public"])

py_library(
    name = "lib",
    srcs = glob(["lib/**/*.py"], exclude = {excluded}, allow_empty = True),
    data = glob(["lib/**"], exclude = ["lib/**/*.py"] + {excluded}, allow_empty = True),
    imports = ["lib"],
    deps = {deps},
)

filegroup(
    name = "programs",
    srcs = glob(["bin/**"], allow_empty = True),
)

exports_files(glob(["bin/**"], allow_empty = True))
"""

# A test suite is no input of ours, and Bazel takes no label with a space.
EXCLUDED = ["lib/**/tests/**", "lib/**/* *", "lib/**/*.pyc"]


def unpack(wheel: pathlib.Path, folder: pathlib.Path) -> None:
    """Puts a wheel's modules under lib/ and its programs under bin/; no member may leave them."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            if member.is_dir():
                continue
            target = (folder / destination(member.filename)).resolve()
            if folder.resolve() not in target.parents:
                raise SystemExit(f"{wheel.name}: member {member.filename} leaves its folder")
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(member) as source, target.open("wb") as file:
                shutil.copyfileobj(source, file)
            executable = member.external_attr >> 16 & 0o100 or target.parent.name == "bin"
            target.chmod(0o755 if executable else 0o644)


def destination(member: str) -> str:
    """Where a member goes; NAME.data holds programs and modules under the scheme's names."""
    parts = member.split("/")
    if parts[0].endswith(".data") and len(parts) > 2:
        scheme, rest = parts[1], "/".join(parts[2:])
        return f"bin/{rest}" if scheme == "scripts" else f"lib/{rest}"
    return f"lib/{member}"


def dependencies(folder: pathlib.Path, version: str, locked: set[str]) -> list[str]:
    """The locked packages that this wheel requires on this Python."""
    (metadata,) = (folder / "lib").glob("*.dist-info/METADATA")
    headers = email.parser.Parser().parsestr(metadata.read_text("utf-8"))
    environment = {"python_version": version, "python_full_version": f"{version}.0", "extra": ""}
    required = set()
    for line in headers.get_all("Requires-Dist") or []:
        requirement = Requirement(line)
        name = requirement.name.lower().replace("-", "_").replace(".", "_")
        if name in locked and (not requirement.marker or requirement.marker.evaluate(environment)):
            required.add(name)
    return sorted(required)


def main(wheel: str, folder: str, version: str, *locked: str) -> None:
    """Unpacks one wheel and writes the repository's BUILD file."""
    root = pathlib.Path(folder)
    unpack(pathlib.Path(wheel), root)
    deps = [f"@pypi_{name}//:lib" for name in dependencies(root, version, set(locked))]
    (root / "BUILD.bazel").write_text(BUILD.format(excluded=EXCLUDED, deps=deps))


if __name__ == "__main__":
    main(*sys.argv[1:])
