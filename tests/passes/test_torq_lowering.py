"""Torq's form of the fused matmul, IR in and IR out; tests/torq runs it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from export.errors import ExportError
from export.passes import torq_lowering
from export.passes.fused_lowering import LoweringCounts
from tests.passes.mlir import rewrite
from tests.torq.matmul import random_matmul


@pytest.mark.parametrize(("bits", "zero_point"), [(8, False), (8, True), (4, True)])
def test_a_fused_call_becomes_the_form_that_torq_raises(
    bits: int, zero_point: bool, tmp_path: Path
) -> None:
    text = random_matmul(bits=bits, zero_point=zero_point).module()

    out, counts = rewrite(tmp_path, text, torq_lowering.lower_to_torq)

    body = [
        line.strip().split(" = ", 1)[-1].split(" ")[0].split("(")[0] for line in out.splitlines()
    ]
    order = [name for name in body if name.startswith(("arith.s", "arith.m", "tensor.", "linalg."))]
    assert order == [
        "tensor.empty",
        "linalg.generic",
        "arith.sitofp",
        "linalg.yield",
        "linalg.generic",
        "arith.subf",
        "linalg.yield",
        "linalg.generic",
        "arith.mulf",
        "linalg.yield",
        "tensor.collapse_shape",
        "tensor.expand_shape",
        "tensor.empty",
        "linalg.fill",
        "linalg.batch_matmul",
    ]
    assert f"arith.sitofp %in : i{bits} to bf16" in out
    assert (
        bool(re.search(r"arith.constant dense<0.0+e\+00> : tensor<4x1x64xbf16>", out)) != zero_point
    )
    assert counts == LoweringCounts(lowered=1, parts=1)
    assert "call @" not in out
    assert "func.func private" not in out


def test_two_rows_are_refused_with_the_location(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"func.call at .*matmul.* tensor<1x2x128xbf16>; one row"):
        rewrite(tmp_path, random_matmul(rows=2).module(), torq_lowering.lower_to_torq)


def test_f32_is_refused(tmp_path: Path) -> None:
    text = random_matmul().module().replace("tensor<1x1x128xbf16>", "tensor<1x1x128xf32>")

    with pytest.raises(ExportError, match=r"multiplies tensor<1x1x128xf32>; one row of bf16"):
        rewrite(tmp_path, text, torq_lowering.lower_to_torq)


def test_a_call_of_another_function_is_left_alone(tmp_path: Path) -> None:
    text = random_matmul().module().replace("torq.block_quant_matmul", "torq.another")

    out, counts = rewrite(tmp_path, text, torq_lowering.lower_to_torq)

    assert counts.lowered == 0
    assert "call @fused" in out
