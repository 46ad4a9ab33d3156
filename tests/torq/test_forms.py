"""What Torq 2.3.0 makes of the forms that a step must and must not have. Cases 5, 6 and 10."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from iree.compiler import ir

from export.attributes import FLOAT32
from export.errors import ExportError
from export.models import decoder, norms
from export.models.float32 import ISLAND
from export.passes import bf16, islands
from export.passes import ir as passes_ir
from export.torq import kernels
from export.torq.compiler import compile_module
from tests.torq.flags import TARGET
from tests.torq.matmul import BF16, Matmul, random_matmul
from tests.torq.tools import torq_tools
from third_party.torq.torq_tools import Output
from tools.report.compare import cosine


def compiled_kernels(module: Path, scratch: Path) -> Counter[str]:
    """The kernels of a module that goes to torq-compile as it is."""
    flags = [*TARGET, *kernels.PRINT_FLAGS]
    dump = torq_tools().compile(module, scratch / "program.vmfb", flags, 300)
    return sum(kernels.tiles_by_location(dump).values(), Counter())


def refused(matmul: Matmul, folder: Path, flags: list[str] | None = None) -> str:
    """The error that compiling a matmul ends with; nothing may be left behind."""
    module, program = matmul.write(folder / "matmul.mlirbc"), folder / "program.vmfb"
    with pytest.raises(ExportError) as error:
        compile_module(module, program, folder / "timeline.csv", torq_tools(), flags or TARGET, 300)
    assert not program.exists()
    assert not (folder / "timeline.csv").exists()
    return str(error.value)


def test_a_negative_scale_takes_the_generic_kernel_and_is_refused(tmp_path: Path) -> None:
    matmul = random_matmul()
    scale = matmul.scale.copy()
    scale[1, 0, 7] *= -1

    message = refused(replace(matmul, scale=scale), tmp_path)

    assert "1 of 1 projections did not become torq_hl.mixed_quant_matmul: matmul" in message
    assert "torq_hl.matmul" in message


def test_two_rows_are_refused_before_torq_sees_them(tmp_path: Path) -> None:
    message = refused(random_matmul(rows=2), tmp_path)

    assert "multiplies tensor<1x2x128xbf16>; one row of bf16 was expected" in message


def test_another_input_type_makes_many_dispatches_and_is_refused(tmp_path: Path) -> None:
    """Plain `stablehlo` skips Torq's own passes."""

    def layers(x: jax.Array, first: jax.Array, second: jax.Array) -> jax.Array:
        return decoder.gelu_tanh(decoder.gelu_tanh(x @ first) @ second)

    square = np.zeros((64, 64))
    module = lowered(layers, [np.zeros((2, 64)), square, square], tmp_path)
    flags = [flag.replace("stablehlo-torq", "stablehlo") for flag in TARGET]

    with pytest.raises(ExportError, match=r"the program has \d+ dispatches"):
        compile_module(module, tmp_path / "p.vmfb", tmp_path / "t.csv", torq_tools(), flags, 300)


FORM = """
func.func @main(%x: tensor<{lhs}xbf16>) -> tensor<{result}xbf16> {{
  %q = stablehlo.constant dense<"0x{q}"> : tensor<4x32x64xi8>
  %s = stablehlo.constant dense<"0x{s}"> : tensor<4x1x64xbf16>
  %wide = stablehlo.convert %q : (tensor<4x32x64xi8>) -> tensor<4x32x64xbf16>
  %sb = stablehlo.broadcast_in_dim %s, dims = [0, 1, 2]
      : (tensor<4x1x64xbf16>) -> tensor<4x32x64xbf16>
  %w = stablehlo.multiply %wide, %sb : tensor<4x32x64xbf16>
  %m = stablehlo.reshape %w : (tensor<4x32x64xbf16>) -> tensor<128x64xbf16>
  %y = stablehlo.dot_general %x, %m, contracting_dims = [{axis}] x [0]
      : (tensor<{lhs}xbf16>, tensor<128x64xbf16>) -> tensor<{result}xbf16>
  return %y : tensor<{result}xbf16>
}}
"""


