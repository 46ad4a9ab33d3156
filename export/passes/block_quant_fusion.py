"""Puts one block-quantised matmul in the place of dequantise + dot_general.

A packed projection leaves the trace as

    convert(q) [- broadcast(zero_point)] * broadcast(scale) -> reshape [k, n] -> dot_general(x, .)

and becomes one call, with x and the packed constants, of a private function that holds the very
same operations and is marked `torq.block_quant_matmul`. Any StableHLO compiler can run the fused
module (a `stablehlo.composite` would say the same, but iree-compile 3.11 refuses it);
`torq_lowering` puts Torq's form in the call's place. A matrix that is split by columns (the head)
is one call with several parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from iree.compiler import ir

from export.attributes import FUSED
from export.errors import ExportError
from export.passes import ir as passes_ir


@dataclass(frozen=True)
class FusionCounts:
    """What the pass did.

    fused: calls made, one a projection.
    parts: matmuls in them; more than `fused` where a matrix is split by columns.
    """

    fused: int
    parts: int


@dataclass(frozen=True)
class _Part:
    """One matched dequantise + dot_general.

    packed: the values q, scale and, where the type has one, zero_point.
    chain: the matched operations in order, the dot_general last.
    """

    x: ir.Value
    packed: tuple[ir.Value, ...]
    chain: tuple[ir.Operation, ...]

    @property
    def dot(self) -> ir.Operation:
        return self.chain[-1]


def fuse(module: ir.Module, expected: int) -> FusionCounts:
    """Fuses every packed matmul of the module in place.

    expected: the number of packed projections that the model has.

    Raises ExportError where another number was fused, naming the integer constants that are left.
    """
    parts = {}
    for operation in passes_ir.operations(module):
        if operation.name == "stablehlo.dot_general" and (part := _match(operation)):
            parts[operation] = part
    groups = _group(list(parts.values()))
    functions: dict[str, str] = {}
    for group, root in groups:
        _replace(module, group, root, functions)
    counts = FusionCounts(fused=len(groups), parts=len(parts))
    if counts.fused != expected:
        raise ExportError(
            f"block_quant_fusion: {counts.fused} matmuls fused, {expected} expected; "
            f"not fused: {', '.join(_unfused(module)) or 'none'}"
        )
    return counts


def _match(dot: ir.Operation) -> _Part | None:
    """The packed matmul that ends in this dot_general, or None."""
    x, matrix = dot.operands
    if not _is_plain_matmul(dot):
        return None
    reshape = passes_ir.producer(matrix, "stablehlo.reshape")
    scaled = reshape and passes_ir.producer(reshape.operands[0], "stablehlo.multiply")
    if not reshape or not scaled or not _flattens_blocks(reshape):
        return None
    scale = _per_block(scaled.operands[1])
    if scale is None:
        return None
    chain = [*scale[1], scaled, reshape, dot]
    packed = [scale[0]]
    integer = scaled.operands[0]
    if centred := passes_ir.producer(integer, "stablehlo.subtract"):
        zero_point = _per_block(centred.operands[1])
        if zero_point is None:
            return None
        chain = [*zero_point[1], centred, *chain]
        packed.append(zero_point[0])
        integer = centred.operands[0]
    widened = passes_ir.producer(integer, "stablehlo.convert")
    if not widened or not _is_constant(widened.operands[0], ir.IntegerType):
        return None
    return _Part(x, (widened.operands[0], *packed), (widened, *chain))


def _is_plain_matmul(dot: ir.Operation) -> bool:
    """Whether the last axis of the left side meets the first of a matrix, with no batch."""
    rank = ir.RankedTensorType(dot.operands[0].type).rank
    numbers = str(dot.attributes["dot_dimension_numbers"])
    wanted = (f"lhs_contracting_dimensions = [{rank - 1}]", "rhs_contracting_dimensions = [0]")
    return "batching" not in numbers and all(part in numbers for part in wanted)


def _flattens_blocks(reshape: ir.Operation) -> bool:
    """Whether a reshape takes [k / block, block, n] to [k, n]."""
    blocks = ir.RankedTensorType(reshape.operands[0].type)
    matrix = ir.RankedTensorType(reshape.results[0].type)
    flat = [blocks.shape[0] * blocks.shape[1], blocks.shape[2]] if blocks.rank == 3 else None
    return bool(matrix.shape == flat)


def _per_block(value: ir.Value) -> tuple[ir.Value, list[ir.Operation]] | None:
    """The constant [k / block, 1, n] behind a value broadcast over its block, and the chain."""
    broadcast = passes_ir.producer(value, "stablehlo.broadcast_in_dim")
    if not broadcast or list(
        ir.DenseI64ArrayAttr(broadcast.attributes["broadcast_dimensions"])
    ) != [0, 1, 2]:
        return None
    chain = [broadcast]
    constant = broadcast.operands[0]
    if converted := passes_ir.producer(constant, "stablehlo.convert"):
        chain.insert(0, converted)
        constant = converted.operands[0]
    is_packed = (
        _is_constant(constant, ir.FloatType) and ir.RankedTensorType(constant.type).shape[1] == 1
    )
    return (constant, chain) if is_packed else None


def _is_constant(value: ir.Value, element: type[ir.Type]) -> bool:
    tensor = ir.RankedTensorType(value.type)
    return bool(passes_ir.producer(value, "stablehlo.constant")) and isinstance(
        tensor.element_type, element
    )


def _group(parts: Sequence[_Part]) -> list[tuple[list[_Part], ir.Operation]]:
    """The parts of each matrix with the operation that makes its result.

    Parts of one x that meet in one concatenate along the columns are one matrix.
    """
    by_dot = {part.dot.results[0]: part for part in parts}
    groups: list[tuple[list[_Part], ir.Operation]] = []
    seen: set[ir.Value] = set()
    for part in parts:
        if part.dot.results[0] in seen:
            continue
        uses = [use.owner.operation for use in part.dot.results[0].uses]
        group, root = [part], part.dot
        if len(uses) == 1 and uses[0].name == "stablehlo.concatenate":
            joined = [by_dot.get(operand) for operand in uses[0].operands]
            last = ir.RankedTensorType(uses[0].results[0].type).rank - 1
            along_columns = ir.IntegerAttr(uses[0].attributes["dimension"]).value == last
            if along_columns and all(other and other.x == part.x for other in joined):
                group, root = [other for other in joined if other], uses[0]
        seen.update(member.dot.results[0] for member in group)
        groups.append((group, root))
    return groups


def _replace(
    module: ir.Module, group: list[_Part], root: ir.Operation, functions: dict[str, str]
) -> None:
    """Puts the call where `root` stood, and erases what it replaces."""
    operands = [group[0].x, *(value for part in group for value in part.packed)]
    chain = [operation for part in group for operation in part.chain]
    chain += [] if root == group[0].dot else [root]
    result_type = root.results[0].type
    block_size = ir.RankedTensorType(group[0].packed[0].type).shape[1]
    signature = str([block_size, len(group), *(str(value.type) for value in operands)])
    if signature not in functions:
        functions[signature] = f"block_quant_matmul.{len(functions)}"
        function = _outline(module, functions[signature], operands, chain)
        i64 = ir.IntegerType.get_signless(64)
        function.attributes[FUSED] = ir.DictAttr.get(
            {
                "block_size": ir.IntegerAttr.get(i64, block_size),
                "parts": ir.IntegerAttr.get(i64, len(group)),
            }
        )
    call = ir.Operation.create(
        "func.call",
        results=[result_type],
        operands=operands,
        attributes={"callee": ir.FlatSymbolRefAttr.get(functions[signature])},
        loc=root.location,
        ip=ir.InsertionPoint(root),
    )
    root.results[0].replace_all_uses_with(call.results[0])
    passes_ir.erase_dead(chain)


def _outline(
    module: ir.Module, name: str, operands: list[ir.Value], chain: list[ir.Operation]
) -> ir.Operation:
    """A private function of the operands that holds a copy of the chain."""
    result_type = chain[-1].results[0].type
    types = [value.type for value in operands]
    function = ir.Operation.create(
        "func.func",
        attributes={
            "sym_name": ir.StringAttr.get(name),
            "function_type": ir.TypeAttr.get(ir.FunctionType.get(types, [result_type])),
            "sym_visibility": ir.StringAttr.get("private"),
        },
        regions=1,
        loc=ir.Location.name(name),
        ip=ir.InsertionPoint(module.body),
    )
    block = ir.Block.create_at_start(
        function.regions[0], types, [ir.Location.name(name)] * len(types)
    )
    inside = dict(zip(operands, block.arguments, strict=True))
    with ir.InsertionPoint(block):
        for operation in chain:
            copy = operation.clone()
            for index, operand in enumerate(operation.operands):
                copy.operands[index] = inside[operand]
            inside[operation.results[0]] = copy.results[0]
        ir.Operation.create("func.return", operands=[inside[chain[-1].results[0]]])
    return function


def calls(module: ir.Module) -> Iterator[tuple[ir.Operation, int]]:
    """The fused matmuls of a module, in order: each call with the number of its parts."""
    marked = {
        name: ir.IntegerAttr(ir.DictAttr(function.attributes[FUSED])["parts"]).value
        for name, function in passes_ir.functions(module).items()
        if FUSED in function.attributes
    }
    for operation in passes_ir.operations(module):
        if (callee := passes_ir.callee(operation)) in marked:
            yield operation, marked[callee]


def _unfused(module: ir.Module) -> list[str]:
    """The integer constants that something other than a fused matmul reads."""
    return [
        passes_ir.where(operation)
        for operation in passes_ir.operations(module)
        if operation.name == "stablehlo.constant"
        and _is_constant(operation.results[0], ir.IntegerType)
        and any(use.owner.operation.name != "func.call" for use in operation.results[0].uses)
    ]
