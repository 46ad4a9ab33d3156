"""What stays float32 in a bf16 module: islands, and the results of matmuls of HIGHEST precision.

The step asks for both by name (export/models/float32.py). An island's arguments are widened and
its results rounded at its edge; a wide matmul's result is rounded where anything but an island
reads it.
"""

from __future__ import annotations

from iree.compiler import ir

from export.attributes import FLOAT32
from export.errors import ExportError
from export.passes import ir as passes_ir

# What only gives a value another shape.
_SHAPES = ("stablehlo.reshape", "stablehlo.broadcast_in_dim", "stablehlo.transpose")

_PRECISION = "precision_config"


class Wide:
    """The float32 of one module, which `bf16.to_bf16` is about to convert.

    islands: the functions by name. values: what stays float32 between operations.
    """

    def __init__(self, module: ir.Module) -> None:
        self.islands = islands(module)
        self.values: dict[ir.Value, None] = {}
        self.matmuls: list[ir.Operation] = []
        for operation in passes_ir.operations(module):
            if _PRECISION in operation.attributes and "HIGHEST" in str(
                operation.attributes[_PRECISION]
            ):
                self.matmuls.append(operation)
                self.values[operation.results[0]] = None
            elif operation.name in _SHAPES and operation.operands[0] in self.values:
                self.values[operation.results[0]] = None
        self._calls = [op for op in passes_ir.operations(module) if self._is_call(op)]

    def _is_call(self, operation: ir.Operation) -> bool:
        return passes_ir.callee(operation) in self.islands

    def holds(self, operation: ir.Operation) -> bool:
        """Whether an operation is an island, or in one."""
        while operation.name not in ("func.func", "builtin.module"):
            operation = operation.parent.operation
        return FLOAT32 in operation.attributes

    def finish(self) -> None:
        """Puts conversions between float32 and bf16 where the two meet.

        Raises ExportError for an island that is called with bf16 here and float32 there.
        """
        for value in list(self.values):
            self._round_for_others(value)
        for matmul in self.matmuls:
            # The NPU knows no precision of a matmul but its own.
            del matmul.attributes[_PRECISION]
        for name, function in self.islands.items():
            calls = [call for call in self._calls if passes_ir.callee(call) == name]
            types = {tuple(value.type for value in call.operands) for call in calls}
            if len(types) != 1:
                raise ExportError(
                    f"bf16: island {name} is called with {len(types)} kinds of arguments; one was "
                    "expected"
                )
            _convert_edges(function, list(types.pop()))

    def _round_for_others(self, value: ir.Value) -> None:
        users = [use.owner.operation for use in value.uses]
        others = [
            user
            for user in users
            if not self._is_call(user) and not (user.results and user.results[0] in self.values)
        ]
        if not others:
            return
        tensor = ir.RankedTensorType(value.type)
        with ir.InsertionPoint.after(value.owner.operation), value.owner.operation.location:
            rounded = _converted(value, ir.RankedTensorType.get(tensor.shape, ir.BF16Type.get()))
        _replace(others, value, rounded)


def islands(module: ir.Module) -> dict[str, ir.Operation]:
    """The functions of a module whose arithmetic stays float32, by name."""
    functions = passes_ir.functions(module)
    return {name: found for name, found in functions.items() if FLOAT32 in found.attributes}


def _convert_edges(function: ir.Operation, types: list[ir.Type]) -> None:
    """Gives an island arguments of these types and results of bf16, converted inside."""
    block = function.regions[0].blocks[0]
    end = block.operations[len(block.operations) - 1].operation
    with ir.InsertionPoint.at_block_begin(block), function.location:
        for argument, type_ in zip(block.arguments, types, strict=True):
            if argument.type == type_:
                continue
            wide = argument.type
            argument.set_type(type_)
            users = [use.owner.operation for use in argument.uses]
            _replace(users, argument, _converted(argument, wide))
    for operation in block.operations:
        if operation.operation.name == "stablehlo.reduce_precision":
            mantissa = ir.IntegerType.get_signless(32)
            operation.operation.attributes["mantissa_bits"] = ir.IntegerAttr.get(mantissa, 7)
    results = []
    with ir.InsertionPoint(end), function.location:
        for index, value in enumerate(end.operands):
            narrow = ir.RankedTensorType.get(
                ir.RankedTensorType(value.type).shape, ir.BF16Type.get()
            )
            end.operands[index] = _converted(value, narrow)
            results.append(narrow)
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, results))


def _replace(users: list[ir.Operation], old: ir.Value, new: ir.Value) -> None:
    """Gives these operations another value where they read the old one."""
    for user in users:
        for index, operand in enumerate(user.operands):
            if operand == old:
                user.operands[index] = new


def _converted(value: ir.Value, type_: ir.Type) -> ir.Value:
    return ir.Operation.create("stablehlo.convert", results=[type_], operands=[value]).result
