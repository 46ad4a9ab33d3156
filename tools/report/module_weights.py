"""The packed matrices of an exported module, read back from it."""

from __future__ import annotations

import re
from pathlib import Path

import ml_dtypes
import numpy as np
from iree.compiler import ir

from export.errors import ExportError
from export.models.decoder import Projection
from export.passes import ir as passes_ir

_START = "weight/"
_FIELDS = ("q", "scale", "zero_point")
# MLIR prints a constant of a hundred elements or more as hex, an i4 in a byte; a splat as a number.
_HEX = re.compile(r'"0x([0-9A-F]+)"')
_SPLAT = re.compile(r"dense<([^>\[]+)>")
_DTYPES = {"i8": np.int8, "i4": np.int8, "bf16": ml_dtypes.bfloat16}


def packed_matrices(module: Path) -> dict[str, tuple[Projection, ...]]:
    """The matrices of a traced or fused module by the step's names, as their parts by columns.

    q is int8 whatever its width in the module. Raises ExportError where the module has none.
    """
    parts: dict[tuple[str, int], dict[str, np.ndarray]] = {}
    with passes_ir.module_from(module) as parsed:
        for operation in passes_ir.operations(parsed):
            if operation.name != "stablehlo.constant" or _START not in str(operation.location):
                continue
            name, _, field = operation.location.name_str.removeprefix(_START).rpartition(".")
            if field in _FIELDS:
                matrix, _, part = name.rpartition(".")
                parts.setdefault((matrix, int(part)), {})[field] = _elements(operation)
    if not parts:
        raise ExportError(f"{module}: no packed constants; a traced or fused module was expected")
    matrices: dict[str, list[Projection]] = {}
    for (matrix, _), values in sorted(parts.items()):
        found = Projection(values["q"], values["scale"], values.get("zero_point"))
        matrices.setdefault(matrix, []).append(found)
    return {name: tuple(found) for name, found in matrices.items()}


def _elements(constant: ir.Operation) -> np.ndarray:
    value = constant.attributes["value"]
    tensor = ir.RankedTensorType(constant.results[0].type)
    dtype = np.dtype(_DTYPES[str(tensor.element_type)])
    text = str(value)
    if match := _HEX.search(text):
        raw = np.frombuffer(bytes.fromhex(match[1]), dtype).reshape(tensor.shape)
        return ((raw & 15) ^ 8) - 8 if str(tensor.element_type) == "i4" else raw
    if match := _SPLAT.search(text):
        return np.full(tensor.shape, float(match[1]), dtype)
    numbers = re.findall(r"-?\d[\d.eE+-]*", text[: text.rindex(":")])
    return np.array([float(number) for number in numbers]).astype(dtype).reshape(tensor.shape)
