"""A fused module is still a StableHLO program: IREE runs it on the CPU with the same numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from iree import compiler as iree_compiler
from iree import runtime as iree_runtime

from export.gguf import reader
from export.models.read import read_config
from export.passes import block_quant_fusion, cpu_lowering
from export.passes import ir as passes_ir
from export.passes.fused_lowering import LoweringCounts
from export.trace import lower
from export.trace.packing import Packing
from export.trace.weights import packed_weights
from tests.toy.toy import Toy
from tools.report.reference import ReferenceDecoder

CONTEXT = 16
TOKENS = [2, 17, 200, 33, 101, 5, 77]


def run(module: Path, arguments: list[np.ndarray]) -> list[np.ndarray]:
    """Compiles a StableHLO module for this CPU and calls its `main`."""
    program = iree_compiler.compile_file(
        str(module),
        # What is lowered for the CPU has linalg beside StableHLO.
        input_type="auto",
        target_backends=["llvm-cpu"],
        extra_args=["--iree-llvmcpu-target-cpu=generic"],
    )
    loaded = iree_runtime.load_vm_flatbuffer(program, driver="local-sync")
    return [value.to_host().copy() for value in loaded.main(*arguments)]


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_1", "Q5_1", "Q4_0"])
def test_traced_fused_and_lowered_give_what_jax_gives(kind: str, tmp_path: Path) -> None:
    gguf = reader.read(Toy(default_type=kind).write(tmp_path / "toy.gguf"))
    config = read_config(gguf)
    weights = packed_weights(gguf, config, Packing())
    traced, fused, lowered = (tmp_path / f"{stage}.mlirbc" for stage in ("traced", "fused", "cpu"))
    lower.write_bytecode(lower.trace(config, CONTEXT, weights), traced)
    with passes_ir.module_from(traced) as module:
        block_quant_fusion.fuse(module, weights.projections)
        passes_ir.write_bytecode(module, fused)
        counts = cpu_lowering.lower_to_cpu(module)
        passes_ir.write_bytecode(module, lowered)
    reference = ReferenceDecoder(gguf, config, weights.weights, CONTEXT)
    for token in TOKENS[:-1]:
        reference.step(token)
    arguments = list(reference.port_values(TOKENS[-1]).values())
    expected = list(reference.step(TOKENS[-1]).values())

    assert counts == LoweringCounts(weights.projections, weights.projections)
    for path in (traced, fused, lowered):
        for found, wanted in zip(run(path, arguments), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=2e-5)
