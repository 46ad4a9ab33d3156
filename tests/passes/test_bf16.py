"""The bf16 pass, IR in and IR out, and its rounding."""

from __future__ import annotations

import struct
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from export.errors import ExportError
from export.passes import bf16
from tests.passes.mlir import rewrite

# f32 bits and the bf16 bits that IEEE 754 round-to-nearest-even gives; case 9.
ROUNDING = {
    "one": (0x3F800000, 0x3F80),
    "a tie goes down to even": (0x3F808000, 0x3F80),
    "a tie goes up to even": (0x3F818000, 0x3F82),
    "just above a tie": (0x3F808001, 0x3F81),
    "just below a tie": (0x3F807FFF, 0x3F80),
    "largest finite f32 becomes infinity": (0x7F7FFFFF, 0x7F80),
    "largest finite bf16 stays": (0x7F7F0000, 0x7F7F),
    "infinity": (0x7F800000, 0x7F80),
    "minus infinity": (0xFF800000, 0xFF80),
    "subnormal tie to zero": (0x00008000, 0x0000),
    "subnormal": (0x00018000, 0x0002),
    "smallest subnormal": (0x00000001, 0x0000),
    "minus zero": (0x80000000, 0x8000),
}
NANS = [0x7FFFFFFF, 0x7F800001, 0xFFC00000, 0xFF800001]


def floats(bits: list[int]) -> np.ndarray:
    return np.array(bits, np.uint32).view(np.float32)


@pytest.mark.parametrize("name", ROUNDING)
def test_rounding_is_to_nearest_even(name: str) -> None:
    wide, narrow = ROUNDING[name]

    assert int(bf16.round_to_bf16(floats([wide])).view(np.uint16)[0]) == narrow


@pytest.mark.parametrize("bits", NANS)
def test_nan_stays_nan(bits: int) -> None:
    assert np.isnan(bf16.round_to_bf16(floats([bits])).astype(np.float32)).all()


def test_rounding_equals_that_of_xla() -> None:
    values = np.random.default_rng(0).integers(0, 2**32, 100_000, dtype=np.uint32).view(np.float32)
    expected = np.asarray(jnp.asarray(values).astype(jnp.bfloat16).astype(jnp.float32))

    np.testing.assert_array_equal(bf16.round_to_bf16(values).astype(np.float32), expected)


def test_constants_are_rounded_and_types_follow(tmp_path: Path) -> None:
    # Above a hundred elements MLIR prints a constant as hex, which can be compared bit by bit.
    bits = [wide for wide, _ in ROUNDING.values()] * 10
    dense = struct.pack(f"<{len(bits)}I", *bits).hex().upper()
    text = f"""
func.func @main(%x: tensor<{len(bits)}xf32>) -> tensor<{len(bits)}xf32> {{
  %c = stablehlo.constant dense<"0x{dense}"> : tensor<{len(bits)}xf32>
  %r = stablehlo.add %x, %c : tensor<{len(bits)}xf32>
  return %r : tensor<{len(bits)}xf32>
}}
"""

    out, counts = rewrite(tmp_path, text, bf16.to_bf16)

    narrow = [bits for _, bits in ROUNDING.values()] * 10
    assert struct.pack(f"<{len(narrow)}H", *narrow).hex().upper() in out
    assert "f32" not in out
    assert counts.constants == 1


def test_a_splat_stays_a_splat(tmp_path: Path) -> None:
    text = """
func.func @main() -> tensor<4xf32> {
  %c = stablehlo.constant dense<1.00390625> : tensor<4xf32>
  return %c : tensor<4xf32>
}
"""

    out, _ = rewrite(tmp_path, text, bf16.to_bf16)

    assert "dense<1.000000e+00> : tensor<4xbf16>" in out


def test_regions_and_helper_functions_are_converted(tmp_path: Path) -> None:
    text = """
func.func @main(%x: tensor<4x8xf32>) -> tensor<4xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %y = call @helper(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %r = stablehlo.reduce(%y init: %zero) across dimensions = [1]
      : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
   reducer(%a: tensor<f32>, %b: tensor<f32>) {
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }
  return %r : tensor<4xf32>
}
func.func private @helper(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  return %x : tensor<4x8xf32>
}
"""

    out, _ = rewrite(tmp_path, text, bf16.to_bf16)

    assert "f32" not in out
    assert "tensor<4x8xbf16>) -> tensor<4xbf16> {" in out


