"""Which kernels a compiled program runs, by the location of the operation they came from.

torq-compile 2.3.0 prints the whole dispatch once after `torq-outline-nss-programs`. There each
tile has one `torq_hl.descriptor "slice_program_KERNEL_NUMBER"`, whose location is that of the
operation in the input; their number is that of the program starts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from export.errors import ExportError

MIXED_QUANT_MATMUL = "torq_hl.mixed_quant_matmul"

PRINT_FLAGS = (
    "--mlir-print-ir-after=torq-outline-nss-programs",
    "--mlir-print-debuginfo",
    # Elided, a step's dump is about 2 MB a layer; with its constants it would be gigabytes.
    "--mlir-elide-elementsattrs-if-larger=16",
)

_DESCRIPTOR = re.compile(r'torq_hl\.descriptor "slice_program_([\w.]+)_\d+".* loc\((.*)\)$')
_NAME = re.compile(r'"([^"]*)"')

Tiles = dict[str, Counter[str]]


def location_name(location: str) -> str | None:
    """The innermost name in a location as MLIR prints it; None without one, as in loc(unknown)."""
    found = _NAME.search(location)
    return found[1] if found else None


def tiles_by_location(dump: str) -> Tiles:
    """The number of tiles of each kernel, by location; kernels as in "torq_hl.matmul"."""
    tiles: Tiles = {}
    for line in dump.splitlines():
        if match := _DESCRIPTOR.search(line):
            kernel, location = match.groups()
            tiles.setdefault(location_name(location) or location, Counter())[kernel] += 1
    return tiles


def check_projections(tiles: Tiles, projections: Iterable[str]) -> dict[str, int]:
    """The mixed_quant_matmul tiles of each projection, by location.

    Raises ExportError, naming the projections, where one has none, or has tiles of another matmul
    kernel: its weights would be unpacked, or its generic kernel slow.
    """
    counts, wrong = {}, []
    for location in projections:
        kernels = tiles.get(location, Counter())
        counts[location] = kernels[MIXED_QUANT_MATMUL]
        generic = [k for k in kernels if "matmul" in k and k != MIXED_QUANT_MATMUL]
        if generic or not counts[location]:
            wrong.append(f"{location} ({', '.join(generic) or 'no matmul kernel'})")
    if wrong:
        raise ExportError(
            f"{len(wrong)} of {len(counts)} projections did not become {MIXED_QUANT_MATMUL}: "
            + "; ".join(wrong[:5])
        )
    return counts
