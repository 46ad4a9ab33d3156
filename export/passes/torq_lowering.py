"""Puts Torq's own form of the block-quantised matmul in the place of the fused call.

Torq 2.3.0 raises exactly this form to `torq_hl.mixed_quant_matmul`: integer constant -> sitofp
bf16 -> subf zero point -> mulf scale -> collapse to [k, n] -> expand to [1, k, n] ->
linalg.batch_matmul with a one-row left side. The subtraction must be there even for a zero point
of 0; a dot_general or a rank-2 matmul falls to the generic kernel (measured: tests/torq).
"""

from __future__ import annotations

import numpy as np
from iree.compiler import ir
from iree.compiler.dialects import arith, linalg, tensor

from export.passes.fused_lowering import LoweringCounts, lower_calls
from export.passes.linalg_generic import generic


def lower_to_torq(module: ir.Module) -> LoweringCounts:
    """Lowers every fused matmul of a bf16 module in place.

    Raises ExportError for a call whose left side is not one row of bf16: with two rows or more
    Torq takes its generic kernel.
    """
    otherwise = "one row of bf16 was expected, or Torq takes its generic kernel"
    return lower_calls(module, "bf16", otherwise, _matmul)


def _matmul(
    lhs: ir.Value, q: ir.Value, scale: ir.Value, zero_point: ir.Value | None = None
) -> ir.Value:
    """lhs [1, 1, k] times (q - zero_point) * scale, in the form that Torq raises."""
    bf16 = ir.BF16Type.get()
    blocks, block_size, columns = ir.RankedTensorType(q.type).shape
    rows = blocks * block_size
    if zero_point is None:
        zero = ir.DenseElementsAttr.get(
            np.zeros(1, np.uint16), type=bf16, shape=[blocks, 1, columns]
        )
        zero_point = arith.ConstantOp(zero.type, zero).result
    wide = tensor.EmptyOp([blocks, block_size, columns], bf16).result
    value = _elementwise("arith.sitofp", wide, q)
    value = _elementwise("arith.subf", wide, value, zero_point)
    value = _elementwise("arith.mulf", wide, value, scale)
    matrix = _reassociate("tensor.collapse_shape", value, [[0, 1], [2]], [rows, columns])
    matrix = _reassociate("tensor.expand_shape", matrix, [[0, 1], [2]], [1, rows, columns])
    empty = tensor.EmptyOp([1, 1, columns], bf16).result
    filled = linalg.fill(arith.ConstantOp(bf16, 0.0).result, outs=[empty])
    return linalg.batch_matmul(lhs, matrix, outs=[filled])


def _elementwise(scalar: str, wide: ir.Value, *inputs: ir.Value) -> ir.Value:
    """`scalar` over [blocks, block, n]; inputs [blocks, 1, n] are broadcast over the block."""
    block, i, n = (ir.AffineDimExpr.get(axis) for axis in range(3))
    maps = []
    for value in (*inputs, wide):
        per_block = ir.RankedTensorType(value.type).shape[1] == 1
        middle = ir.AffineConstantExpr.get(0) if per_block else i
        maps.append(ir.AffineMap.get(3, 0, [block, middle, n]))
    element = ir.RankedTensorType(wide.type).element_type

    def apply(*values: ir.Value) -> ir.Value:
        return ir.Operation.create(scalar, results=[element], operands=list(values[:-1])).result

    pairs = list(zip((*inputs, wide), maps, strict=True))
    return generic(pairs[:-1], pairs[-1], ["parallel"] * 3, apply)


def _reassociate(name: str, value: ir.Value, groups: list[list[int]], shape: list[int]) -> ir.Value:
    i64 = ir.IntegerType.get_signless(64)
    attributes: dict[str, ir.Attribute] = {
        "reassociation": ir.ArrayAttr.get(
            [
                ir.ArrayAttr.get([ir.IntegerAttr.get(i64, axis) for axis in group])
                for group in groups
            ]
        )
    }
    if name == "tensor.expand_shape":
        attributes["static_output_shape"] = ir.DenseI64ArrayAttr.get(shape)
    element = ir.RankedTensorType(value.type).element_type
    result = ir.RankedTensorType.get(shape, element)
    return ir.Operation.create(
        name, results=[result], operands=[value], attributes=attributes
    ).result
