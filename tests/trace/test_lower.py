"""The traced step: its contract of ports, its constants, its bytes. Cases 1, 2 and 3."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from gguf import quants
from jaxlib.mlir import ir

from export.errors import ExportError
from export.gguf import reader
from export.models import decoder
from export.models.config import DecoderConfig
from export.models.read import read_config
from export.passes import ir as passes_ir
from export.trace import arguments, lower, ports
from export.trace.packing import Packing
from export.trace.weights import StepWeights, packed_weights
from tests.toy.toy import Toy

CONTEXT = 16
TYPES = {
    "attn_q": "Q8_0",
    "attn_k": "Q5_0",
    "attn_v": "Q4_0",
    "attn_output": "Q4_1",
    "ffn_gate": "Q5_1",
    "ffn_up": "Q8_0",
    "ffn_down": "Q4_0",
    "token_embd": "Q8_0",
}
K_TYPES = {
    "attn_q": "Q2_K",
    "attn_k": "Q3_K",
    "attn_v": "Q4_K",
    "ffn_gate": "Q5_K",
    "ffn_up": "Q6_K",
    "token_embd": "Q6_K",
}


def packed(path: Path, packing: Packing | None = None) -> tuple[DecoderConfig, StepWeights]:
    gguf = reader.read(path)
    config = read_config(gguf)
    return config, packed_weights(gguf, config, packing or Packing())


def bytecode(path: Path, out: Path) -> bytes:
    lower.write_bytecode(lower.trace(packed(path)[0], CONTEXT, packed(path)[1]), out)
    return out.read_bytes()


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    return Toy(types=TYPES).write(tmp_path / "toy.gguf")


def test_ports_have_the_contracts_names_shapes_and_order(toy: Path) -> None:
    config, weights = packed(toy)

    text = str(lower.trace(config, CONTEXT, weights))

    signature = next(
        line
        for line in text.splitlines()
        if "func.func public @main" in line or "func.func @main" in line
    )
    found = re.findall(r'tensor<([0-9x]+)xf32> \{torq.port = "([^"]+)"\}', signature)
    assert [(name, shape) for shape, name in found] == [
        ("embedded", "1x1x64"),
        ("cosGlobal", "1x16"),
        ("sinGlobal", "1x16"),
        ("cosSliding", "1x16"),
        ("sinSliding", "1x16"),
        ("maskGlobal", "1x16"),
        ("maskSliding", "1x4"),
        ("l0.k", "2x32x4"),
        ("l0.v", "2x4x32"),
        ("l1.k", "2x32x16"),
        ("l1.v", "2x16x32"),
        ("logits", "1x1x288"),
        ("hidden", "1x1x64"),
        ("l0.kRow", "2x32x1"),
        ("l0.vRow", "2x1x32"),
        ("l1.kRow", "2x32x1"),
        ("l1.vRow", "2x1x32"),
    ]


POSITION_PORTS = {
    "one kind of layer": (Toy(pattern=1), "cosGlobal sinGlobal maskGlobal"),
    "one base for both kinds": (
        Toy(architecture="gemma2"),
        "cosGlobal sinGlobal maskGlobal maskSliding",
    ),
    "no window": (Toy(architecture="llama", head_dim=16), "cosGlobal sinGlobal maskGlobal"),
    "sliding layers alone": (Toy(layers=1), "cosSliding sinSliding maskSliding"),
}


@pytest.mark.parametrize("name", POSITION_PORTS)
def test_there_is_a_table_for_each_base_and_a_mask_for_each_kind(name: str, tmp_path: Path) -> None:
    toy, wanted = POSITION_PORTS[name]
    config, weights = packed(replace(toy, default_type="Q8_0").write(tmp_path / "toy.gguf"))

    text = str(lower.trace(config, CONTEXT, weights)).split("@main(")[1].split("->")[0]

    found = re.findall(r'torq.port = "((?:cos|sin|mask)[^"]+)"', text)
    assert found == wanted.split()


def test_beyond_64_bindings_all_layers_of_a_kind_share_a_cache(tmp_path: Path) -> None:
    few, many = (
        packed(Toy(layers=layers, pattern=3, default_type="Q8_0").write(tmp_path / "toy"))[0]
        for layers in (28, 29)
    )

    assert len(ports.input_ports(few, CONTEXT)) == 63
    assert [(p.name, p.shape) for p in ports.input_ports(many, CONTEXT)[7:]] == [
        ("kGlobal", (18, 32, 16)),
        ("vGlobal", (18, 16, 32)),
        ("kSliding", (40, 32, 4)),
        ("vSliding", (40, 4, 32)),
    ]
    sliding = ports.cache_ports(many)[2]
    assert (sliding.kind, sliding.axis, sliding.rows[:3]) == (
        "Sliding",
        2,
        ("l0.kRow", "l1.kRow", "l3.kRow"),
    )
    rows = [row for cache in ports.cache_ports(many) for row in cache.rows]
    assert sorted(rows) == sorted(port.name for port in ports.output_ports(many)[2:])


def test_locations_say_layer_and_operation_and_no_file(toy: Path) -> None:
    config, weights = packed(toy)

    text = lower.trace(config, CONTEXT, weights).operation.get_asm(enable_debug_info=True)

    assert 'loc("jit(step)/blk.1/ffn_down/dot_general")' in text
    assert 'loc("weight/blk.1.ffn_down.weight.0.q")' in text
    assert 'loc("maskSliding")' in text
    assert ".py" not in text
    assert str(toy.parent) not in text


def test_two_traces_have_the_same_bytes(toy: Path, tmp_path: Path) -> None:
    assert bytecode(toy, tmp_path / "first") == bytecode(toy, tmp_path / "second")


@pytest.mark.parametrize("port", ["embedded", "cosSliding", "sinGlobal", "maskGlobal", "l1.v"])
def test_a_port_that_is_not_used_is_refused(
    port: str, toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case 2: a port given a concrete array is folded away, and the result ignores it."""
    config, weights = packed(toy)
    shapes = {found.name: found.shape for found in ports.input_ports(config, CONTEXT)}
    step_arguments: Callable[..., object] = arguments.step_arguments

    def concrete(config: DecoderConfig, values: dict[str, object]) -> object:
        return step_arguments(config, values | {port: np.ones(shapes[port], np.float32)})

    monkeypatch.setattr(lower, "step_arguments", concrete)

    with pytest.raises(ExportError, match=f"the step does not use {port};"):
        lower.trace(config, CONTEXT, weights)