@pytest.mark.parametrize(
    ("lhs", "result", "axis"), [("1x128", "1x64", 1), ("1x1x128", "1x1x64", 2)]
)
def test_dequantise_and_dot_general_is_never_raised(
    lhs: str, result: str, axis: int, tmp_path: Path
) -> None:
    matmul = random_matmul()
    q, s = (values.tobytes().hex().upper() for values in (matmul.q, matmul.scale))
    module = tmp_path / "form.mlir"
    module.write_text(FORM.format(lhs=lhs, result=result, axis=axis, q=q, s=s))

    assert not compiled_kernels(module, tmp_path)[kernels.MIXED_QUANT_MATMUL]


def lowered(function: Callable[..., jax.Array], arguments: list[np.ndarray], folder: Path) -> Path:
    """A JAX function as a bf16 module, its islands marked and lowered as a step's are."""
    shapes = [jax.ShapeDtypeStruct(value.shape, jnp.float32) for value in arguments]
    text = folder / "traced.mlir"
    text.write_text(jax.jit(function).lower(*shapes).as_text())
    module = folder / "bf16.mlirbc"
    with passes_ir.module_from(text) as traced:
        for name, called in passes_ir.functions(traced).items():
            if name.startswith(ISLAND):
                called.attributes[FLOAT32] = ir.UnitAttr.get()
        bf16.to_bf16(traced)
        islands.lower_islands(traced)
        passes_ir.write_bytecode(traced, module)
    return module


def simulated(
    function: Callable[..., jax.Array], arguments: list[np.ndarray], folder: Path
) -> tuple[np.ndarray, np.ndarray]:
    """What the simulator and what float32 make of a JAX function of bf16 arguments."""
    rounded = [value.astype(BF16) for value in arguments]
    expected = np.asarray(function(*[value.astype(np.float32) for value in rounded]))
    program = folder / "program.vmfb"
    module = lowered(function, arguments, folder)
    torq_tools().compile(module, program, TARGET, 300)
    outputs = [Output(expected.shape, BF16)]
    return torq_tools().simulate(program, rounded, outputs, 300)[0], expected


# Accumulation is wide on the NPU; a sum in bf16 of 640 squares of 300 would be a cosine of 0.5.
@pytest.mark.parametrize("magnitude", [1e-3, 1.0, 300.0, 1e4])
@pytest.mark.parametrize("shape", [(1, 1, 640), (4, 256), (1, 256)])
def test_rms_norm_keeps_its_accuracy_at_any_magnitude(
    shape: tuple[int, ...], magnitude: float, tmp_path: Path
) -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal(shape) * magnitude
    weight = 1 + 0.3 * random.standard_normal(shape[-1])

    result, expected = simulated(
        lambda x, weight: norms.rms_norm(x, weight, 1e-6), [x, weight], tmp_path
    )

    assert cosine(result, expected) > 0.9999


def test_rms_norm_of_one_outlier_among_small_values_keeps_its_accuracy(tmp_path: Path) -> None:
    x = np.full((1, 1, 640), 3.0)
    x[0, 0, 5] = 300.0

    result, expected = simulated(lambda x: norms.rms_norm(x, jnp.ones(640), 1e-6), [x], tmp_path)

    np.testing.assert_allclose(result.astype(np.float32), expected, rtol=0.02)


