"""What the report reads back from a module, what it simulates, and what it calls sound."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from gguf import quants

from export.errors import ExportError
from export.gguf import reader
from export.models.read import read_config
from export.trace import lower
from export.trace.packing import Packing
from export.trace.weights import packed_weights
from tests.toy.toy import Toy
from tools.report import simulated, stages
from tools.report.module_weights import packed_matrices
from tools.texts import Text

TEXTS = [Text("prose", tuple(range(30))), Text("code", tuple(range(9)))]
TYPES = {"attn_q": "Q8_0", "attn_k": "Q5_0", "ffn_up": "Q4_1", "ffn_down": "Q4_0"}


def test_matrices_of_a_module_are_the_files_to_the_rounding_of_scales(tmp_path: Path) -> None:
    path = Toy(default_type="Q8_0", types=TYPES).write(tmp_path / "toy.gguf")
    gguf = reader.read(path)
    config = read_config(gguf)
    module = lower.trace(config, 16, packed_weights(gguf, config, Packing()))
    lower.write_bytecode(module, tmp_path / "step.mlirbc")

    found = stages.dequantised(packed_matrices(tmp_path / "step.mlirbc"), np.dtype(np.float32))

    assert len(found) == 7 * config.layers + 1
    for name, matrix in found.items():
        tensor = gguf.tensor(name if name != "output.weight" else config.head)
        exact = quants.dequantize(tensor.data, tensor.type).reshape(tensor.shape).T
        # Rounded to 8 bits, a scale or a zero point is off by 1 part in 512 at most.
        np.testing.assert_allclose(matrix, exact, rtol=0, atol=np.abs(exact).max() / 100)
        assert matrix.shape == exact.shape


def test_a_module_without_packed_constants_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.mlir").write_text("module {}")

    with pytest.raises(ExportError, match=r"empty\.mlir: no packed constants"):
        packed_matrices(tmp_path / "empty.mlir")


@pytest.mark.parametrize("cap", [None, 30.0])
def test_the_devices_head_gives_bf16_logits(cap: float | None) -> None:
    random = np.random.default_rng(0)
    hidden = random.standard_normal((5, 64)).astype(ml_dtypes.bfloat16).astype(np.float32)
    matrix = random.standard_normal((64, 300)).astype(ml_dtypes.bfloat16)

    found = stages.device_head(matrix, cap)(hidden)

    exact = stages.exact_head(matrix.astype(np.float32), cap)(hidden)
    np.testing.assert_array_equal(found, found.astype(ml_dtypes.bfloat16).astype(np.float32))
    np.testing.assert_allclose(found, exact, rtol=2.0**-6, atol=1e-3)


@pytest.mark.parametrize(
    ("spelled", "message"),
    [
        ("prose", "NAME:POSITION"),
        ("verse:3", "prose, code"),
        ("prose:x", "NAME:POSITION"),
        ("code:9", "the text has 9 tokens"),
        ("prose:16", "the bundle 16 positions"),
    ],
)
def test_a_step_that_cannot_be_is_named(spelled: str, message: str) -> None:
    with pytest.raises(ExportError, match=message):
        simulated.Place.parse(spelled, TEXTS, 16)


def test_a_step_is_found_by_its_name_and_position() -> None:
    assert simulated.Place.parse("code:8", TEXTS, 16) == simulated.Place(1, 8)


def result(value: float) -> dict[str, np.ndarray]:
    return {"logits": np.full(4, value, np.float32), "hidden": np.ones(2, np.float32)}


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ([result(1), result(2)], True),
        ([result(1), result(1)], False),
        ([result(1), result(np.nan)], False),
        ([result(1), result(np.inf)], False),
        ([result(1), result(0)], False),
    ],
)
def test_equal_zero_and_infinite_results_are_not_sound(
    results: list[dict[str, np.ndarray]], expected: bool
) -> None:
    assert simulated.sound(results) is expected
