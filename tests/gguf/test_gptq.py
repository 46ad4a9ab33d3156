"""The 4-bit quantiser: its error against numpy's and gguf's, its edges."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from gguf import quants
from gguf.constants import GGMLQuantizationType as Type

from export.errors import ExportError
from export.gguf import gptq, reader
from export.gguf.dense import dense
from tests.toy.toy import Toy

N, K = 200, 128


@pytest.fixture(scope="module")
def problem() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values, inputs whose columns go together and differ in size, and their second moment."""
    random = np.random.default_rng(0)
    values = random.standard_normal((N, K)).astype(np.float32)
    mixing = random.standard_normal((K, K)) * np.exp(random.standard_normal(K))
    inputs = random.standard_normal((4000, K)) @ mixing
    return values, inputs, inputs.T @ inputs / len(inputs)


def error(values: np.ndarray, found: np.ndarray, inputs: np.ndarray) -> float:
    wanted = inputs @ values.T
    return float(np.square(inputs @ found.T - wanted).mean() / np.square(wanted).mean())


def test_results_are_nearer_than_those_of_ggufs_four_bits(
    problem: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    values, inputs, moment = problem

    ours = error(values, gptq.quantise(values, moment).dequantise(), inputs)

    for kind in (Type.Q4_0, Type.Q4_1):
        plain = quants.dequantize(quants.quantize(values, kind), kind)
        assert ours < 0.5 * error(values, plain, inputs)


def test_later_columns_make_up_for_earlier_ones(
    problem: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    values, inputs, moment = problem
    alone = gptq.quantise(values, np.diag(np.diag(moment)))

    together = gptq.quantise(values, moment)

    assert error(values, together.dequantise(), inputs) < 0.7 * error(
        values, alone.dequantise(), inputs
    )


def test_without_correlation_q_is_the_nearest_to_its_value(
    problem: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    values = problem[0]
    found = gptq.quantise(values, np.eye(K))

    assert found.zero_point is not None
    blocks = values.reshape(N, -1, 32)
    nearest = np.rint(blocks / found.scale[..., None] + found.zero_point[..., None])
    np.testing.assert_array_equal(found.q, np.clip(nearest, -8, 7))


def test_scale_and_zero_point_are_bf16_and_scales_positive(
    problem: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    found = gptq.quantise(problem[0], problem[2])

    assert found.zero_point is not None
    for numbers in (found.scale, found.zero_point):
        np.testing.assert_array_equal(numbers, numbers.astype(ml_dtypes.bfloat16))
    assert (found.scale > 0).all()
    assert found.q.min() >= -8
    assert found.q.max() <= 7


@pytest.mark.parametrize("value", [0.0, 3.7, -2.5, 1e-30])
def test_a_block_of_one_value_is_that_value_to_bf16(value: float) -> None:
    found = gptq.quantise(np.full((3, 64), value, np.float32), np.eye(64))

    expected = np.float32(ml_dtypes.bfloat16(value))
    np.testing.assert_allclose(found.dequantise(), expected, rtol=1e-6)
    assert found.zero_point is not None
    assert np.abs(found.zero_point).max() == 0


def test_inputs_that_were_never_seen_still_give_finite_blocks() -> None:
    values = np.random.default_rng(1).standard_normal((4, 64)).astype(np.float32)

    found = gptq.quantise(values, np.zeros((64, 64)))

    np.testing.assert_allclose(found.dequantise(), values, atol=0.4)


def test_a_mean_row_that_is_taken_off_makes_the_rest_smaller(tmp_path: Path) -> None:
    tensor = reader.read(Toy(default_type="Q8_0").write(tmp_path / "toy.gguf")).tensor(
        "token_embd.weight"
    )
    packed, mean = gptq.pack(tensor, np.eye(64), centred=True)

    assert mean is not None
    np.testing.assert_allclose(mean, dense(tensor).mean(axis=0), rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(packed.dequantise() + mean, dense(tensor), atol=0.04)
    assert (packed.packed_type, packed.bits) == ("Q4_GPTQ", 4)


@pytest.mark.parametrize("moment", [np.eye(32), np.full((64, 64), np.nan)])
def test_a_moment_of_another_model_is_refused_by_name(moment: np.ndarray) -> None:
    with pytest.raises(ExportError, match=r"blk\.0\.attn_q.*importance.*\(64, 64\)"):
        gptq.quantise(np.zeros((4, 64), np.float32), moment, "blk.0.attn_q")
