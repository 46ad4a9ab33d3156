"""Prints where the time of one step goes on the NPU, by the compiler's own timeline.

profile --timeline=FILE.csv --description=FILE.json [--rows=N] [--json]

The timeline is deterministic, so it ranks variants of a program; whether a board follows it is not
measured: a task of the RISC-V core counts 8,000 units there, whatever it does.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from absl import flags

from export import cli
from export.torq import timeline
from tools.profile import table

_TIMELINE = flags.DEFINE_string("timeline", None, "The compiler's timeline, CSV.", required=True)
_DESCRIPTION = flags.DEFINE_string("description", None, "JSON of the traced step.", required=True)
_ROWS = flags.DEFINE_integer("rows", 20, "Operations to print.", lower_bound=0)
_JSON = flags.DEFINE_bool("json", False, "Print JSON, with every operation.")


def main() -> None:
    """Reads both files and prints."""
    tensors = cli.read_json(Path(_DESCRIPTION.value))["tensors"]
    packed = sum(tensor["bytes"] for tensor in tensors)
    found = table.profile(timeline.tasks(Path(_TIMELINE.value)), packed)
    if _JSON.value:
        totals = {"rate": found.rate, "limit": found.limit, "read": found.read, "size": found.size}
        print(json.dumps(asdict(found) | totals, indent=2))
    else:
        print(table.text(found, _ROWS.value))


if __name__ == "__main__":
    cli.run("profile", main)
