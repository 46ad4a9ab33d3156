"""What stays float32 through the bf16 pass, IR in and IR out, and how islands are lowered."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from export.errors import ExportError
from export.passes import bf16, islands
from tests.passes.mlir import rewrite

ISLAND = """
func.func private @float32_f(%a: tensor<1x4xf32>, %b: tensor<1x1xf32>)
    -> (tensor<1x4xf32>, tensor<1x4xf32>) attributes {torq.float32} {
  %one = stablehlo.constant dense<1.5> : tensor<f32>
  %ones = stablehlo.broadcast_in_dim %one, dims = [] : (tensor<f32>) -> tensor<1x1xf32>
  %s = stablehlo.add %b, %ones : tensor<1x1xf32>
  %r = stablehlo.broadcast_in_dim %s, dims = [0, 1] : (tensor<1x1xf32>) -> tensor<1x4xf32>
  %v = stablehlo.multiply %a, %r : tensor<1x4xf32>
  %h = stablehlo.reduce_precision %v, format = e8m23 : tensor<1x4xf32>
  %l = stablehlo.subtract %v, %h : tensor<1x4xf32>
  return %h, %l : tensor<1x4xf32>, tensor<1x4xf32>
}
"""
DOT = """%s = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0],
    precision = [HIGHEST, HIGHEST] : (tensor<1x4xf32>, tensor<4x1xf32>) -> tensor<1x1xf32>"""
STEP = (
    ISLAND
    + f"""
func.func @main(%x: tensor<1x4xf32>, %y: tensor<4x1xf32>)
    -> (tensor<1x4xf32>, tensor<1x4xf32>, tensor<1x1xf32>) {{
  {DOT}
  %h, %l = call @float32_f(%x, %s) : (tensor<1x4xf32>, tensor<1x1xf32>)
    -> (tensor<1x4xf32>, tensor<1x4xf32>)
  %n = stablehlo.negate %s : tensor<1x1xf32>
  return %h, %l, %n : tensor<1x4xf32>, tensor<1x4xf32>, tensor<1x1xf32>
}}
"""
)


def test_an_island_is_float32_inside_and_bf16_at_its_edge(tmp_path: Path) -> None:
    text, counts = rewrite(tmp_path, STEP, bf16.to_bf16)

    signature = re.search(r"func.func private @float32_f\((.*?)\) -> \((.*?)\)", text)
    assert signature
    assert signature[1] == "%arg0: tensor<1x4xbf16>, %arg1: tensor<1x1xf32>"
    assert signature[2] == "tensor<1x4xbf16>, tensor<1x4xbf16>"
    assert "stablehlo.multiply %" in text
    assert re.search(r"stablehlo.multiply .* : tensor<1x4xf32>", text)
    assert (counts.islands, counts.wide_matmuls) == (1, 1)


def test_a_number_is_split_at_the_digits_of_bf16(tmp_path: Path) -> None:
    text, _ = rewrite(tmp_path, STEP, bf16.to_bf16)

    assert "format = e8m7" in text
    assert "e8m23" not in text


def test_a_matmul_of_highest_precision_is_rounded_only_where_no_island_reads_it(
    tmp_path: Path,
) -> None:
    text, _ = rewrite(tmp_path, STEP, bf16.to_bf16)

    dot = re.search(r"(%\w+) = stablehlo.dot_general (.*)", text)
    assert dot
    assert "HIGHEST" not in dot[2]
    assert "(tensor<1x4xbf16>, tensor<4x1xbf16>) -> tensor<1x1xf32>" in dot[2]
    assert re.search(rf"call @float32_f\(%\w+, {dot[1]}\)", text)
    rounded = re.search(rf"(%\w+) = stablehlo.convert {dot[1]} : .*bf16>", text)
    assert rounded
    assert f"stablehlo.negate {rounded[1]} : tensor<1x1xbf16>" in text


def test_the_other_shape_of_a_wide_result_stays_wide(tmp_path: Path) -> None:
    shaped = STEP.replace(
        "%h, %l = call @float32_f(%x, %s)",
        "%q = stablehlo.reshape %s : (tensor<1x1xf32>) -> tensor<1x1xf32>\n"
        "%h, %l = call @float32_f(%x, %q)",
    )

    text, _ = rewrite(tmp_path, shaped, bf16.to_bf16)

    assert re.search(r"stablehlo.reshape .* : \(tensor<1x1xf32>\) -> tensor<1x1xf32>", text)


def test_an_island_called_in_two_ways_is_refused_by_name(tmp_path: Path) -> None:
    both = STEP.replace(
        "%n = stablehlo.negate %s : tensor<1x1xf32>",
        "%n = stablehlo.negate %s : tensor<1x1xf32>\n"
        "%h2, %l2 = call @float32_f(%x, %n) : (tensor<1x4xf32>, tensor<1x1xf32>)\n"
        "    -> (tensor<1x4xf32>, tensor<1x4xf32>)",
    )

    with pytest.raises(ExportError, match="float32_f is called with 2 kinds of arguments"):
        rewrite(tmp_path, both, bf16.to_bf16)


def test_each_call_of_an_island_becomes_one_generic(tmp_path: Path) -> None:
    (tmp_path / "bf16.mlir").write_text(rewrite(tmp_path, STEP, bf16.to_bf16)[0])
    text, count = rewrite(tmp_path, (tmp_path / "bf16.mlir").read_text(), islands.lower_islands)

    assert count == 1
    assert text.count("linalg.generic") == 1
    assert "float32_f" not in text
    # The second argument has one element for all four.
    assert "affine_map<(d0, d1) -> (d0, 0)>" in text or "affine_map<(d0, d1) -> (0, 0)>" in text
    # Not extf of truncf, which torq-compile folds away.
    assert text.count("arith.bitcast") == 2
    assert text.count("arith.addf") == 1


MULTIPLY = "%v = stablehlo.multiply %a, %r : tensor<1x4xf32>"
TABLE = """%c = stablehlo.constant dense<[[1.0, 2.0, 3.0, 4.0]]> : tensor<1x4xf32>
%v = stablehlo.multiply %a, %c : tensor<1x4xf32>"""


@pytest.mark.parametrize(
    ("new", "message"),
    [
        (MULTIPLY.replace("multiply", "power"), "power.*is not elementwise"),
        (TABLE, "is no splat"),
    ],
)
def test_what_an_island_cannot_hold_is_refused_with_its_place(
    new: str, message: str, tmp_path: Path
) -> None:
    narrow, _ = rewrite(tmp_path, STEP.replace(MULTIPLY, new), bf16.to_bf16)

    with pytest.raises(ExportError, match=message):
        rewrite(tmp_path, narrow, islands.lower_islands)
