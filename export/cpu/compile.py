"""Compiles a fused float32 module for the CPU of a development machine.

compile --module=IN.mlirbc --program=OUT.vmfb --counts=OUT.json --target=CPU --flag=…
"""

from __future__ import annotations

import io
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

from absl import flags, logging
from iree import compiler as iree_compiler

from export import cli
from export.errors import ExportError
from export.files import whole_file
from export.passes import cpu_lowering
from export.passes import ir as passes_ir

_MODULE = flags.DEFINE_string("module", None, "The fused module.", required=True)
_PROGRAM = flags.DEFINE_string("program", None, "Where the program goes.", required=True)
_COUNTS = flags.DEFINE_string("counts", None, "Where the counts go.", required=True)
_TARGET = flags.DEFINE_string("target", None, "The CPU, for the manifest.", required=True)
_FLAG = flags.DEFINE_multi_string("flag", [], "A flag of iree-compile.")


def main() -> None:
    """Lowers, compiles, and writes the program and the counts."""
    # The compiler's Python package says at length what it is going to do.
    logging.set_verbosity(logging.WARNING)
    with passes_ir.module_from(Path(_MODULE.value)) as module:
        counts = cpu_lowering.lower_to_cpu(module)
        lowered = io.BytesIO()
        module.operation.write_bytecode(lowered)
    with whole_file(Path(_PROGRAM.value)) as partial:
        try:
            # Not compile_file: iree-compile writes the name of its input into the program.
            iree_compiler.compile_str(
                lowered.getvalue(), output_file=str(partial), extra_args=_FLAG.value
            )
        except iree_compiler.CompilerToolError as error:
            raise ExportError(f"{_MODULE.value}: {error}") from None
    cli.write_json(
        Path(_COUNTS.value),
        {
            **asdict(counts),
            "target": _TARGET.value,
            "flags": _FLAG.value,
            "tools": {"iree-base-compiler": metadata.version("iree-base-compiler")},
        },
    )


if __name__ == "__main__":
    cli.run("compile_cpu", main)
