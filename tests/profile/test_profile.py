"""The profile of a step, on a timeline made by hand and on that of a toy."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from export.errors import ExportError
from export.torq import timeline
from tools.profile import table

HEADER = "taskId, elapsed_time(us), timestamp(us), event, location, bytes\n"
ROWS = """\
0,100,0,DMA In,loc("jit(step)/blk.0/ffn_up/dot_general"),500
1,50,100,DMA In,loc("jit(step)/blk.11/ffn_up/dot_general"),250
2,40,100,Slice 1,loc("jit(step)/blk.0/ffn_up/dot_general"),
3,8000,150,CSS,loc(callsite("blk.1/rope/mul" at "main")),
4,7,8150,DMA Out,loc(unknown),30
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "timeline.csv"
    path.write_text(text)
    return path


def test_layers_are_summed_and_the_limit_is_the_weights_at_the_rate_of_dma(tmp_path: Path) -> None:
    found = table.profile(timeline.tasks(written(tmp_path, HEADER + ROWS)), packed=600)

    assert (found.end, found.tasks, found.read, found.size) == (8157, 5, 150, 750)
    assert (found.rate, found.limit) == (5.0, 120.0)
    rope, up, nameless = found.operations
    assert (rope.name, rope.core, rope.read, rope.tasks) == ("blk.*/rope", 8000, 0, 1)
    assert (up.name, up.read, up.slices, up.size, up.tasks) == ("blk.*/ffn_up", 150, 40, 750, 3)
    assert (nameless.name, nameless.size, nameless.tasks) == ("(no location)", 0, 1)


def test_the_text_has_the_heaviest_operations_and_says_what_it_leaves_out(tmp_path: Path) -> None:
    found = table.profile(timeline.tasks(written(tmp_path, HEADER + ROWS)), packed=500)

    lines = table.text(found, 2).splitlines()

    assert "81.57 times" in lines[4]
    assert lines[7].split() == ["blk.*/rope", "0", "0", "8,000", "0", "1"]
    assert lines[8].split() == ["blk.*/ffn_up", "150", "40", "0", "750", "3"]
    assert lines[9:] == ["and 1 more; --rows=3 prints all"]


def test_a_timeline_without_tasks_has_no_limit(tmp_path: Path) -> None:
    found = table.profile(timeline.tasks(written(tmp_path, HEADER)), packed=600)

    assert (found.end, found.rate, found.limit, found.operations) == (0, 0.0, 0.0, ())
    assert "any number of times" in table.text(found, 20)


def test_a_file_of_other_columns_is_refused_by_name(tmp_path: Path) -> None:
    path = written(tmp_path, "a,b\n1,2\n")

    with pytest.raises(ExportError, match=r"timeline\.csv: columns .* were expected"):
        list(timeline.tasks(path))


def test_a_real_timeline_adds_up_to_what_the_manifest_says() -> None:
    workspace = os.environ["TEST_WORKSPACE"]
    folder = Path(os.environ["TEST_SRCDIR"]) / workspace / "tests" / "toy"
    manifest = json.loads((folder / "toy_torq" / "manifest.json").read_text())
    said = manifest["timeline"]

    found = table.profile(timeline.tasks(folder / "toy_torq.vmfb.timeline.csv"), packed=1)

    assert found.end == said["end"]
    assert found.tasks == said["tasks"]
    assert (found.read, found.size) == (said["busy"]["DMA In"], said["bytes"]["DMA In"])
    assert any(operation.name == "blk.*/ffn_down" for operation in found.operations)
