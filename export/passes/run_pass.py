"""Runs one pass over a module of MLIR bytecode.

run_pass --pass=fuse --input=IN.mlirbc --output=OUT.mlirbc --description=STEP.json --counts=OUT.json
run_pass --pass=bf16 --input=IN.mlirbc --output=OUT.mlirbc --counts=OUT.json
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from absl import flags

from export import cli
from export.passes import bf16, block_quant_fusion
from export.passes import ir as passes_ir

_PASS = flags.DEFINE_enum("pass", None, ["fuse", "bf16"], "Which pass.", required=True)
_INPUT = flags.DEFINE_string("input", None, "The module to read.", required=True)
_OUTPUT = flags.DEFINE_string("output", None, "The module to write.", required=True)
_COUNTS = flags.DEFINE_string("counts", None, "Where the pass's counts go.", required=True)
_DESCRIPTION = flags.DEFINE_string("description", "", "The traced step's JSON; fuse needs it.")


def main() -> None:
    """Runs the pass and writes the module and the counts."""
    with passes_ir.module_from(Path(_INPUT.value)) as module:
        if _PASS.value == "fuse":
            expected = cli.read_json(Path(_DESCRIPTION.value))["fusions"]
            counts = asdict(block_quant_fusion.fuse(module, expected))
        else:
            counts = asdict(bf16.to_bf16(module))
        passes_ir.write_bytecode(module, Path(_OUTPUT.value))
    cli.write_json(Path(_COUNTS.value), counts)


if __name__ == "__main__":
    cli.run("run_pass", main)
