"""The host's share of a step: what is measured, not how long it takes."""

from __future__ import annotations

import pytest

from runtime.bench_host import measure
from runtime.bundle import Bundle
from runtime.errors import RunError
from tests.runtime.toy_bundle import toy_file

STEPS = 6
PARTS = {"feed", "mask", "rescoring", "choice", "acceptance"}


def bundle() -> Bundle:
    return Bundle.open(toy_file("toy_torq"))


@pytest.mark.parametrize("constrained", [False, True])
def test_every_part_of_every_step_is_measured(constrained: bool) -> None:
    measured = measure(bundle(), STEPS, 3, constrained)

    assert measured.keys() == PARTS | {"step"}
    assert {len(values) for values in measured.values()} == {STEPS}
    assert all(value > 0 for values in measured.values() for value in values)


def test_a_step_is_the_sum_of_its_parts() -> None:
    measured = measure(bundle(), STEPS, 0, True)

    for step, whole in enumerate(measured["step"]):
        assert whole == pytest.approx(sum(measured[part][step] for part in PARTS))


def test_the_whole_context_can_be_measured() -> None:
    context = bundle().context

    assert len(measure(bundle(), context, 0, False)["step"]) == context


def test_steps_beyond_the_context_are_refused() -> None:
    context = bundle().context

    with pytest.raises(RunError, match=f"beyond the context of {context}"):
        measure(bundle(), 2, context - 1, False)
