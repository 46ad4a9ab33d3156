"""The fusion pass, IR in and IR out: what it fuses, and what it must not."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from export.errors import ExportError
from export.passes import block_quant_fusion
from tests.passes.mlir import rewrite

HEAD = """
module {
  func.func @main(%x: tensor<1x1x64xf32>, %y: tensor<1x1x64xf32>) -> tensor<1x1x8xf32> {
    %q = stablehlo.constant dense<3> : tensor<2x32x8xi8>
    %s = stablehlo.constant dense<0.5> : tensor<2x1x8xbf16>
    %z = stablehlo.constant dense<1.5> : tensor<2x1x8xbf16>
    %wide = stablehlo.convert %q : (tensor<2x32x8xi8>) -> tensor<2x32x8xf32>
    %sf = stablehlo.convert %s : (tensor<2x1x8xbf16>) -> tensor<2x1x8xf32>
    %sb = stablehlo.broadcast_in_dim %sf, dims = [0, 1, 2]
        : (tensor<2x1x8xf32>) -> tensor<2x32x8xf32>
"""
ZERO_POINT = """
    %zf = stablehlo.convert %z : (tensor<2x1x8xbf16>) -> tensor<2x1x8xf32>
    %zb = stablehlo.broadcast_in_dim %zf, dims = [0, 1, 2]
        : (tensor<2x1x8xf32>) -> tensor<2x32x8xf32>
    %centred = stablehlo.subtract %wide, %zb : tensor<2x32x8xf32>
    %w = stablehlo.multiply %centred, %sb : tensor<2x32x8xf32>
"""
NO_ZERO_POINT = "    %w = stablehlo.multiply %wide, %sb : tensor<2x32x8xf32>\n"
FLATTEN = "    %m = stablehlo.reshape %w : (tensor<2x32x8xf32>) -> tensor<64x8xf32>\n"
DOT = """
    %r = stablehlo.dot_general %x, %m, contracting_dims = [2] x [0]
        : (tensor<1x1x64xf32>, tensor<64x8xf32>) -> tensor<1x1x8xf32>
"""
TAIL = "    return %r : tensor<1x1x8xf32>\n  }\n}\n"


@pytest.mark.parametrize("scaling", [ZERO_POINT, NO_ZERO_POINT])
def test_dequantise_and_dot_general_become_one_call(scaling: str, tmp_path: Path) -> None:
    text = HEAD + scaling + FLATTEN + DOT + TAIL

    out, counts = rewrite(tmp_path, text, partial(block_quant_fusion.fuse, expected=1))

    main, outlined = out.split("func.func private")
    assert counts == block_quant_fusion.FusionCounts(fused=1, parts=1)
    assert main.count("call @block_quant_matmul.0(%arg0, ") == 1
    assert "torq.block_quant_matmul = {block_size = 32 : i64, parts = 1 : i64}" in outlined
    assert "dot_general" not in main
    assert "convert" not in main
    assert outlined.count("stablehlo.dot_general") == 1


def test_two_matmuls_of_one_signature_share_their_function(tmp_path: Path) -> None:
    second = DOT.replace("%r", "%r2").replace("%x", "%y").replace("%m", "%m2")
    again = (NO_ZERO_POINT + FLATTEN).replace("%w ", "%w2 ").replace("%m ", "%m2 ")
    add = "    %sum = stablehlo.add %r, %r2 : tensor<1x1x8xf32>\n"
    text = HEAD + NO_ZERO_POINT + FLATTEN + DOT + again + second + add
    text += TAIL.replace("return %r", "return %sum")

    out, counts = rewrite(tmp_path, text, partial(block_quant_fusion.fuse, expected=2))

    assert counts.fused == 2
    assert out.count("func.func private") == 1


def two_parts_that_meet(axis: int, joined: str, second_x: str = "%x") -> str:
    """Two packed matmuls, of %x and another input, whose results meet along an axis."""
    again = (NO_ZERO_POINT + FLATTEN).replace("%w ", "%w2 ").replace("%m ", "%m2 ")
    second = DOT.replace("%r", "%r2").replace("%m", "%m2").replace("%x", second_x)
    join = f"""    %j = stablehlo.concatenate %r, %r2, dim = {axis}
        : (tensor<1x1x8xf32>, tensor<1x1x8xf32>) -> tensor<{joined}xf32>
"""
    text = HEAD + NO_ZERO_POINT + FLATTEN + DOT + again + second + join + TAIL
    text = text.replace("return %r : tensor<1x1x8xf32>", f"return %j : tensor<{joined}xf32>")
    return text.replace("-> tensor<1x1x8xf32> {\n    %q", f"-> tensor<{joined}xf32> {{\n    %q")


def test_columns_that_meet_in_a_concatenate_are_one_matmul_of_two_parts(tmp_path: Path) -> None:
    text = two_parts_that_meet(2, "1x1x16")

    out, counts = rewrite(tmp_path, text, partial(block_quant_fusion.fuse, expected=1))

    assert counts == block_quant_fusion.FusionCounts(fused=1, parts=2)
    assert "parts = 2" in out
    assert "concatenate" not in out.split("func.func private")[0]


def test_columns_of_two_inputs_are_two_matmuls(tmp_path: Path) -> None:
    text = two_parts_that_meet(2, "1x1x16", second_x="%y")

    out, counts = rewrite(tmp_path, text, partial(block_quant_fusion.fuse, expected=2))

    assert counts == block_quant_fusion.FusionCounts(fused=2, parts=2)
    assert "concatenate" in out


NOT_OURS = {
    "q is an argument": (
        "%q = stablehlo.constant dense<3> : tensor<2x32x8xi8>",
        (
            "%a = stablehlo.constant dense<3> : tensor<2x32x8xi8>\n"
            "    %q = stablehlo.add %a, %a : tensor<2x32x8xi8>"
        ),
    ),
    "the scale is one of the whole block": (
        "%s = stablehlo.constant dense<0.5> : tensor<2x1x8xbf16>",
        (
            "%s0 = stablehlo.constant dense<0.5> : tensor<2x1x8xbf16>\n"
            "    %s = stablehlo.negate %s0 : tensor<2x1x8xbf16>"
        ),
    ),
    "another axis is contracted": (
        "contracting_dims = [2] x [0]\n        : (tensor<1x1x64xf32>, tensor<64x8xf32>)",
        "contracting_dims = [2] x [1]\n        : (tensor<1x1x64xf32>, tensor<8x64xf32>)",
    ),
    "an addition stands for the scaling": ("stablehlo.multiply", "stablehlo.add"),
}


@pytest.mark.parametrize("name", NOT_OURS)
def test_what_only_looks_alike_is_left_and_named(name: str, tmp_path: Path) -> None:
    old, new = NOT_OURS[name]
    text = HEAD + NO_ZERO_POINT + FLATTEN + DOT + TAIL
    assert old in text
    text = text.replace(old, new)
    if name == "another axis is contracted":
        text = text.replace("-> tensor<64x8xf32>\n", "-> tensor<8x64xf32>\n")

    with pytest.raises(ExportError, match=r"0 matmuls fused, 1 expected; not fused: .*constant"):
        rewrite(tmp_path, text, partial(block_quant_fusion.fuse, expected=1))


SCALE = "%s = stablehlo.constant dense<0.5> : tensor<2x1x8xbf16>"
WIDEN_SCALE = "%sf = stablehlo.convert %s : (tensor<2x1x8xbf16>) -> tensor<2x1x8xf32>"
BROADCAST = """%sb = stablehlo.broadcast_in_dim %sf, dims = [0, 1, 2]
        : (tensor<2x1x8xf32>) -> tensor<2x32x8xf32>"""
CHANGED = {
    "the left side is contracted on another axis": [
        ("tensor<1x1x64xf32>", "tensor<64x1x1xf32>"),
        ("contracting_dims = [2] x [0]", "contracting_dims = [0] x [0]"),
    ],
    "the columns are a batch": [
        ("tensor<1x1x64xf32>", "tensor<8x64xf32>"),
        (
            "contracting_dims = [2] x [0]",
            "batching_dims = [0] x [1], contracting_dims = [1] x [0]",
        ),
        ("tensor<1x1x8xf32>", "tensor<8xf32>"),
    ],
    "every value has a scale of its own": [
        (SCALE, SCALE.replace("2x1x8", "2x32x8")),
        (WIDEN_SCALE, WIDEN_SCALE.replace("2x1x8", "2x32x8")),
        (BROADCAST, BROADCAST.replace("2x1x8", "2x32x8")),
    ],
    "the scale is broadcast in another order": [
        (SCALE, SCALE.replace("2x1x8", "8x1x2")),
        (WIDEN_SCALE, WIDEN_SCALE.replace("2x1x8", "8x1x2")),
        (BROADCAST, BROADCAST.replace("2x1x8", "8x1x2").replace("[0, 1, 2]", "[2, 1, 0]")),
    ],
    "the blocks are reshaped to another matrix": [
        ("tensor<64x8xf32>", "tensor<16x32xf32>"),
        ("tensor<1x1x64xf32>", "tensor<1x1x16xf32>"),
        ("tensor<1x1x8xf32>", "tensor<1x1x32xf32>"),
    ],
}


@pytest.mark.parametrize("name", CHANGED)
def test_another_form_is_left_and_named(name: str, tmp_path: Path) -> None:
    text = HEAD + NO_ZERO_POINT + FLATTEN + DOT + TAIL
    for old, new in CHANGED[name]:
        assert old in text
        text = text.replace(old, new)

    with pytest.raises(ExportError, match="0 matmuls fused, 1 expected"):
        rewrite(tmp_path, text, partial(block_quant_fusion.fuse, expected=1))


def test_a_zero_point_of_every_value_is_left_and_named(tmp_path: Path) -> None:
    scaling = ZERO_POINT.replace("%wide, %zb", "%wide, %wide")
    text = HEAD + scaling + FLATTEN + DOT + TAIL

    with pytest.raises(ExportError, match="0 matmuls fused, 1 expected"):
        rewrite(tmp_path, text, partial(block_quant_fusion.fuse, expected=1))


def test_results_that_meet_along_another_axis_are_two_matmuls(tmp_path: Path) -> None:
    text = two_parts_that_meet(1, "1x2x8")

    _, counts = rewrite(tmp_path, text, partial(block_quant_fusion.fuse, expected=2))

    assert counts == block_quant_fusion.FusionCounts(fused=2, parts=2)


def test_one_matmul_too_many_is_refused_too(tmp_path: Path) -> None:
    text = HEAD + NO_ZERO_POINT + FLATTEN + DOT + TAIL

    with pytest.raises(ExportError, match="1 matmuls fused, 0 expected"):
        rewrite(tmp_path, text, partial(block_quant_fusion.fuse, expected=0))


def test_a_matmul_of_floats_is_left_alone(tmp_path: Path) -> None:
    text = """
func.func @main(%x: tensor<1x64xf32>, %w: tensor<64x8xf32>) -> tensor<1x8xf32> {
  %r = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
      : (tensor<1x64xf32>, tensor<64x8xf32>) -> tensor<1x8xf32>
  return %r : tensor<1x8xf32>
}
"""

    out, counts = rewrite(tmp_path, text, partial(block_quant_fusion.fuse, expected=0))

    assert counts.fused == 0
    assert "dot_general" in out
