"""One block-quantised matmul as a bf16 module, with an input and what numpy makes of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np

from export.attributes import FUSED
from export.passes import ir as passes_ir

BF16 = np.dtype(ml_dtypes.bfloat16)


@dataclass(frozen=True, eq=False, kw_only=True)
class Matmul:
    """x [1, rows, k] bf16 times (q - zero_point) * scale; expected is float64 [1, rows, n]."""

    q: np.ndarray
    scale: np.ndarray
    zero_point: np.ndarray | None
    x: np.ndarray
    bits: int

    @property
    def expected(self) -> np.ndarray:
        zero_point = 0 if self.zero_point is None else self.zero_point.astype(np.float64)
        w = (self.q - zero_point) * self.scale.astype(np.float64)
        return self.x.astype(np.float64) @ w.reshape(-1, w.shape[-1])

    def module(self) -> str:
        """The fused form: a call of a marked function, which the lowering never looks into."""
        _, block, n = self.q.shape
        rows, k = self.x.shape[1:]
        packed = {"q": _constant(self.q, f"i{self.bits}"), "s": _constant(self.scale, "bf16")}
        if self.zero_point is not None:
            packed["z"] = _constant(self.zero_point, "bf16")
        constants = "\n".join(f"    %{name} = {text}" for name, text in packed.items())
        x, y = f"tensor<1x{rows}x{k}xbf16>", f"tensor<1x{rows}x{n}xbf16>"
        kinds = [x, *(text.split(" : ")[1] for text in packed.values())]
        arguments = ", ".join(f"%a{index}: {kind}" for index, kind in enumerate(kinds))
        return f"""
module {{
  func.func @main(%x: {x}) -> {y} {{
{constants}
    %y = func.call @fused(%x, %{", %".join(packed)}) : ({", ".join(kinds)}) -> {y} loc("matmul")
    return %y : {y}
  }}
  func.func private @fused({arguments}) -> {y}
      attributes {{{FUSED} = {{block_size = {block} : i64, parts = 1 : i64}}}} {{
    %r = stablehlo.constant dense<0.0> : {y}
    return %r : {y}
  }}
}}
"""

    def write(self, path: Path) -> Path:
        """Writes the module as bytecode; returns the path."""
        text = path.with_suffix(".mlir")
        text.write_text(self.module())
        with passes_ir.module_from(text) as module:
            passes_ir.write_bytecode(module, path)
        return path


def _constant(values: np.ndarray, element: str) -> str:
    raw = values.astype(np.int8) & 15 if element == "i4" else values
    kind = "x".join([*map(str, values.shape), element])
    return f'stablehlo.constant dense<"0x{raw.tobytes().hex().upper()}"> : tensor<{kind}>'


def random_matmul(
    *,
    k: int = 128,
    n: int = 64,
    rows: int = 1,
    block: int = 32,
    bits: int = 8,
    zero_point: bool = False,
    seed: int = 0,
) -> Matmul:
    """A matmul of random integers, scales and, where asked for, fractional zero points."""
    random = np.random.default_rng(seed)
    limit = 1 << (bits - 1)
    shape = (k // block, 1, n)
    return Matmul(
        q=random.integers(-limit, limit, (k // block, block, n)).astype(np.int8),
        scale=(random.random(shape) * 0.01 + 0.001).astype(BF16),
        zero_point=random.standard_normal(shape).astype(BF16) if zero_point else None,
        x=random.standard_normal((1, rows, k)).astype(BF16),
        bits=bits,
    )
