"""Lowers a bf16 module to Torq's form, compiles it, and refuses a program that is not as it must be.

compile --module=IN.mlirbc --program=OUT.vmfb --counts=OUT.json --timeline=OUT.csv
        --tools=FOLDER --flag=…
"""

from __future__ import annotations

import importlib.metadata
import os
import tempfile
from pathlib import Path
from typing import Any

from absl import flags
from iree.compiler import ir

from export import cli
from export.errors import ExportError
from export.passes import ir as passes_ir
from export.passes import torq_lowering
from export.passes.block_quant_fusion import COMPOSITE
from export.torq import kernels, timeline
from third_party.torq.torq_tools import TorqTools

_MODULE = flags.DEFINE_string("module", None, "The bf16 module.", required=True)
_PROGRAM = flags.DEFINE_string("program", None, "Where the program goes.", required=True)
_COUNTS = flags.DEFINE_string("counts", None, "Where the counts go.", required=True)
_TIMELINE = flags.DEFINE_string("timeline", None, "Where the timeline goes.", required=True)
_TOOLS = flags.DEFINE_string("tools", None, "The folder of torq-compile.", required=True)
_FLAG = flags.DEFINE_multi_string("flag", [], "A flag of torq-compile.")
_TIMEOUT = flags.DEFINE_float("timeout", 3600, "Seconds that torq-compile may take.")


def compile_module(
    module: Path, program: Path, timeline_csv: Path, tools: TorqTools, compiler_flags: list[str],
    timeout: float,
) -> dict[str, Any]:
    """Compiles a bf16 module; returns what was counted, as JSON values.

    Raises ExportError unless the program is one dispatch in which every fused matmul became
    mixed_quant_matmul; ToolError where torq-compile fails.
    """
    with tempfile.TemporaryDirectory(dir=program.parent) as scratch:
        lowered, compiled = Path(scratch) / "step.torq.mlirbc", Path(scratch) / "step.vmfb"
        with passes_ir.module_from(module) as bf16_module:
            projections = _projections(bf16_module)
            counts = torq_lowering.lower_to_torq(bf16_module)
            passes_ir.write_bytecode(bf16_module, lowered)
        csv = Path(scratch) / "timeline.csv"
        profiling = ["--torq-enable-profiling", f"--torq-dump-profiling={csv}"]
        output = [str(lowered), "-o", str(compiled)]
        dump = tools.compile(
            [*compiler_flags, *profiling, *kernels.PRINT_FLAGS, *output], timeout
        )
        dispatches = tools.dispatches(compiled)
        if len(dispatches) != 1:
            raise ExportError(
                f"the program has {len(dispatches)} dispatches ({', '.join(dispatches[:8])}); one "
                "was expected: is --iree-input-type=stablehlo-torq among the flags?"
            )
        tiles = kernels.check_projections(kernels.tiles_by_location(dump), projections)
        os.replace(csv, timeline_csv)
        os.replace(compiled, program)
    return {
        "dispatches": len(dispatches),
        "projections": len(projections),
        "parts": counts.parts,
        "mixed_quant_matmul_tiles": sum(tiles.values()),
        "tiles": tiles,
        "timeline": timeline.summarise(timeline_csv),
        "flags": compiler_flags,
        "tools": {"iree-base-compiler": importlib.metadata.version("iree-base-compiler")},
    }


def _projections(module: ir.Module) -> list[str]:
    """The locations of the fused matmuls, by which the compiled kernels are found again."""
    names = [
        str(operation.location.name_str)
        for operation in passes_ir.operations(module)
        if operation.name == "stablehlo.composite"
        and ir.StringAttr(operation.attributes["name"]).value == COMPOSITE
    ]
    if len(set(names)) != len(names):
        raise ExportError("two fused matmuls share a location; their kernels cannot be told apart")
    return names


def main() -> None:
    """Compiles and writes the program, the counts and the timeline."""
    counts = compile_module(
        Path(_MODULE.value),
        Path(_PROGRAM.value),
        Path(_TIMELINE.value),
        TorqTools(Path(_TOOLS.value)),
        _FLAG.value,
        _TIMEOUT.value,
    )
    cli.write_json(Path(_COUNTS.value), counts)


if __name__ == "__main__":
    cli.run("compile", main)
