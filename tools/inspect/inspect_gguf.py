"""Says what a GGUF file is, whether Torq can take it, and what would come out, without a build.

    bazel run //tools/inspect -- FILE.gguf [--context=N] [--head=Q4_0] [--json]

--requantise, --quantise and --head mean what they mean to `torq_decoder`. Ends with status 0 where
Torq can take the file, 1 where it cannot, with every reason, and 2 where it is no GGUF file. The
sizes of weights and caches are counted; that of the program and the timeline are estimates, fitted
to programs that were compiled (tools/inspect/estimate.py), in a unit that no board has set.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from absl import app, flags

from export.errors import ExportError
from export.gguf import reader
from export.gguf.forms import GPTQ, QUANTISE_TYPES
from export.trace.packing import Packing
from tools.inspect.facts import facts
from tools.inspect.survey import survey
from tools.inspect.text import text

_CONTEXT = flags.DEFINE_integer(
    "context", None, "Positions of the cache; 1,024, or as many as the model knows.", lower_bound=1
)
_REQUANTISE = flags.DEFINE_enum(
    "requantise", "", ["", *QUANTISE_TYPES], "Bring every projection to this block type."
)
_QUANTISE = flags.DEFINE_enum(
    "quantise", "Q8_0", QUANTISE_TYPES, "The block type of projections without a packed form."
)
_HEAD = flags.DEFINE_enum(
    "head",
    "",
    ["", *QUANTISE_TYPES, GPTQ],
    "The block type of the head; as the projections if empty.",
)
_JSON = flags.DEFINE_bool("json", False, "Print JSON.")

_REFUSED, _UNREADABLE = 1, 2


def main(arguments: list[str]) -> int:
    """Prints what is known of the file."""
    if len(arguments) != 2:
        raise app.UsageError("one GGUF file was expected", exitcode=_UNREADABLE)
    packing = Packing(requantise=_REQUANTISE.value, quantise=_QUANTISE.value, head=_HEAD.value)
    try:
        gguf = reader.read(_path(arguments[1]))
    except ExportError as error:
        print(f"inspect: {error}", file=sys.stderr)
        return _UNREADABLE
    found = facts(survey(gguf, packing, _CONTEXT.value))
    print(json.dumps(found, indent=2, sort_keys=True) if _JSON.value else text(found))
    return 0 if found["torq_can_take_it"] else _REFUSED


def _path(name: str) -> Path:
    """A path as a person means it: `bazel run` starts programs elsewhere."""
    return Path(os.environ.get("BUILD_WORKING_DIRECTORY", "")) / Path(name).expanduser()


if __name__ == "__main__":
    app.run(main)
