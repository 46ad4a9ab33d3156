"""Builds `linalg.generic`, which the bindings leave to whoever uses them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from iree.compiler import ir


def generic(
    inputs: Sequence[tuple[ir.Value, ir.AffineMap]],
    output: tuple[ir.Value, ir.AffineMap],
    iterators: Sequence[str],
    body: Callable[..., ir.Value],
) -> ir.Value:
    """One `linalg.generic` at the insertion point; returns its tensor.

    inputs, output: tensors with their indexing maps; the output holds the initial values.
    iterators: "parallel" or "reduction" for each dimension of the maps.
    body: makes the yielded scalar of the inputs' scalars and the output's, in that order.
    """
    values = [value for value, _ in (*inputs, output)]
    operation = ir.Operation.create(
        "linalg.generic",
        results=[output[0].type],
        operands=values,
        attributes={
            "indexing_maps": ir.ArrayAttr.get(
                [ir.AffineMapAttr.get(indexing) for _, indexing in (*inputs, output)]
            ),
            "iterator_types": ir.ArrayAttr.get(
                [ir.Attribute.parse(f"#linalg.iterator_type<{kind}>") for kind in iterators]
            ),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(inputs), 1]),
        },
        regions=1,
    )
    elements = [ir.RankedTensorType(value.type).element_type for value in values]
    block = ir.Block.create_at_start(operation.regions[0], elements)
    with ir.InsertionPoint(block):
        ir.Operation.create("linalg.yield", operands=[body(*block.arguments)])
    return operation.results[0]
