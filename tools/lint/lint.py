"""Formats, lints and type-checks this workspace.

lint          says what is not as it must be, and fails
lint --fix    mends what can be mended, and says the rest
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from absl import app, flags

_FIX = flags.DEFINE_bool("fix", False, "Mend what can be mended.")
_RUFF = flags.DEFINE_string("ruff", None, "The ruff program.", required=True)
_BUILDIFIER = flags.DEFINE_string("buildifier", None, "The buildifier program.", required=True)
_PYTHON = flags.DEFINE_string("python", None, "The workspace's interpreter.", required=True)
_ROOT = flags.DEFINE_string("root", "", "A file at the workspace's root; by default, bazel run's.")

_MYPY = ["--cache-dir=/dev/null", "--no-error-summary"]
_FOLDERS = ["export", "runtime", "tests", "third_party", "tools"]


def workspace(marker: str) -> Path:
    """The workspace: where `bazel run` was called, or where a marker file really lies."""
    return (
        Path(marker).resolve().parent if marker else Path(os.environ["BUILD_WORKSPACE_DIRECTORY"])
    )


def commands(root: Path, fix: bool) -> list[list[str]]:
    """The linters' command lines, for the workspace as their working directory."""
    ruff, buildifier, python = (
        str(Path(program.value).absolute()) for program in (_RUFF, _BUILDIFIER, _PYTHON)
    )
    names = ("WORKSPACE", "BUILD.bazel", "*.bzl")
    starlark = [root / name for name in names[:2]]
    for folder in _FOLDERS:
        starlark += [file for name in names for file in (root / folder).rglob(name)]
    files = [str(file) for file in sorted(starlark)]
    mode = ["--mode=fix", "--lint=fix"] if fix else ["--mode=check", "--lint=warn"]
    # Native py and sh rules are what both supported Bazels have.
    warnings = "--warnings=-native-py,-native-sh-binary,-module-docstring"
    return [
        [ruff, "format", "--no-cache", *([] if fix else ["--diff"]), "."],
        [ruff, "check", "--no-cache", "--quiet", *(["--fix"] if fix else []), "."],
        [sys.executable, "-m", "mypy", f"--python-executable={python}", *_MYPY, *_FOLDERS],
        [buildifier, *mode, warnings, *files],
    ]


def main(_: list[str]) -> None:
    """Runs every linter; fails if one does."""
    root = workspace(_ROOT.value)
    failed = []
    for command in commands(root, _FIX.value):
        name = Path(command[0]).name if "mypy" not in command else "mypy"
        print(f"{name} {command[1]}" if name == "ruff" else name, flush=True)
        if subprocess.run(command, cwd=root, check=False).returncode:
            failed.append(name)
    if failed:
        names = ", ".join(dict.fromkeys(failed))
        sys.exit(f"lint: {names} failed; tools/bazelw run //tools/lint -- --fix mends most")


if __name__ == "__main__":
    app.run(main)
