"""Puts a CPU's form of the block-quantised matmul in the place of the fused call.

IREE keeps dequantised weights of the fused module's own body in memory, four bytes each, and
writes them anew each step. A sum within each block, then one over blocks times their scale, reads
the packed weights once and writes nothing. One step of Gemma 3 270M on 2 cores took 1.41 s with
the body and 0.26 s with this form (measured, x86-64-v3).
"""

from __future__ import annotations

from iree.compiler import ir
from iree.compiler.dialects import arith, linalg, tensor

from export.passes.fused_lowering import LoweringCounts, lower_calls, reshape
from export.passes.linalg_generic import generic


def lower_to_cpu(module: ir.Module) -> LoweringCounts:
    """Lowers every fused matmul of a float32 module in place.

    Raises ExportError for a call whose left side is not one row of f32.
    """
    return lower_calls(module, "f32", "one row of f32 was expected", _matmul)


def _matmul(
    x: ir.Value, q: ir.Value, scale: ir.Value, zero_point: ir.Value | None = None
) -> ir.Value:
    """float32 [n] = sum over blocks of (sum of x * q - zero_point * sum of x) * scale."""
    blocks, block_size, columns = ir.RankedTensorType(q.type).shape
    f32 = ir.F32Type.get()
    lhs = reshape(x, [blocks, block_size])
    block, n, i = (ir.AffineDimExpr.get(axis) for axis in range(3))
    of_lhs = _map(3, block, i)

    def multiply(value: ir.Value, weight: ir.Value, total: ir.Value) -> ir.Value:
        return arith.addf(total, arith.mulf(value, arith.sitofp(f32, weight)))

    sums = generic(
        [(lhs, of_lhs), (q, _map(3, block, i, n))],
        (_zeros([blocks, columns]), _map(3, block, n)),
        ["parallel", "parallel", "reduction"],
        multiply,
    )
    inputs = [sums, scale]
    if zero_point is not None:
        inputs += [zero_point, _block_sums(lhs, blocks)]
    block, n = (ir.AffineDimExpr.get(axis) for axis in range(2))
    zero = ir.AffineConstantExpr.get(0)
    maps = [_map(2, block, n), _map(2, block, zero, n), _map(2, block, zero, n), _map(2, block)]

    def scaled(value: ir.Value, factor: ir.Value, *rest: ir.Value) -> ir.Value:
        *offset, total = rest
        if offset:
            point, of_block = offset
            value = arith.subf(value, arith.mulf(arith.extf(f32, point), of_block))
        return arith.addf(total, arith.mulf(value, arith.extf(f32, factor)))

    return generic(
        list(zip(inputs, maps, strict=False)),
        (_zeros([columns]), _map(2, n)),
        ["reduction", "parallel"],
        scaled,
    )


def _block_sums(lhs: ir.Value, blocks: int) -> ir.Value:
    """float32 [blocks]: the sum of each block of the left side."""
    block, i = (ir.AffineDimExpr.get(axis) for axis in range(2))
    return generic(
        [(lhs, _map(2, block, i))],
        (_zeros([blocks]), _map(2, block)),
        ["parallel", "reduction"],
        arith.addf,
    )


def _map(dimensions: int, *results: ir.AffineExpr) -> ir.AffineMap:
    return ir.AffineMap.get(dimensions, 0, list(results))


def _zeros(shape: list[int]) -> ir.Value:
    f32 = ir.F32Type.get()
    return linalg.fill(arith.ConstantOp(f32, 0.0).result, outs=[tensor.EmptyOp(shape, f32).result])
