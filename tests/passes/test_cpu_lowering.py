"""The CPU's form of the fused matmul: what it is made of, and what it refuses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from export.errors import ExportError
from export.passes import cpu_lowering
from export.passes.fused_lowering import LoweringCounts
from tests.passes.mlir import rewrite
from tests.torq.matmul import random_matmul


def in_f32(text: str) -> str:
    """The module of a bf16 matmul with a row of f32 and a result of f32."""
    return text.replace("tensor<1x1x128xbf16>", "tensor<1x1x128xf32>")


@pytest.mark.parametrize(
    ("bits", "zero_point", "sums"), [(8, False, 2), (8, True, 3), (4, True, 3)]
)
def test_weights_are_summed_as_they_are_packed(
    bits: int, zero_point: bool, sums: int, tmp_path: Path
) -> None:
    text = in_f32(random_matmul(bits=bits, zero_point=zero_point).module())
    text = text.replace("tensor<1x1x64xbf16>", "tensor<1x1x64xf32>")

    out, counts = rewrite(tmp_path, text, cpu_lowering.lower_to_cpu)

    assert counts == LoweringCounts(lowered=1, parts=1)
    assert out.count("linalg.generic") == sums
    assert re.search(rf"arith.sitofp %in\w* : i{bits} to f32", out)
    # No weight is written out wide: [4, 32, 64] would be.
    assert "tensor<4x32x64xf32>" not in out
    assert "call @" not in out


def test_bf16_is_refused_with_the_location(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"func.call at .*tensor<1x1x128xbf16>; one row of f32"):
        rewrite(tmp_path, random_matmul().module(), cpu_lowering.lower_to_cpu)


def test_two_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"tensor<1x2x128xbf16>; one row of f32 was expected"):
        rewrite(tmp_path, random_matmul(rows=2).module(), cpu_lowering.lower_to_cpu)
