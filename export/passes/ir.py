"""MLIR modules in and out, and the few helpers that every pass needs.

The bindings are those of iree-base-compiler: they register StableHLO, linalg and tensor alike, so
each pass edits and verifies real operations.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from iree.compiler import ir

from export.errors import ExportError
from export.files import whole_file


@contextmanager
def module_from(path: Path) -> Iterator[ir.Module]:
    """The module in a file of MLIR bytecode or text, inside its own context.

    Raises ExportError where the file does not parse.
    """
    with ir.Context(), ir.Location.unknown():
        try:
            # parseFile maps the file aligned, which resources in bytecode need.
            module = ir.Module.parseFile(str(path))
        except ir.MLIRError as error:
            raise ExportError(f"{path}: no MLIR module that this release reads: {error}") from None
        yield module


def write_bytecode(module: ir.Module, path: Path) -> None:
    """Verifies the module and writes it as bytecode: to a temporary file first, then renamed.

    Raises ExportError where it does not verify, which is a fault of the pass before it.
    """
    try:
        module.operation.verify()
    except ir.MLIRError as error:
        raise ExportError(f"{path}: the module does not verify: {error}") from None
    with whole_file(path) as partial, partial.open("wb") as file:
        module.operation.write_bytecode(file)


def operations(module: ir.Module) -> Iterator[ir.Operation]:
    """Every operation under the module, parents first, as a snapshot that may be edited."""
    found: list[ir.Operation] = []

    def visit(operation: ir.Operation) -> ir.WalkResult:
        found.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return iter(found[1:])


def functions(module: ir.Module) -> dict[str, ir.Operation]:
    """The module's functions by name."""
    return {
        ir.StringAttr(op.attributes["sym_name"]).value: op.operation
        for op in module.body.operations
        if op.operation.name == "func.func"
    }


def producer(value: ir.Value, name: str) -> ir.Operation | None:
    """The operation `name` that makes a value, or None where something else does."""
    owner = value.owner
    if isinstance(owner, ir.Block):
        return None
    operation: ir.Operation = owner.operation
    return operation if operation.name == name else None


def callee(operation: ir.Operation) -> str:
    """The name of the function that a func.call calls; "" for any other operation."""
    if operation.name != "func.call":
        return ""
    return str(ir.FlatSymbolRefAttr(operation.attributes["callee"]).value)


def where(operation: ir.Operation) -> str:
    """What an error calls an operation: its name and its location."""
    return f"{operation.name} at {operation.location!s}"


def erase_dead(candidates: list[ir.Operation]) -> None:
    """Erases those of the given pure operations that have no use left, users before producers."""
    for operation in reversed(candidates):
        if not any(True for result in operation.results for _ in result.uses):
            operation.erase()