def test_a_weight_that_is_not_used_is_refused(toy: Path) -> None:
    config, weights = packed(toy)
    vectors = {**weights.weights.vectors, "blk.9.extra": np.ones(4, np.float32)}
    extra = StepWeights(weights.weights._replace(vectors=vectors), weights.records)

    with pytest.raises(ExportError, match=r"does not use weight/blk\.9\.extra"):
        lower.trace(config, CONTEXT, extra)


@pytest.mark.parametrize("context", [0, -1, 1025])
def test_a_context_that_the_model_was_not_trained_for_is_refused(context: int, toy: Path) -> None:
    config, weights = packed(toy)

    with pytest.raises(ExportError, match=f"context={context}: 1 to 1024 positions"):
        lower.trace(config, context, weights)


def constants(path: Path) -> dict[str, np.ndarray]:
    """The packed constants of a module by the name in their location, from its text."""
    found = {}
    with passes_ir.module_from(path) as module:
        for operation in passes_ir.operations(module):
            if operation.name == "stablehlo.constant" and "weight/" in str(operation.location):
                name = operation.location.name_str.removeprefix("weight/")
                if name.rsplit(".")[-1] in ("q", "scale", "zero_point"):
                    found[name] = elements(operation)
    return found


def elements(constant: ir.Operation) -> np.ndarray:
    """The elements of a constant, from the hex that MLIR prints of a hundred and more."""
    match = re.search(r'"0x([0-9A-F]+)"> : tensor<([0-9x]+)x(i4|i8|bf16)>', str(constant))
    assert match
    shape = [int(size) for size in match[2].split("x")]
    raw = np.frombuffer(bytes.fromhex(match[1]), np.uint8)
    if match[3] == "bf16":
        return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(shape)
    if match[3] == "i4":
        return (((raw & 15) ^ 8).astype(np.int8) - 8).reshape(shape)
    return raw.view(np.int8).reshape(shape)


