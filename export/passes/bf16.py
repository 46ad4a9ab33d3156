"""Converts a module from f32 to bf16, over the IR.

A stray f32 operation would fall back to the host CPU, or be NaN on the board. So every f32 type
becomes bf16 (arguments, results, regions, constants), conversions between the two disappear, and
anything the pass does not know is refused with its location. What the step wants wide stays so:
`wide.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from iree.compiler import ir

from export.errors import ExportError
from export.passes import ir as passes_ir
from export.passes.wide import Wide

_WIDE = re.compile(r"(?<!b)f(16|32|64)(?!\d)")


@dataclass(frozen=True)
class Bf16Counts:
    """What the pass did.

    Values retyped, constants rounded, conversions that became nothing; the islands and matmuls
    that stay f32.
    """

    values: int
    constants: int
    conversions: int
    islands: int
    wide_matmuls: int


def round_to_bf16(values: np.ndarray) -> np.ndarray:
    """f32 to bf16: round to nearest, ties to even; NaN stays NaN; beyond the largest, infinity."""
    # numpy warns of every NaN that it casts, though it keeps it.
    with np.errstate(invalid="ignore"):
        return np.asarray(values, np.float32).astype(ml_dtypes.bfloat16)


def to_bf16(module: ir.Module) -> Bf16Counts:
    """Converts every function of the module in place.

    Raises ExportError for a wide float other than f32, an f32 constant that lies in a resource,
    and an f32 in an attribute.
    """
    wide = Wide(module)
    operations = [op for op in passes_ir.operations(module) if not wide.holds(op)]
    values = constants = 0
    for operation in operations:
        if operation.name == "stablehlo.constant" and _round_constant(operation):
            constants += 1
        if operation.name == "func.func":
            _retype_signature(operation)
        for value in _values(operation):
            if value in wide.values:
                continue
            if isinstance(value.type, ir.RankedTensorType) and _is_f32(value.type):
                value.set_type(_narrow(value.type))
                values += 1
    conversions = sum(_drop_identity(operation) for operation in operations)
    wide.finish()
    _refuse_wide(module, wide)
    return Bf16Counts(values, constants, conversions, len(wide.islands), len(wide.matmuls))


def _values(operation: ir.Operation) -> list[ir.Value]:
    arguments = [a for region in operation.regions for block in region for a in block.arguments]
    return [*operation.results, *arguments]


def _is_f32(tensor: ir.Type) -> bool:
    return isinstance(ir.RankedTensorType(tensor).element_type, ir.F32Type)


def _narrow(type_: ir.Type) -> ir.Type:
    if isinstance(type_, ir.RankedTensorType) and _is_f32(type_):
        return ir.RankedTensorType.get(type_.shape, ir.BF16Type.get(), type_.encoding)
    return type_


def _retype_signature(function: ir.Operation) -> None:
    signature = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    narrow = ir.FunctionType.get(
        [_narrow(type_) for type_ in signature.inputs],
        [_narrow(type_) for type_ in signature.results],
    )
    function.attributes["function_type"] = ir.TypeAttr.get(narrow)


def _round_constant(constant: ir.Operation) -> bool:
    """Rounds an f32 constant; False where it is of another type."""
    value = constant.attributes["value"]
    tensor = ir.RankedTensorType(constant.results[0].type)
    if not _is_f32(tensor):
        return False
    if not isinstance(value, ir.DenseElementsAttr):
        raise ExportError(
            f"bf16: {passes_ir.where(constant)} keeps f32 values in a resource, which this pass "
            "cannot round; write them as bf16 when they are bound, or as dense elements"
        )
    # A buffer of one element makes a splat, as the attribute it replaces was.
    wide = [value.get_splat_value().value] if value.is_splat else np.array(value)
    narrow = round_to_bf16(np.asarray(wide, np.float32)).view(np.uint16)
    constant.attributes["value"] = ir.DenseElementsAttr.get(
        np.ascontiguousarray(narrow), type=ir.BF16Type.get(), shape=tensor.shape
    )
    return True


def _drop_identity(operation: ir.Operation) -> bool:
    """Erases a conversion whose two types have become one; False where it is something else."""
    if operation.name != "stablehlo.convert":
        return False
    if operation.operands[0].type != operation.results[0].type:
        return False
    operation.results[0].replace_all_uses_with(operation.operands[0])
    operation.erase()
    return True


def _refuse_wide(module: ir.Module, wide: Wide) -> None:
    """Raises where another float than bf16 is left in a value's type or in an attribute."""
    operations = [op for op in passes_ir.operations(module) if not wide.holds(op)]
    for operation in operations:
        for value in operation.results:
            if value not in wide.values:
                _refuse_type(operation, value.type)
        for name in operation.attributes:
            attribute = operation.attributes[name]
            if isinstance(attribute, ir.FloatAttr | ir.DenseElementsAttr):
                _refuse_type(operation, attribute.type)
    # Operations first: their location says more than that of the function around them.
    for operation in operations:
        for value in _values(operation):
            if value not in wide.values:
                _refuse_type(operation, value.type)


def _refuse_type(operation: ir.Operation, type_: ir.Type) -> None:
    if _WIDE.search(str(type_)):
        raise ExportError(
            f"bf16: {passes_ir.where(operation)} still has a value of type {type_}; Torq takes "
            "bf16 and integers"
        )
