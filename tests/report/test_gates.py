"""Gates: what passes, what fails a build, and what its error says."""

from __future__ import annotations

import math

import pytest

from export.errors import ExportError
from tools.report import gates

LIMITS = {"head_cosine": 0.998, "bf16_top_1": 0.98}


def test_values_at_their_limits_pass() -> None:
    found = gates.gates({"head_cosine": 0.998, "bf16_top_1": 1.0}, LIMITS)

    assert [gate["passed"] for gate in found] == [True, True]
    gates.require(found)


@pytest.mark.parametrize("value", [0.9979, math.nan])
def test_a_gate_that_fails_is_named_with_value_limit_and_reference(value: float) -> None:
    found = gates.gates({"head_cosine": value, "bf16_top_1": 1.0}, LIMITS)

    with pytest.raises(ExportError, match=r"1 of 2.*head_cosine is .*0\.998.*the exact head"):
        gates.require(found)


def test_an_unknown_gate_is_refused() -> None:
    with pytest.raises(ExportError, match=r"unknown head_cosin; known: .*head_cosine"):
        gates.check_names({"head_cosin": 1.0})