@pytest.mark.parametrize("mix", ["legacy", "k"])
def test_constants_of_the_module_hold_the_files_values(mix: str, tmp_path: Path) -> None:
    """Case 3: gguf's own dequantisation, to bf16 of scale and zero point, tensor by tensor."""
    toy = Toy(types=TYPES) if mix == "legacy" else Toy(types=K_TYPES, hidden_size=256, ffn_size=256)
    path = toy.write(tmp_path / "toy.gguf")
    bytecode(path, tmp_path / "traced")
    found = constants(tmp_path / "traced")
    gguf = reader.read(path)
    compared = 0
    for name, tensor in gguf.tensors.items():
        kind = (toy.types or {}).get(name.removesuffix(".weight").split(".")[-1])
        if not kind:
            continue
        step_name = name.replace("token_embd", "output")
        q, scale = (found[f"{step_name}.0.{field}"] for field in ("q", "scale"))
        zero_point = found.get(f"{step_name}.0.zero_point", np.zeros_like(scale))
        values = ((q - zero_point) * scale).reshape(-1, q.shape[-1]).T
        expected = quants.dequantize(tensor.data.reshape(tensor.shape[0], -1), tensor.type)
        largest = np.abs(expected).reshape(len(expected), -1, q.shape[1]).max(-1, keepdims=True)
        # bf16 keeps 8 bits: scale and zero point are each at most 2^-9 of themselves away, and
        # |zero_point * scale| is at most the block's largest value and one step of q more.
        error = np.abs(values - expected).reshape(*largest.shape[:2], -1)
        assert (error <= largest * 2.0**-7).all(), name
        # Where the file's scale is a bf16 already, nothing is rounded.
        compared += 1
    assert compared == len(toy.types) * toy.layers - (toy.layers - 1)


def test_integers_of_a_q8_0_file_are_the_files_own_bit_for_bit(tmp_path: Path) -> None:
    path = Toy(default_type="Q8_0").write(tmp_path / "toy.gguf")
    bytecode(path, tmp_path / "traced")
    found = constants(tmp_path / "traced")
    gguf = reader.read(path)
    for name, tensor in gguf.tensors.items():
        if len(tensor.shape) == 2 and name.startswith("blk"):
            raw = tensor.data.reshape(tensor.shape[0], -1, 34)[..., 2:].view(np.int8)
            np.testing.assert_array_equal(found[f"{name}.0.q"], raw.transpose(1, 2, 0))


def test_every_projection_of_a_q5_1_file_stays_packed_and_is_recorded(tmp_path: Path) -> None:
    """Case 1."""
    path = Toy(layers=1, default_type="Q8_0", types={"ffn_up": "Q5_1"}).write(tmp_path / "toy")

    config, weights = packed(path)

    records = {record.name: record for record in weights.records}
    assert records["blk.0.ffn_up.weight"].packed_type == "Q5_1"
    assert weights.projections == 8
    names = [port.name for port in ports.input_ports(config, CONTEXT)]
    text = str(lower.trace(config, CONTEXT, weights)).split("@main(")[1].split("->")[0]
    assert text.count("torq.port") == len(names)


