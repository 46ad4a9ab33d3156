"""Traces a decoder's step with JAX to StableHLO, every weight bound as a constant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jaxlib.mlir import ir

from export.attributes import FLOAT32, PORT
from export.errors import ExportError
from export.files import whole_file
from export.models import decoder
from export.models.config import DecoderConfig
from export.models.float32 import ISLAND
from export.trace.arguments import step_arguments, step_results
from export.trace.ports import Port, input_ports, output_ports
from export.trace.weights import StepWeights

# Tracing needs no accelerator, and must not look for one.
jax.config.update("jax_platforms", "cpu")

# Locations say layer and operation; a source line would make the bytes depend on the checkout.
jax.config.update("jax_traceback_in_locations_limit", 0)


def trace(config: DecoderConfig, context: int, weights: StepWeights) -> ir.Module:
    """The step as a StableHLO module: one function `main`, float32, ports in contract order.

    Weights are `stablehlo.constant`s of dense elements: torq-compile 2.3.0 aborts on a resource
    that feeds its quantised matmul. Each is named by its location, `weight/TENSOR.PART.FIELD`.

    Raises ExportError where a port is not used, so that the result would not depend on it.
    """
    inputs, outputs = input_ports(config, context), output_ports(config)
    leaves, tree = jax.tree.flatten(weights.weights)
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(weights.weights)]

    def step(*arguments: jax.Array) -> list[jax.Array]:
        values = dict(zip((port.name for port in inputs), arguments, strict=False))
        bound = jax.tree.unflatten(tree, arguments[len(inputs) :])
        return step_results(decoder.step(config, bound, *step_arguments(config, values)))

    module = _lowered(step, inputs, leaves)
    with module.context, ir.Location.unknown():
        _bind(module, inputs, outputs, leaves, [_weight_name(name) for name in names])
        module.operation.verify()
    return module


def _lowered(
    step: Callable[..., list[jax.Array]], inputs: Sequence[Port], leaves: Sequence[np.ndarray]
) -> ir.Module:
    """The function with its weights still as arguments: tracing then takes no time or memory."""
    arguments = [jax.ShapeDtypeStruct(port.shape, jnp.float32) for port in inputs]
    arguments += [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
    return jax.jit(step, keep_unused=True).lower(*arguments).compiler_ir("stablehlo")


def _weight_name(path: str) -> str:
    """`.matrices['blk.0.attn_q.weight'][0].scale` to `weight/blk.0.attn_q.weight.0.scale`."""
    _, tensor, field = path.split("'")
    return f"weight/{tensor}" + field.removeprefix("]").replace("[", ".").replace("]", "")


def _bind(
    module: ir.Module,
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    leaves: Sequence[np.ndarray],
    names: Sequence[str],
) -> None:
    """Puts in the function's place one whose arguments are the named ports alone."""
    function = _entry(module)
    body = function.regions[0].blocks[0]
    types = [argument.type for argument in body.arguments][: len(inputs)]
    results = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value).results
    block = _main(module, inputs, outputs, ir.FunctionType.get(types, results))
    constants = [_constant(*pair, block) for pair in zip(leaves, names, strict=True)]
    labels = [*(port.name for port in inputs), *names]
    values = [*block.arguments, *constants]
    for old, new, label in zip(body.arguments, values, labels, strict=True):
        if not any(True for _ in old.uses):
            raise ExportError(f"the step does not use {label}; its result would not depend on it")
        old.replace_all_uses_with(new)
    for operation in list(body.operations):
        block.append(operation)
    function.erase()
    # What JAX says of partitions and replicas is no business of the NPU's.
    for name in [str(name) for name in module.operation.attributes]:
        del module.operation.attributes[name]
    module.operation.attributes["sym_name"] = ir.StringAttr.get("step")


def _entry(module: ir.Module) -> ir.Operation:
    """The traced function; those that it calls are marked, and must all be float32 islands."""
    first, *others = [op for op in module.body.operations if op.operation.name == "func.func"]
    for function in others:
        name = ir.StringAttr(function.attributes["sym_name"]).value
        if not name.startswith(ISLAND):
            raise ExportError(f"the trace has a function {name}, which no pass knows; inline it")
        function.attributes[FLOAT32] = ir.UnitAttr.get()
    return first.operation


def _main(
    module: ir.Module, inputs: Sequence[Port], outputs: Sequence[Port], signature: ir.FunctionType
) -> ir.Block:
    """The empty entry block of a new function `main`, its ports named."""
    function = ir.Operation.create(
        "func.func",
        attributes={
            "sym_name": ir.StringAttr.get("main"),
            "function_type": ir.TypeAttr.get(signature),
            "arg_attrs": _port_attributes(inputs),
            "res_attrs": _port_attributes(outputs),
        },
        regions=1,
        loc=ir.Location.unknown(),
        ip=ir.InsertionPoint(module.body),
    )
    locations = [ir.Location.name(port.name) for port in inputs]
    return ir.Block.create_at_start(function.regions[0], signature.inputs, locations)


def _port_attributes(ports: Sequence[Port]) -> ir.Attribute:
    return ir.ArrayAttr.get(
        [ir.DictAttr.get({PORT: ir.StringAttr.get(port.name)}) for port in ports]
    )


def _constant(values: np.ndarray, name: str, block: ir.Block) -> ir.Value:
    """A `stablehlo.constant` at the end of the block."""
    raw = np.ascontiguousarray(values)
    if values.dtype == ml_dtypes.bfloat16:
        attribute = ir.DenseElementsAttr.get(
            raw.view(np.uint16), type=ir.BF16Type.get(), shape=values.shape
        )
    elif values.dtype == ml_dtypes.int4:
        # MLIR keeps one i4 a byte in memory.
        attribute = ir.DenseElementsAttr.get(
            raw.view(np.int8), type=ir.IntegerType.get_signless(4), shape=values.shape
        )
    else:
        attribute = ir.DenseElementsAttr.get(raw)
    return ir.Operation.create(
        "stablehlo.constant",
        results=[attribute.type],
        attributes={"value": attribute},
        loc=ir.Location.name(name),
        ip=ir.InsertionPoint(block),
    ).results[0]


def write_bytecode(module: ir.Module, path: Path) -> None:
    """Writes the module as MLIR bytecode."""
    with whole_file(path) as partial, partial.open("wb") as file:
        module.operation.write_bytecode(file)