def test_a_norm_is_rounded_once_on_the_device_too(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x, weight = (random.standard_normal(shape).astype(BF16) for shape in ((4, 256), (256,)))
    wide = x.astype(np.float64)
    expected = wide / np.sqrt((wide * wide).mean(axis=-1, keepdims=True) + 1e-6)
    expected *= weight.astype(np.float64)

    result, _ = simulated(lambda x, weight: norms.rms_norm(x, weight, 1e-6), [x, weight], tmp_path)

    # Half a unit of bf16, and a root known to 10 bits and a half on the NPU.
    assert (np.abs(result - expected) <= np.abs(expected) * (2.0**-8 + 2.0**-10.5)).all()


def test_a_stream_of_two_parts_keeps_sixteen_bits_on_the_device(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    high, branch, weight = (random.standard_normal((3, 640)) * [[30], [1], [1]]).astype(BF16)
    low = (high.astype(np.float64) * random.uniform(-(2.0**-9), 2.0**-9, 640)).astype(BF16)
    wide = branch.astype(np.float64)
    normed = wide / np.sqrt((wide * wide).mean() + 1e-6) * weight.astype(np.float64)
    expected = high.astype(np.float64) + low.astype(np.float64) + normed

    def add(high: jax.Array, low: jax.Array, branch: jax.Array, weight: jax.Array) -> jax.Array:
        stream = norms.Stream(high[None, None], low[None, None])
        added = norms.add_normed(stream, branch[None, None], weight, 1e-6)
        assert added.low is not None
        return jnp.stack([added.high, added.low])

    result, _ = simulated(add, [high, low, branch, weight], tmp_path)

    error = np.abs(result.astype(np.float64).sum(axis=0)[0, 0] - expected)
    # The root's 10 bits and a half are those of the branch, not of the stream.
    assert (error <= np.abs(expected) * 2.0**-16 + np.abs(normed) * 2.0**-10.5 + 2.0**-20).all()


def test_exp_of_what_lies_below_the_top_is_near_enough(tmp_path: Path) -> None:
    x = np.concatenate([-np.geomspace(1e-4, 80, 1023), [-1e9]]).astype(BF16).reshape(4, 256)

    result, _ = simulated(jnp.exp, [x], tmp_path)

    # A unit of bf16 down to e^-5; weights that are smaller still are off by up to 4 in 100.
    np.testing.assert_allclose(
        result.astype(np.float64), np.exp(x.astype(np.float64)), rtol=2.0**-7, atol=1e-4
    )


@pytest.mark.parametrize(("kv_heads", "group", "head_dim"), [(1, 4, 256), (2, 2, 32), (3, 3, 64)])
@pytest.mark.parametrize("masked", [0, 64, 128])
def test_attention_in_two_parts_equals_float32(
    kv_heads: int, group: int, head_dim: int, masked: int, tmp_path: Path
) -> None:
    random = np.random.default_rng(0)
    mask = np.zeros((1, 128))
    mask[0, 128 - masked :] = -1e9
    shapes = {
        "query": (kv_heads, group, head_dim),
        "k": (kv_heads, head_dim, 1),
        "v": (kv_heads, 1, head_dim),
        "past_k": (kv_heads, head_dim, 128),
        "past_v": (kv_heads, 128, head_dim),
    }
    values = {name: random.standard_normal(shape) for name, shape in shapes.items()}
    values["query"] *= head_dim**-0.5

    def attend(query: jax.Array, k: jax.Array, v: jax.Array, *past: jax.Array) -> jax.Array:
        past_k, past_v, mask = past
        current, before = decoder.Cached(k, v), decoder.Cached(past_k, past_v)
        return decoder.attend(query, current, before, mask)

    result, expected = simulated(attend, [*values.values(), mask], tmp_path)

    assert cosine(result, expected) > 0.9999


@pytest.mark.parametrize("name", ["gelu_tanh", "rotate"])
def test_elementwise_parts_of_the_step_equal_float32(name: str, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal((4, 256)) * 3
    angles = random.standard_normal((1, 128))
    if name == "gelu_tanh":
        result, expected = simulated(decoder.gelu_tanh, [x], tmp_path)
    else:
        result, expected = simulated(
            lambda x, cos, sin: decoder.rotate(x, decoder.RopeRow(cos, sin)),
            [x, np.cos(angles), np.sin(angles)],
            tmp_path,
        )

    assert cosine(result, expected) > 0.9999