def test_requantising_is_recorded_per_tensor(tmp_path: Path) -> None:
    path = Toy(layers=1, default_type="Q4_1", types={"ffn_up": "F16"}).write(tmp_path / "toy")

    _, kept = packed(path)
    _, forced = packed(path, Packing(requantise="Q8_0", head="Q4_0"))

    def types(weights: StepWeights) -> dict[str, tuple[str, str | None]]:
        return {r.name: (r.file_type, r.packed_type) for r in weights.records}

    assert types(kept)["blk.0.ffn_up.weight"] == ("F16", "Q8_0")
    assert types(kept)["blk.0.ffn_gate.weight"] == ("Q4_1", "Q4_1")
    assert types(forced)["blk.0.ffn_gate.weight"] == ("Q4_1", "Q8_0")
    assert types(forced)["token_embd.weight"] == ("Q4_1", "Q4_0")
    assert types(forced)["blk.0.attn_norm.weight"] == ("F32", None)


def test_wide_and_odd_matrices_are_split_by_columns(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("export.trace.packing.MAX_COLUMNS", 128)
    path = Toy(layers=1, default_type="Q4_0", vocabulary=301).write(tmp_path / "toy")

    _, weights = packed(path)

    parts = weights.weights.matrices["output.weight"]
    assert isinstance(parts, tuple)
    assert [(part.q.shape[-1], part.q.dtype.name) for part in parts] == [
        (128, "int4"),
        (128, "int4"),
        (44, "int4"),
        (1, "int8"),
    ]


def test_the_query_norm_alone_carries_the_query_scale(toy: Path) -> None:
    gguf = reader.read(toy)
    _, weights = packed(toy)

    for name, norm in weights.weights.vectors.items():
        scale = 32**-0.5 if name.endswith("attn_q_norm.weight") else 1.0
        stored = gguf.tensor(name).data.view(np.float32)
        np.testing.assert_allclose(norm, stored * scale, rtol=1e-6)


def test_a_head_of_its_own_is_taken_before_the_embedding(toy: Path) -> None:
    gguf = reader.read(toy)
    embedding = gguf.tensor("token_embd.weight")
    head = replace(embedding, name="output.weight", data=np.zeros_like(embedding.data))
    tensors = {**gguf.tensors, "output.weight": head}

    gguf = replace(gguf, tensors=tensors)
    weights = packed_weights(gguf, read_config(gguf), Packing()).weights

    (part,) = weights.matrices["output.weight"]
    assert not np.asarray(part.scale, np.float32).any()


def test_the_whole_context_of_the_model_is_taken(toy: Path) -> None:
    config, _ = packed(toy)

    assert {port.name: port.shape for port in ports.input_ports(config, 1024)}["maskGlobal"] == (
        1,
        1024,
    )


def test_a_missing_and_an_unknown_tensor_are_named(toy: Path) -> None:
    gguf = reader.read(toy)
    config = read_config(gguf)
    fewer = {name: t for name, t in gguf.tensors.items() if name != "blk.1.ffn_up.weight"}
    more = {**gguf.tensors, "blk.0.ffn_gate_exps.weight": gguf.tensor("blk.0.ffn_up.weight")}

    with pytest.raises(ExportError, match=r"tensor blk\.1\.ffn_up\.weight is missing"):
        packed_weights(replace(gguf, tensors=fewer), config, Packing())
    with pytest.raises(ExportError, match=r"does not know 1 tensors .*ffn_gate_exps"):
        packed_weights(replace(gguf, tensors=more), config, Packing())


def test_a_tensor_of_another_shape_is_named(toy: Path) -> None:
    gguf = reader.read(toy)
    config = replace(read_config(gguf), ffn_size=128)

    with pytest.raises(
        ExportError, match=r"blk\.0\.ffn_gate\.weight: shape \(96, 64\); \(128, 64\)"
    ):
        packed_weights(gguf, config, Packing())


def test_the_step_is_traced_from_arguments_alone() -> None:
    """A projection of dense weights equals numpy's matmul, in the trace's own function."""
    random = np.random.default_rng(0)
    x, w = random.standard_normal((1, 1, 64)), random.standard_normal((64, 8))

    found = np.asarray(decoder.project(jnp.asarray(x), w))

    np.testing.assert_allclose(found, x @ w, rtol=1e-4, atol=1e-5)
