"""Lowers float32 islands for the NPU: each call becomes one `linalg.generic` of float32 scalars.

An island is a private function marked `torq.float32`, of elementwise operations and broadcasts
(export/models/float32.py). As StableHLO each of its operations would be a task of the NPU's
RISC-V core of its own, with float32 in memory between them; as one generic they are one task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from iree.compiler import ir
from iree.compiler.dialects import arith, math, tensor

from export.errors import ExportError
from export.passes import ir as passes_ir
from export.passes.linalg_generic import generics
from export.passes.wide import islands

_Scalar = Callable[..., ir.Value]

_SCALARS: Mapping[str, _Scalar] = {
    "stablehlo.add": arith.addf,
    "stablehlo.subtract": arith.subf,
    "stablehlo.multiply": arith.mulf,
    "stablehlo.divide": arith.divf,
    "stablehlo.maximum": arith.maximumf,
    "stablehlo.negate": arith.negf,
    "stablehlo.rsqrt": math.rsqrt,
    "stablehlo.exponential": math.exp,
    "stablehlo.tanh": math.tanh,
}


def lower_islands(module: ir.Module) -> int:
    """Replaces every call of an island of a bf16 module in place; returns their number.

    Raises ExportError for an island with an operation that is not elementwise.
    """
    functions = islands(module)
    calls = [call for call in passes_ir.operations(module) if passes_ir.callee(call) in functions]
    for call in calls:
        function = functions[passes_ir.callee(call)]
        with ir.InsertionPoint(call), call.location:
            results = _inlined(function, list(call.operands))
        for old, new in zip(call.results, results, strict=True):
            old.replace_all_uses_with(new)
        call.erase()
    for function in functions.values():
        function.erase()
    return len(calls)


class _Read(NamedTuple):
    """A value as the results' elements see it.

    axes: for each of the value's axes the one of the results that it lies along; None where it has
        one element.
    """

    value: ir.Value
    axes: tuple[int | None, ...]

    def map(self, rank: int) -> ir.AffineMap:
        """The indexing map, from the results' axes to the value's."""
        first = ir.AffineConstantExpr.get(0)
        places = [first if axis is None else ir.AffineDimExpr.get(axis) for axis in self.axes]
        return ir.AffineMap.get(rank, 0, places)

    def behind(self) -> list[_Read]:
        """What the operation that makes the value reads."""
        operation = self.value.owner.operation
        axes = self.axes
        if operation.name == "stablehlo.broadcast_in_dim":
            sizes = ir.RankedTensorType(operation.operands[0].type).shape
            places = ir.DenseI64ArrayAttr(operation.attributes["broadcast_dimensions"])
            pairs = zip(sizes, places, strict=True)
            axes = tuple(None if size == 1 else self.axes[place] for size, place in pairs)
        return [_Read(operand, axes) for operand in operation.operands]


def _inlined(function: ir.Operation, operands: Sequence[ir.Value]) -> list[ir.Value]:
    """An island's results for a call's operands, as one generic at the insertion point."""
    block = function.regions[0].blocks[0]
    arguments = list(block.arguments)
    results = list(block.operations[len(block.operations) - 1].operands)
    shape = ir.RankedTensorType(results[0].type).shape
    whole = tuple(range(len(shape)))
    wanted = [_Read(value, whole) for value in results]
    reads = list(dict.fromkeys(read for root in wanted for read in _leaves(root, arguments)))
    elements = [ir.RankedTensorType(value.type).element_type for value in results]
    identity = ir.AffineMap.get_identity(len(shape))

    def body(*scalars: ir.Value) -> list[ir.Value]:
        known = dict(zip(reads, scalars, strict=False))
        return [_scalar(read, known) for read in wanted]

    return generics(
        [(operands[arguments.index(read.value)], read.map(len(shape))) for read in reads],
        [(tensor.EmptyOp(shape, element).result, identity) for element in elements],
        ["parallel"] * len(shape),
        body,
    )


def _leaves(read: _Read, arguments: Sequence[ir.Value]) -> Iterator[_Read]:
    """How a value's elements read the island's arguments."""
    if read.value in arguments:
        yield read
        return
    for operand in read.behind():
        yield from _leaves(operand, arguments)


def _scalar(read: _Read, known: dict[_Read, ir.Value]) -> ir.Value:
    """One element of a value, float32 (bf16 where the island ends); each is computed once."""
    if read not in known:
        operation = read.value.owner.operation
        operands = [_scalar(operand, known) for operand in read.behind()]
        known[read] = _computed(operation, operands)
    return known[read]


def _computed(operation: ir.Operation, operands: list[ir.Value]) -> ir.Value:
    f32, bf16 = ir.F32Type.get(), ir.BF16Type.get()
    name = operation.name
    if name == "stablehlo.constant":
        return arith.constant(f32, ir.FloatAttr(_splat(operation)).value)
    if name == "stablehlo.broadcast_in_dim":
        return operands[0]
    if name == "stablehlo.convert":
        narrow = ir.RankedTensorType(operation.results[0].type).element_type == bf16
        return arith.truncf(bf16, *operands) if narrow else arith.extf(f32, *operands)
    if name == "stablehlo.reduce_precision":
        return _rounded_to_bf16(*operands)
    if name not in _SCALARS:
        raise ExportError(f"islands: {passes_ir.where(operation)} is not elementwise")
    return _SCALARS[name](*operands)


def _splat(constant: ir.Operation) -> ir.Attribute:
    value = ir.DenseElementsAttr(constant.attributes["value"])
    if not value.is_splat:
        raise ExportError(f"islands: {passes_ir.where(constant)} is no splat; pass it in")
    return value.get_splat_value()


def _rounded_to_bf16(value: ir.Value) -> ir.Value:
    """Half a unit of bf16 added, the lower 16 bits cut off.

    extf(truncf(x)) would say it, but torq-compile 2.3.0 folds that to x (measured).
    """
    i32 = ir.IntegerType.get_signless(32)
    bits = arith.addi(arith.bitcast(i32, value), arith.constant(i32, 1 << 15))
    return arith.bitcast(ir.F32Type.get(), arith.andi(bits, arith.constant(i32, -(1 << 16))))
