"""What every program of the export shares: how it starts, and how it fails."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from absl import app, flags

from export.errors import ExportError
from export.files import whole_file
from third_party.torq.torq_tools import ToolError

_LABEL = flags.DEFINE_string("label", "", "The Bazel target that runs this program.")


def run(stage: str, main: Callable[[], None]) -> None:
    """Runs a program; bad input ends it with the stage's name, what is wrong, and status 1."""

    def guarded(arguments: list[str]) -> None:
        if len(arguments) > 1:
            raise app.UsageError(f"unknown argument {arguments[1]}")
        try:
            main()
        except (ExportError, ToolError) as error:
            print(f"{stage}: {error}", file=sys.stderr)
            if _LABEL.value:
                print(
                    f"to repeat this stage alone: tools/bazelw build {_LABEL.value}",
                    file=sys.stderr,
                )
            sys.exit(1)

    app.run(guarded)


def read_json(path: Path) -> Any:
    """The value in a file of JSON that an earlier stage wrote."""
    return json.loads(path.read_text("utf-8"))


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Writes JSON that is the same for the same value."""
    with whole_file(path) as partial:
        partial.write_text(
            json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n", "utf-8"
        )
