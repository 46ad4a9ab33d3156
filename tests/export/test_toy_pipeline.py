"""Toy checkpoints through every stage and the real simulator, against float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from export.gguf import reader
from export.models.read import read_config
from export.passes import bf16, block_quant_fusion
from export.passes import ir as passes_ir
from export.torq.compiler import compile_module
from export.trace import lower, ports
from export.trace.packing import Packing
from export.trace.weights import packed_weights
from tests.torq.flags import TARGET
from tests.torq.matmul import BF16
from tests.torq.tools import torq_tools
from tests.toy.toy import Toy
from third_party.torq.torq_tools import Output
from tools.report.compare import compare
from tools.report.reference import ReferenceDecoder

CONTEXT = 16
TOKENS = [2, 17, 200, 33, 101, 5, 77]
TOYS = {
    "Q8_0": Toy(default_type="Q8_0"),
    "Q4_0": Toy(default_type="Q4_0"),
    "Q4_1": Toy(default_type="Q4_1"),
    "Q5_0": Toy(default_type="Q5_0"),
    "Q5_1": Toy(default_type="Q5_1"),
    "floats": Toy(default_type="BF16", types={"ffn_up": "F16", "ffn_gate": "F32"}),
    "K-quants": Toy(
        hidden_size=256,
        ffn_size=256,
        heads=8,
        types={
            "attn_q": "Q2_K",
            "attn_k": "Q3_K",
            "attn_v": "Q4_K",
            "attn_output": "Q5_K",
            "ffn_gate": "Q6_K",
            "ffn_up": "Q4_K",
            "ffn_down": "IQ4_NL",
            "token_embd": "Q6_K",
        },
    ),
    "odd sizes": Toy(
        layers=1,
        hidden_size=96,
        ffn_size=160,
        heads=6,
        kv_heads=3,
        head_dim=16,
        vocabulary=301,
        default_type="Q4_0",
        window=3,
        pattern=6,
    ),
    "a head of its own": Toy(layers=1, default_type="Q8_0"),
    "one global layer": Toy(layers=1, heads=2, kv_heads=1, pattern=1, default_type="Q8_0"),
}


@pytest.mark.parametrize("name", TOYS)
def test_a_toy_goes_through_every_stage_and_agrees_with_float32(name: str, tmp_path: Path) -> None:
    gguf = reader.read(TOYS[name].write(tmp_path / "toy.gguf"))
    config = read_config(gguf)
    packing = Packing(head="Q4_0" if name == "a head of its own" else "")
    weights = packed_weights(gguf, config, packing)
    traced, module, program = (tmp_path / file for file in ("traced", "bf16", "step.vmfb"))
    lower.write_bytecode(lower.trace(config, CONTEXT, weights), traced)
    with passes_ir.module_from(traced) as step:
        fused = block_quant_fusion.fuse(step, weights.projections)
        bf16.to_bf16(step)
        passes_ir.write_bytecode(step, module)
    counts = compile_module(module, program, tmp_path / "timeline", torq_tools(), TARGET, 600)
    reference = ReferenceDecoder(gguf, config, weights.weights, CONTEXT)
    for token in TOKENS[:-1]:
        reference.step(token)
    inputs = [value.astype(BF16) for value in reference.port_values(TOKENS[-1]).values()]
    outputs = [Output(port.shape, BF16) for port in ports.output_ports(config)]
    results = torq_tools().simulate(program, inputs, outputs, 600)
    names = [port.name for port in ports.output_ports(config)]
    found = compare(dict(zip(names, results, strict=True)), reference.step(TOKENS[-1]))

    assert counts["dispatches"] == 1
    assert counts["projections"] == fused.fused == 7 * config.layers + 1
    assert all(counts["tiles"].values())
    assert found["lowest_k_cosine"] > 0.999
    assert found["lowest_v_cosine"] > 0.999
    assert found["logits_cosine"] > 0.999
    assert np.isfinite(results[0].astype(np.float32)).all()
