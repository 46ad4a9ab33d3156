"""Block formats: what a matrix says equals what gguf's own dequantisation says."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import quants
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from export.errors import ExportError
from export.gguf import blocks
from export.gguf.reader import Tensor
from tests.toy.toy import random_blocks

PACKED = ["Q8_0", "Q5_0", "Q5_1", "Q4_0", "Q4_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"]
QUANTISABLE = ["Q8_0", "Q5_0", "Q5_1", "Q4_0", "Q4_1"]
HALVES = {
    "Q8_0": (0,),
    "Q5_0": (0,),
    "Q4_0": (0,),
    "Q5_1": (0, 2),
    "Q4_1": (0, 2),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
}
SHAPE = (6, 512)

# A value is two roundings of float32 away from gguf's, each of an ulp of the block's largest.
ULPS = 2


def tensor(type_name: str, raw: np.ndarray, shape: tuple[int, ...] = SHAPE) -> Tensor:
    return Tensor("blk.0.test.weight", GGMLQuantizationType[type_name], shape, raw.reshape(-1))


def random_raw(type_name: str, seed: int = 0) -> np.ndarray:
    """Random blocks, uint8 [count, block bytes], scales of either sign."""
    random = np.random.default_rng(seed)
    block_size, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[type_name]]
    raw = random.integers(0, 256, (SHAPE[0] * SHAPE[1] // block_size, block_bytes), dtype=np.uint8)
    for offset in HALVES[type_name]:
        set_half(raw, offset, random.standard_normal(len(raw)) * 0.02)
    return raw


def set_half(raw: np.ndarray, offset: int, values: np.ndarray | float) -> None:
    halves = np.broadcast_to(np.asarray(values, np.float16), (len(raw),))
    raw[:, offset : offset + 2] = np.ascontiguousarray(halves)[:, None].view(np.uint8)


def assert_equals_gguf(type_name: str, raw: np.ndarray) -> blocks.PackedMatrix:
    matrix = blocks.pack(tensor(type_name, raw))
    expected = quants.dequantize(raw.reshape(SHAPE[0], -1), GGMLQuantizationType[type_name])
    by_block = expected.reshape(matrix.q.shape)
    ulp = np.spacing(np.abs(by_block).max(axis=-1, keepdims=True).astype(np.float32))
    error = np.abs(matrix.dequantise().reshape(matrix.q.shape) - by_block)
    assert (error <= ULPS * ulp).all()
    limit = 8 if matrix.bits == 4 else 128
    assert matrix.q.min() >= -limit
    assert matrix.q.max() < limit
    assert (matrix.scale >= 0).all()
    return matrix


@pytest.mark.parametrize("type_name", PACKED)
def test_random_blocks_equal_gguf(type_name: str) -> None:
    matrix = assert_equals_gguf(type_name, random_raw(type_name))

    assert matrix.packed_type == matrix.file_type == type_name
    assert matrix.shape == SHAPE


@pytest.mark.parametrize("half", [0.0, -0.0, 6e-8, -6e-8, 6e4, -6e4])
@pytest.mark.parametrize("type_name", PACKED)
def test_extreme_scales_equal_gguf(type_name: str, half: float) -> None:
    raw = random_raw(type_name)
    set_half(raw, HALVES[type_name][0], half)

    assert_equals_gguf(type_name, raw)


@pytest.mark.parametrize("type_name", [name for name in PACKED if len(HALVES[name]) == 2])
@pytest.mark.parametrize("minimum", [0.0, 1.5, -1.5, 6e4, -6e4])
def test_a_block_of_scale_zero_is_its_minimum(type_name: str, minimum: float) -> None:
    raw = random_raw(type_name)
    set_half(raw, HALVES[type_name][0], 0.0)
    set_half(raw, HALVES[type_name][1], minimum)

    assert_equals_gguf(type_name, raw)


@pytest.mark.parametrize("type_name", PACKED)
@pytest.mark.parametrize("fill", [0x00, 0xFF, 0x88])
def test_blocks_of_one_value_equal_gguf(type_name: str, fill: int) -> None:
    raw = np.full_like(random_raw(type_name), fill)
    for offset in HALVES[type_name]:
        set_half(raw, offset, -0.01)

    assert_equals_gguf(type_name, raw)


@pytest.mark.parametrize("type_name", PACKED)
@pytest.mark.parametrize("half", [np.nan, np.inf, -np.inf])
def test_a_scale_that_is_not_finite_is_refused(type_name: str, half: float) -> None:
    raw = random_raw(type_name)
    set_half(raw[3:4], HALVES[type_name][0], half)

    with pytest.raises(ExportError, match=r"blk\.0\.test\.weight: the scale of block"):
        blocks.pack(tensor(type_name, raw))


def test_rounding_keeps_q_and_moves_scale_and_zero_point_to_bf16() -> None:
    matrix = blocks.pack(tensor("Q4_K", random_raw("Q4_K")))

    rounded = matrix.rounded()

    assert rounded.q is matrix.q
    assert rounded.zero_point is not None
    assert matrix.zero_point is not None
    for narrow, wide in ((rounded.scale, matrix.scale), (rounded.zero_point, matrix.zero_point)):
        assert not (narrow.view(np.uint32) & 0xFFFF).any()
        assert (np.abs(narrow - wide) <= np.abs(wide) * 2.0**-8).all()


@pytest.mark.parametrize("target", QUANTISABLE)
@pytest.mark.parametrize("source", ["F32", "F16", "BF16", "IQ4_NL", "Q6_K"])
def test_requantising_equals_gguf_quantising_the_values(source: str, target: str) -> None:
    random = np.random.default_rng(1)
    kind, wanted = GGMLQuantizationType[source], GGMLQuantizationType[target]
    if source in ("IQ4_NL", "Q6_K"):
        raw = random_blocks(source, SHAPE, random)
    else:
        raw = quants.quantize(random.standard_normal(SHAPE).astype(np.float32), kind)
        raw = np.ascontiguousarray(raw).view(np.uint8)
    typed = raw.view({"F32": np.float32, "F16": np.float16}.get(source, np.uint8))
    values = quants.dequantize(typed, kind)

    matrix = blocks.pack(tensor(source, raw), requantise=target)

    expected = quants.dequantize(quants.quantize(values, wanted), wanted)
    np.testing.assert_allclose(matrix.dequantise(), expected, rtol=1e-5, atol=1e-6)
    assert (matrix.file_type, matrix.packed_type) == (source, target)


@pytest.mark.parametrize("source", ["F32", "F16", "BF16", "IQ4_NL"])
def test_a_type_without_a_packed_form_is_quantised_to_q8_0(source: str) -> None:
    random = np.random.default_rng(1)
    if source == "IQ4_NL":
        raw = random_blocks(source, SHAPE, random)
    else:
        values = random.standard_normal(SHAPE).astype(np.float32)
        raw = np.ascontiguousarray(quants.quantize(values, GGMLQuantizationType[source]))

    assert blocks.pack(tensor(source, raw.view(np.uint8))).packed_type == "Q8_0"


def test_a_packed_type_is_never_requantised_unasked() -> None:
    matrix = blocks.pack(tensor("Q5_1", random_raw("Q5_1")), quantise="Q4_0")

    assert matrix.packed_type == "Q5_1"


@pytest.mark.parametrize("source", ["F32", "F16"])
def test_rows_that_do_not_divide_into_blocks_are_refused(source: str) -> None:
    dtype = np.float32 if source == "F32" else np.float16
    raw = np.ones((2, 48), dtype).view(np.uint8)

    with pytest.raises(ExportError, match="rows of 48 values are no multiple of the 32"):
        blocks.pack(tensor(source, raw, (2, 48)))


def test_rows_of_one_block_are_refused() -> None:
    raw = np.zeros((2, 34), np.uint8)

    with pytest.raises(ExportError, match="rows of one block of 32 values"):
        blocks.pack(tensor("Q8_0", raw, (2, 32)))


def test_a_type_that_gguf_has_no_values_for_is_refused() -> None:
    with pytest.raises(ExportError, match="I8 has no packed form on Torq"):
        blocks.pack(tensor("I8", np.zeros(SHAPE, np.uint8)))


def test_a_vector_is_no_matrix() -> None:
    with pytest.raises(ExportError, match="a matrix was expected"):
        blocks.pack(tensor("F32", np.zeros(32, np.float32).view(np.uint8), (32,)))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused(value: float) -> None:
    raw = np.full(SHAPE, value, np.float32).view(np.uint8)

    with pytest.raises(ExportError, match="holds NaN or infinity"):
        blocks.pack(tensor("F32", raw))


def test_an_unknown_block_type_is_refused_before_any_work() -> None:
    with pytest.raises(ExportError, match="requantise=Q3_K: one of Q8_0"):
        blocks.pack(tensor("F32", np.zeros(SHAPE, np.float32).view(np.uint8)), requantise="Q3_K")
