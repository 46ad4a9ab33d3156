"""The compiler's own timeline of a program, a CSV of tasks, in its uncalibrated units.

It is deterministic, so it ranks variants of a program; whether the board follows it is not
measured. Overlapping tasks of different units each have a row of their own.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from export.errors import ExportError

_COLUMNS = ["taskId", "elapsed_time(us)", "timestamp(us)", "event", "location", "bytes"]


class Task(NamedTuple):
    """One row of a timeline.

    event: what does it, such as "DMA In", "Slice 0" or "CSS", the RISC-V core.
    start, units: in the compiler's units. location: of the operation in the module, as MLIR.
    size: bytes moved.
    """

    event: str
    start: int
    units: int
    location: str
    size: int


def tasks(path: Path) -> Iterator[Task]:
    """The rows of a timeline, in the file's order.

    Raises ExportError where the file has other columns than torq-compile 2.3.0 writes.
    """
    with path.open(newline="") as file:
        rows = csv.reader(file, skipinitialspace=True)
        if (header := next(rows, [])) != _COLUMNS:
            raise ExportError(f"{path}: columns {header}; {_COLUMNS} were expected")
        for _, units, start, event, location, size in rows:
            yield Task(event, int(start), int(units), location, int(size or 0))


def summarise(path: Path) -> dict[str, Any]:
    """End of the last task, busy units by kind of task, and bytes moved, as JSON values.

    Raises ExportError as `tasks` does.
    """
    end, units, moved, count = 0, Counter[str](), Counter[str](), 0
    for task in tasks(path):
        end = max(end, task.start + task.units)
        units[task.event] += task.units
        moved[task.event] += task.size
        count += 1
    return {
        "end": end,
        "tasks": count,
        "busy": dict(units),
        "bytes": {event: size for event, size in moved.items() if size},
    }