def test_a_conversion_between_the_two_disappears_and_others_stay(tmp_path: Path) -> None:
    text = """
func.func @main(%x: tensor<4xbf16>, %i: tensor<4xi8>) -> tensor<4xf32> {
  %a = stablehlo.convert %x : (tensor<4xbf16>) -> tensor<4xf32>
  %b = stablehlo.convert %i : (tensor<4xi8>) -> tensor<4xf32>
  %r = stablehlo.add %a, %b : tensor<4xf32>
  return %r : tensor<4xf32>
}
"""

    out, counts = rewrite(tmp_path, text, bf16.to_bf16)

    assert counts.conversions == 1
    assert out.count("stablehlo.convert") == 1
    assert "(tensor<4xi8>) -> tensor<4xbf16>" in out


def test_a_module_in_bf16_is_left_as_it_is(tmp_path: Path) -> None:
    text = "func.func @main(%x: tensor<4xbf16>) -> tensor<4xbf16> {\n return %x : tensor<4xbf16>\n}"

    _, counts = rewrite(tmp_path, text, bf16.to_bf16)

    assert counts == bf16.Bf16Counts(
        values=0, constants=0, conversions=0, islands=0, wide_matmuls=0
    )


REFUSED = {
    "f64": (
        (
            "func.func @main(%x: tensor<4xf64>) -> tensor<4xf64> {\n"
            '  %r = stablehlo.add %x, %x : tensor<4xf64> loc("blk.3/attention/add")\n'
            "  return %r : tensor<4xf64>\n}"
        ),
        r"stablehlo.add at .*blk\.3/attention/add.* tensor<4xf64>",
    ),
    "a complex": (
        (
            "func.func @main(%x: tensor<4xcomplex<f32>>) -> tensor<4xcomplex<f32>> {\n"
            '  %r = stablehlo.add %x, %x : tensor<4xcomplex<f32>> loc("here")\n'
            "  return %r : tensor<4xcomplex<f32>>\n}"
        ),
        "complex<f32>",
    ),
    "an f16": (
        (
            "func.func @main(%x: tensor<4xf16>) -> tensor<4xf16> {\n"
            '  %r = stablehlo.add %x, %x : tensor<4xf16> loc("here")\n'
            "  return %r : tensor<4xf16>\n}"
        ),
        "add at .*here.* tensor<4xf16>",
    ),
    "f32 elements in an attribute": (
        (
            "func.func @main(%x: tensor<4xbf16>) -> tensor<4xbf16> {\n"
            "  %r = stablehlo.custom_call @f(%x) {mhlo.table = dense<1.5> : tensor<2xf32>}\n"
            '      : (tensor<4xbf16>) -> tensor<4xbf16> loc("here")\n'
            "  return %r : tensor<4xbf16>\n}"
        ),
        "custom_call at .*here.* type tensor<2xf32>",
    ),
    "a tuple": (
        (
            "func.func @main(%x: tensor<4xf32>) -> tuple<tensor<4xf32>> {\n"
            '  %r = stablehlo.tuple %x : tuple<tensor<4xf32>> loc("here")\n'
            "  return %r : tuple<tensor<4xf32>>\n}"
        ),
        "tuple<tensor<4xf32>>",
    ),
    "a resource": (
        (
            "func.func @main() -> tensor<2xf32> {\n"
            '  %r = stablehlo.constant dense_resource<w> : tensor<2xf32> loc("blk.0/norm")\n'
            "  return %r : tensor<2xf32>\n}\n"
            '{-# dialect_resources: { builtin: { w: "0x040000000000803F00000040" } } #-}'
        ),
        r"stablehlo.constant at .*blk\.0/norm.* keeps f32 values in a resource",
    ),
    "an f32 attribute": (
        (
            "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n"
            "  %r = stablehlo.custom_call @f(%x) {mhlo.scale = 1.5 : f32}\n"
            '      : (tensor<4xf32>) -> tensor<4xf32> loc("here")\n'
            "  return %r : tensor<4xf32>\n}"
        ),
        "custom_call at .*here.* type f32",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_become_bf16_is_refused_with_its_location(name: str, tmp_path: Path) -> None:
    text, message = REFUSED[name]

    with pytest.raises(ExportError, match=message):
        rewrite(tmp_path, text, bf16.to_bf16)
