"""What is read out of torq-compile's dump and timeline, on lines as it writes them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from export.errors import ExportError
from export.torq import kernels, timeline

DESCRIPTOR = (
    '  %i, %c = torq_hl.descriptor "slice_program_torq_hl.{}_20" on 0 program %2 : <slice> '
)
DUMP = "\n".join(
    [
        DESCRIPTOR.format("mixed_quant_matmul") + 'code [1, 0] loc("blk.0/attn_q/dot_general")',
        DESCRIPTOR.format("mixed_quant_matmul") + 'code [2, 0] loc("blk.0/attn_q/dot_general")',
        DESCRIPTOR.format("broadcast") + 'code [3] loc("blk.0/attn_q/dot_general")',
        DESCRIPTOR.format("matmul") + 'code [4] loc(callsite("attention/dot_general" at "main"))',
        DESCRIPTOR.format("mul") + "code [5] loc(unknown)",
        '  %7 = memref.get_global @__const_descriptor_slice_program_torq_hl.mul_1_1 loc("x")',
    ]
)
HEADER = "taskId, elapsed_time(us), timestamp(us), event, location, bytes\n"


def test_tiles_are_counted_by_location_and_kernel() -> None:
    assert kernels.tiles_by_location(DUMP) == {
        "blk.0/attn_q/dot_general": Counter(
            {"torq_hl.mixed_quant_matmul": 2, "torq_hl.broadcast": 1}
        ),
        "attention/dot_general": Counter({"torq_hl.matmul": 1}),
        "unknown": Counter({"torq_hl.mul": 1}),
    }


def test_a_projection_of_mixed_tiles_passes_with_their_number() -> None:
    tiles = kernels.tiles_by_location(DUMP)

    found = kernels.check_projections(tiles, ["blk.0/attn_q/dot_general"])

    assert found == {"blk.0/attn_q/dot_general": 2}


@pytest.mark.parametrize(
    ("location", "why"),
    [("attention/dot_general", "torq_hl.matmul"), ("blk.9/ffn_up", "no matmul kernel")],
)
def test_a_projection_of_another_kernel_or_none_is_named(location: str, why: str) -> None:
    tiles = kernels.tiles_by_location(DUMP)

    with pytest.raises(ExportError, match=rf"1 of 2 projections .*{location} \({why}\)"):
        kernels.check_projections(tiles, ["blk.0/attn_q/dot_general", location])


def test_a_projection_of_both_kernels_is_named() -> None:
    both = {"here": Counter({"torq_hl.mixed_quant_matmul": 3, "torq_hl.matmul": 1})}

    with pytest.raises(ExportError, match=r"here \(torq_hl\.matmul\)"):
        kernels.check_projections(both, ["here"])


def test_a_timeline_is_summed_by_kind_of_task(tmp_path: Path) -> None:
    path = tmp_path / "timeline.csv"
    rows = [
        '0,135,0,DMA In,loc("a"),640',
        "1,50,100,Slice 0,loc(unknown),0",
        "2,5,300,DMA In,loc,8",
    ]
    path.write_text(HEADER + "\n".join(rows) + "\n")

    assert timeline.summarise(path) == {
        "end": 305,
        "tasks": 3,
        "busy": {"DMA In": 140, "Slice 0": 50},
        "bytes": {"DMA In": 648},
    }


@pytest.mark.parametrize("content", ["", "a,b\n", HEADER.replace("bytes", "size")])
def test_a_timeline_of_other_columns_is_named(content: str, tmp_path: Path) -> None:
    path = tmp_path / "timeline.csv"
    path.write_text(content)

    with pytest.raises(ExportError, match=r"timeline\.csv: columns .* were expected"):
        timeline.summarise(path)
