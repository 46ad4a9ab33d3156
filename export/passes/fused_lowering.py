"""What every form of the fused matmul has in common: each call is replaced, part by part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from iree.compiler import ir

from export.attributes import FUSED
from export.errors import ExportError
from export.passes import ir as passes_ir
from export.passes.block_quant_fusion import calls


@dataclass(frozen=True)
class LoweringCounts:
    """What a lowering did: fused calls lowered, and the matmuls (parts) that they became."""

    lowered: int
    parts: int


def lower_calls(
    module: ir.Module, element: str, otherwise: str, matmul: Callable[..., ir.Value]
) -> LoweringCounts:
    """Replaces every fused call of a module in place, and drops the functions they called.

    element: the type of the left side, which must be one row of it.
    otherwise: what an error says to that.
    matmul: makes [.., n] of the left side [1, 1, k] and the packed values of one part.

    Raises ExportError for a call with another left side.
    """
    fused = list(calls(module))
    for call, parts in fused:
        x, *packed = call.operands
        row = ir.RankedTensorType(x.type)
        if row.shape[:-1] != [1] * (row.rank - 1) or str(row.element_type) != element:
            raise ExportError(f"{passes_ir.where(call)} multiplies {x.type}; {otherwise}")
        size = len(packed) // parts
        with ir.InsertionPoint(call), call.location:
            lhs = reshape(x, [1, 1, row.shape[-1]])
            results = [matmul(lhs, *packed[i : i + size]) for i in range(0, len(packed), size)]
            result = results[0] if parts == 1 else _concatenate(results)
            result = reshape(result, ir.RankedTensorType(call.results[0].type).shape)
        call.results[0].replace_all_uses_with(result)
        call.erase()
    for function in passes_ir.functions(module).values():
        if FUSED in function.attributes:
            function.erase()
    return LoweringCounts(len(fused), sum(parts for _, parts in fused))


def reshape(value: ir.Value, shape: list[int]) -> ir.Value:
    """The value in another shape; itself where it has that shape."""
    kind = ir.RankedTensorType(value.type)
    if kind.shape == shape:
        return value
    result = ir.RankedTensorType.get(shape, kind.element_type)
    return ir.Operation.create("stablehlo.reshape", results=[result], operands=[value]).result


def _concatenate(parts: list[ir.Value]) -> ir.Value:
    kind = ir.RankedTensorType(parts[0].type)
    columns = sum(ir.RankedTensorType(part.type).shape[-1] for part in parts)
    result = ir.RankedTensorType.get([*kind.shape[:-1], columns], kind.element_type)
    axis = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), kind.rank - 1)
    return ir.Operation.create(
        "stablehlo.concatenate", results=[result], operands=parts, attributes={"dimension": axis}
    ).result
