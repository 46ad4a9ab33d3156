"""Modules of MLIR text for the tests of passes: in, and out again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from iree.compiler import ir

from export.passes import ir as passes_ir

Result = TypeVar("Result")


def rewrite(folder: Path, text: str, edit: Callable[[ir.Module], Result]) -> tuple[str, Result]:
    """Runs an edit on a module of text, verifies what it left; returns its text and the result."""
    path = folder / "module.mlir"
    path.write_text(text)
    with passes_ir.module_from(path) as module:
        result = edit(module)
        module.operation.verify()
        return str(module), result
