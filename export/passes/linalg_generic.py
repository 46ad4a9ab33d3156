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
    """One `linalg.generic` with one result; see `generics`."""
    return generics(inputs, [output], iterators, lambda *scalars: [body(*scalars)])[0]


def generics(
    inputs: Sequence[tuple[ir.Value, ir.AffineMap]],
    outputs: Sequence[tuple[ir.Value, ir.AffineMap]],
    iterators: Sequence[str],
    body: Callable[..., list[ir.Value]],
) -> list[ir.Value]:
    """One `linalg.generic` at the insertion point; returns its tensors.

    inputs, outputs: tensors with their indexing maps; the outputs hold the initial values.
    iterators: "parallel" or "reduction" for each dimension of the maps.
    body: makes the yielded scalars of the inputs' scalars and the outputs', in that order.
    """
    pairs = (*inputs, *outputs)
    operation = ir.Operation.create(
        "linalg.generic",
        results=[value.type for value, _ in outputs],
        operands=[value for value, _ in pairs],
        attributes={
            "indexing_maps": ir.ArrayAttr.get(
                [ir.AffineMapAttr.get(indexing) for _, indexing in pairs]
            ),
            "iterator_types": ir.ArrayAttr.get(
                [ir.Attribute.parse(f"#linalg.iterator_type<{kind}>") for kind in iterators]
            ),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(inputs), len(outputs)]),
        },
        regions=1,
    )
    elements = [ir.RankedTensorType(value.type).element_type for value, _ in pairs]
    block = ir.Block.create_at_start(operation.regions[0], elements)
    with ir.InsertionPoint(block):
        ir.Operation.create("linalg.yield", operands=body(*block.arguments))
    return list(operation.results)
