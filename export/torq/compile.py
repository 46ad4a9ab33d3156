"""Compiles a bf16 module for the NPU.

compile --module=IN.mlirbc --program=OUT.vmfb --counts=OUT.json --timeline=OUT.csv
        --tools=FOLDER --flag=…
"""

from __future__ import annotations

from pathlib import Path

from absl import flags

from export import cli
from export.torq.compiler import compile_module
from third_party.torq.torq_tools import TorqTools

_MODULE = flags.DEFINE_string("module", None, "The bf16 module.", required=True)
_PROGRAM = flags.DEFINE_string("program", None, "Where the program goes.", required=True)
_COUNTS = flags.DEFINE_string("counts", None, "Where the counts go.", required=True)
_TIMELINE = flags.DEFINE_string("timeline", None, "Where the timeline goes.", required=True)
_TOOLS = flags.DEFINE_string("tools", None, "The folder of torq-compile.", required=True)
_FLAG = flags.DEFINE_multi_string("flag", [], "A flag of torq-compile.")
_TIMEOUT = flags.DEFINE_float("timeout", 3600, "Seconds that torq-compile may take.")


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
