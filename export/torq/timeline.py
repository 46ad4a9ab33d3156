"""The compiler's own timeline of a program, a CSV of tasks, in its uncalibrated units.

It is deterministic, so it ranks variants of a program; whether the board follows it is not
measured. Overlapping tasks of different units each have a row of their own.
"""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from typing import Any

from export.errors import ExportError

_COLUMNS = ["taskId", "elapsed_time(us)", "timestamp(us)", "event", "location", "bytes"]


def summarise(path: Path) -> dict[str, Any]:
    """End of the last task, busy units by kind of task, and bytes moved, as JSON values.

    Raises ExportError where the file has other columns than torq-compile 2.3.0 writes.
    """
    with path.open(newline="") as file:
        rows = csv.reader(file, skipinitialspace=True)
        if (header := next(rows, [])) != _COLUMNS:
            raise ExportError(f"{path}: columns {header}; {_COLUMNS} were expected")
        end, units, moved, tasks = 0, Counter[str](), Counter[str](), 0
        for _, elapsed, start, event, _, size in rows:
            end = max(end, int(start) + int(elapsed))
            units[event] += int(elapsed)
            moved[event] += int(size or 0)
            tasks += 1
    return {
        "end": end,
        "tasks": tasks,
        "busy": dict(units),
        "bytes": {event: size for event, size in moved.items() if size},
    }
