"""Compiles a bf16 module for the NPU, and refuses a program that is not as it must be."""

from __future__ import annotations

import importlib.metadata
import os
import tempfile
from pathlib import Path
from typing import Any

from iree.compiler import ir

from export.errors import ExportError
from export.passes import ir as passes_ir
from export.passes import islands, torq_lowering
from export.passes.block_quant_fusion import calls
from export.torq import kernels, timeline
from third_party.torq.torq_tools import TorqTools


def compile_module(
    module: Path,
    program: Path,
    timeline_csv: Path,
    tools: TorqTools,
    compiler_flags: list[str],
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
            islands.lower_islands(bf16_module)
            passes_ir.write_bytecode(bf16_module, lowered)
        csv = Path(scratch) / "timeline.csv"
        printed = [*compiler_flags, *kernels.PRINT_FLAGS]
        dump = tools.compile(lowered, compiled, printed, timeout, timeline=csv)
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
    names = [str(call.location.name_str) for call, _ in calls(module)]
    if len(set(names)) != len(names):
        raise ExportError("two fused matmuls share a location; their kernels cannot be told apart")
    return names
