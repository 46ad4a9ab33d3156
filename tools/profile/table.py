"""Where a step's time goes, of its timeline: totals, the limit, and the heaviest operations."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from export.torq import kernels
from export.torq.timeline import Task

_FUNCTION = re.compile(r"^jit\(\w+\)/")
_LAYER = re.compile(r"^blk\.\d+\b")
_READ = "DMA In"


@dataclass
class Operation:
    """What the tasks of one operation take, summed over the layers.

    read, slices, core: units of DMA in, of both slices, of the RISC-V core. size: bytes in.
    """

    name: str
    read: int = 0
    slices: int = 0
    core: int = 0
    size: int = 0
    tasks: int = 0


@dataclass(frozen=True)
class Profile:
    """A step of a timeline.

    end: units. packed: bytes of the weights. operations: the heaviest first.
    """

    end: int
    packed: int
    operations: tuple[Operation, ...]

    @property
    def read(self) -> int:
        """Units in which DMA in is busy."""
        return sum(operation.read for operation in self.operations)

    @property
    def size(self) -> int:
        """Bytes in by DMA."""
        return sum(operation.size for operation in self.operations)

    @property
    def tasks(self) -> int:
        """The number of tasks."""
        return sum(operation.tasks for operation in self.operations)

    @property
    def rate(self) -> float:
        """Bytes in a unit while DMA in is busy; 0 where nothing is read."""
        return self.size / self.read if self.read else 0.0

    @property
    def limit(self) -> float:
        """Units that reading the packed weights once takes, at that rate."""
        return self.packed / self.rate if self.rate else 0.0


def operation_of(location: str) -> str:
    """An operation by its location: `blk.*/ffn_down`, the same for all layers."""
    name = kernels.location_name(location)
    if name is None:
        return "(no location)"
    return "/".join(_LAYER.sub("blk.*", _FUNCTION.sub("", name)).split("/")[:2])


def profile(tasks: Iterable[Task], packed: int) -> Profile:
    """The profile of a step whose packed weights have so many bytes."""
    operations: dict[str, Operation] = {}
    end = 0
    for task in tasks:
        end = max(end, task.start + task.units)
        name = operation_of(task.location)
        operation = operations.setdefault(name, Operation(name))
        operation.tasks += 1
        if task.event == _READ:
            operation.read += task.units
            operation.size += task.size
        elif task.event.startswith("Slice"):
            operation.slices += task.units
        elif task.event == "CSS":
            operation.core += task.units
    heaviest = sorted(
        operations.values(), key=lambda found: (-found.read - found.slices - found.core, found.name)
    )
    return Profile(end, packed, tuple(heaviest))


def text(found: Profile, rows: int) -> str:
    """A profile as lines of text: totals, then a table of so many operations."""
    share = f"{found.read / found.end:.1%}" if found.end else "0.0%"
    times = f"{found.end / found.limit:.2f} times" if found.limit else "any number of times"
    lines = [
        f"one step   {found.end:,} units, {found.tasks:,} tasks; by the compiler's timeline",
        f"DMA in     {found.read:,} units, {share} of the step",
        f"           {found.size:,} bytes, {found.rate:.2f} in a unit",
        f"the limit  {found.limit:,.0f} units: {found.packed:,} bytes of weights, read once",
        f"           the step takes {times} as long",
        "",
        f"{'operation':32}{'DMA in':>12}{'slices':>12}{'RISC-V':>12}{'bytes in':>14}{'tasks':>8}",
    ]
    lines += [
        f"{row.name:32}{row.read:12,}{row.slices:12,}{row.core:12,}{row.size:14,}{row.tasks:8,}"
        for row in found.operations[:rows]
    ]
    if others := found.operations[rows:]:
        lines.append(f"and {len(others)} more; --rows={len(found.operations)} prints all")
    return "\n".join(lines)
