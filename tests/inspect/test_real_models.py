"""Real checkpoints: what is said of them, beside hand counts and what was measured."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from export.gguf import reader
from export.trace.packing import Packing
from tools.inspect.estimate import MEASURED
from tools.inspect.facts import facts
from tools.inspect.survey import survey
from tools.inspect.text import text

GEMMA, SMOLLM2 = "gemma3_270m", "smollm2_135m"
CONTEXTS = {GEMMA: 1024, SMOLLM2: 2048}
HEADS = {GEMMA: "Q4_GPTQ", SMOLLM2: ""}


def found(name: str) -> dict[str, Any]:
    path = Path(os.environ["TEST_SRCDIR"]) / name / "model.gguf"
    return facts(survey(reader.read(path), Packing(head=HEADS[name]), CONTEXTS[name]))


# By hand: 7 matrices a layer and the head, which 4 parts of 65,536 columns make in Gemma; embedded,
# cos and sin of each base, masks, and 2 caches a layer, or 2 in all where those would be 64.
@pytest.mark.parametrize(
    ("name", "fusions", "parts", "arguments", "stacked"),
    [(GEMMA, 7 * 18 + 1, 130, 1 + 4 + 2 + 36, False), (SMOLLM2, 7 * 30 + 1, 211, 6, True)],
)
def test_the_step_is_counted(
    name: str, fusions: int, parts: int, arguments: int, stacked: bool
) -> None:
    step = found(name)["step"]

    assert (step["fusions"], step["parts"]) == (fusions, parts)
    assert (step["arguments"], step["stacked_caches"]) == (arguments, stacked)


# By hand: K and V of 1 head of 256 in bf16, 15 layers of 512 rows and 3 of 1,024; of 3 heads of 64,
# 30 layers of 2,048 rows.
@pytest.mark.parametrize(
    ("name", "size"),
    [(GEMMA, 2 * 2 * 256 * (15 * 512 + 3 * 1024)), (SMOLLM2, 2 * 2 * 3 * 64 * 30 * 2048)],
)
def test_caches_are_counted(name: str, size: int) -> None:
    assert found(name)["step"]["cache_bytes"] == size


# Of //export:gemma3_270m_torq and //export:smollm2_135m_torq: the program's bytes, and the end of
# its timeline in units.
@pytest.mark.parametrize(
    ("name", "program", "end"),
    [(GEMMA, 205_096_313, 44_904_699), (SMOLLM2, 99_510_801, 38_572_467)],
)
def test_the_estimates_are_near_what_was_measured(name: str, program: float, end: float) -> None:
    estimate = found(name)["step"]["estimate"]

    assert estimate["program_bytes"] == pytest.approx(program, rel=0.02)
    assert estimate["end_units"] == pytest.approx(end, rel=0.03)


@pytest.mark.parametrize(("name", "index"), [(GEMMA, 0), (SMOLLM2, 1)])
def test_what_the_estimates_are_fitted_to_is_what_the_files_have(name: str, index: int) -> None:
    step, load = found(name)["step"], MEASURED[index].load

    assert (step["packed_bytes"], step["cache_bytes"]) == (load.packed, load.caches)
    assert step["estimate"]["end_units"] == load.end


@pytest.mark.parametrize(
    ("name", "licence", "tokenizer", "template", "parameters"),
    [
        (GEMMA, "gemma", "sentencepiece", False, 268_098_176),
        (SMOLLM2, "apache-2.0", "bpe", True, 134_515_008),
    ],
)
def test_the_models_are_described(
    name: str, licence: str, tokenizer: str, template: bool, parameters: int
) -> None:
    model = found(name)["model"]

    assert (model["licence"], model["tokenizer"]) == (licence, tokenizer)
    assert (model["chat_template"], model["parameters"]) == (template, parameters)


@pytest.mark.parametrize("name", CONTEXTS)
def test_torq_can_take_them(name: str) -> None:
    said = found(name)

    assert (said["torq_can_take_it"], said["reasons"]) == (True, [])
    assert max(map(len, text(said).splitlines())) <= 100
