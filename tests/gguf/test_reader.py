"""The GGUF reader: what it reads equals what gguf reads, and damage has a name."""

from __future__ import annotations

import contextlib
import os
import struct
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from export.errors import ExportError
from export.gguf import reader
from tests.toy.toy import Toy

TYPE_UINT32, TYPE_STRING, TYPE_ARRAY = 4, 8, 9
F32 = 0


def string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def entry(key: str, kind: int, value: bytes) -> bytes:
    return string(key) + struct.pack("<I", kind) + value


def info(name: str, shape: tuple[int, ...], kind: int = F32, offset: int = 0) -> bytes:
    packed = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return string(name) + packed + struct.pack("<IQ", kind, offset)


def file(
    entries: list[bytes] | None = None,
    infos: list[bytes] | None = None,
    *,
    header: bytes = b"GGUF" + struct.pack("<I", 3),
    counts: tuple[int, int] | None = None,
    data: bytes = bytes(64),
) -> bytes:
    entries, infos = entries or [], infos or []
    tensor_count, entry_count = counts or (len(infos), len(entries))
    head = header + struct.pack("<QQ", tensor_count, entry_count) + b"".join(entries + infos)
    return head + bytes(-len(head) % 32) + data


@pytest.fixture
def written(tmp_path: Path) -> Callable[[bytes], Path]:
    def write(content: bytes) -> Path:
        path = tmp_path / "file.gguf"
        path.write_bytes(content)
        return path

    return write


def test_a_toy_reads_as_gguf_reads_it(tmp_path: Path) -> None:
    path = Toy(types={"attn_k": "Q5_0", "attn_v": "Q4_1", "ffn_up": "F16"}).write(tmp_path / "toy")
    expected = GGUFReader(path)

    found = reader.read(path)

    assert list(found.tensors) == [tensor.name for tensor in expected.tensors]
    for tensor in expected.tensors:
        ours = found.tensors[tensor.name]
        assert ours.shape == tuple(reversed(tensor.shape.tolist()))
        assert ours.type == tensor.tensor_type
        assert ours.data.tobytes() == tensor.data.tobytes()
    for key, field in expected.fields.items():
        if not key.startswith("GGUF."):
            value = found.metadata[key]
            contents = field.contents()
            listed = [*value] if isinstance(value, reader.StringArray | np.ndarray) else value
            assert listed == contents


def test_strings_of_an_array_are_decoded_when_asked_for(tmp_path: Path) -> None:
    tokens = reader.read(Toy().write(tmp_path / "toy")).metadata["tokenizer.ggml.tokens"]

    assert isinstance(tokens, reader.StringArray)
    assert tokens[2] == "<bos>"
    assert tokens[4:6] == ["<0x00>", "<0x01>"]
    assert tokens.raw(-1) == "▁w24".encode()


def test_a_vocabulary_of_262144_tokens_takes_little_memory(
    written: Callable[[bytes], Path],
) -> None:
    count = 262_144
    tokens = b"".join(string(f"token {index}") for index in range(count))
    path = written(file([entry("t", TYPE_ARRAY, struct.pack("<IQ", 8, count) + tokens)]))

    tracemalloc.start()
    found = reader.read(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(found.metadata["t"]) == count  # type: ignore[arg-type]
    assert peak < 10 * count * 8


U32 = struct.pack("<I", 7)
DAMAGED = {
    "empty": (b"", "cannot be read as GGUF"),
    "three bytes": (b"GGU", "magic at byte 0: needs 4 bytes where 3 are left"),
    "other magic": (b"GGML" + bytes(60), "starts with 0x4c4d4747; no GGUF file"),
    "version 1": (file(header=b"GGUF" + struct.pack("<I", 1)), "GGUF version 1; 2 or 3"),
    "version 4": (file(header=b"GGUF" + struct.pack("<I", 4)), "GGUF version 4; 2 or 3"),
    "big-endian": (file(header=b"GGUF" + struct.pack(">I", 3)), "big-endian"),
    "absurd tensor count": (
        file(counts=(2**63, 0)),
        "tensor count at byte 16: 9223372036854775808",
    ),
    "absurd entry count": (file(counts=(0, 2**62)), "metadata count at byte 24"),
    "more tensors than there are": (file(counts=(3, 0), data=bytes(80)), "tensor"),
    "long key": (file([struct.pack("<Q", 10**8) + b"k"], counts=(0, 1)), "100000000 bytes long"),
    "key past the end": (file([struct.pack("<Q", 500)], counts=(0, 1)), "metadata key 0"),
    "key that is not UTF-8": (file([string(b"\xff\xfe") + U32 + U32]), "is not UTF-8"),
    "duplicate key": (
        file([entry("a", TYPE_UINT32, U32), entry("a", TYPE_UINT32, U32)]),
        "metadata key a at byte .*twice",
    ),
    "unknown value type": (file([entry("a", 99, U32)]), "metadata key a at byte .* value type 99"),
    "string past the end": (
        file([entry("a", TYPE_STRING, struct.pack("<Q", 2**40))]),
        "metadata key a at byte .* needs 1099511627776 bytes",
    ),
    "absurd array": (
        file([entry("a", TYPE_ARRAY, struct.pack("<IQ", TYPE_UINT32, 2**61))]),
        "metadata key a at byte .* 2305843009213693952 does not fit",
    ),
    "absurd string array": (
        file([entry("a", TYPE_ARRAY, struct.pack("<IQ", TYPE_STRING, 2**60))]),
        "metadata key a at byte .* does not fit",
    ),
    "string array past the end": (
        file([entry("a", TYPE_ARRAY, struct.pack("<IQQ", TYPE_STRING, 2, 2**50))]),
        "string 0 of 2 passes the end",
    ),
    "array of arrays": (
        file([entry("a", TYPE_ARRAY, struct.pack("<IQ", TYPE_ARRAY, 1))]),
        "array of arrays",
    ),
    "no dimensions": (file(infos=[info("w", ())]), "tensor w at byte .* has 0 dimensions"),
    "five dimensions": (file(infos=[info("w", (1,) * 5)]), "tensor w at byte .* 5 dimensions"),
    "a dimension of 0": (file(infos=[info("w", (4, 0))]), "tensor w .* a dimension is 0"),
    "unknown tensor type": (file(infos=[info("w", (4,), 999)]), "tensor w .* unknown type 999"),
    "duplicate tensor": (file(infos=[info("w", (4,))] * 2), "tensor w at byte .*twice"),
    "offset past the end": (
        file(infos=[info("w", (4,), offset=2**40)]),
        "tensor w .* ends at byte",
    ),
    "absurd shape": (file(infos=[info("w", (2**62, 2**62))]), "tensor w .* ends at byte"),
    "offset off its alignment": (file(infos=[info("w", (4,), offset=4)]), "not on 32 bytes"),
    "overlapping tensors": (
        file(infos=[info("v", (16,)), info("w", (4,), offset=32)]),
        "tensors v and w overlap",
    ),
    "same offset": (file(infos=[info("v", (4,)), info("w", (4,))]), "tensors v and w overlap"),
    "rows of half a block": (file(infos=[info("w", (48,), 8)]), "rows of 48 values .* Q8_0"),
    "alignment 0": (
        file([entry("general.alignment", TYPE_UINT32, struct.pack("<I", 0))]),
        "general.alignment is 0",
    ),
    "alignment of a wrong type": (
        file([entry("general.alignment", TYPE_STRING, string("32"))]),
        "general.alignment is '32'",
    ),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_named_at_once_in_little_memory(
    name: str, written: Callable[[bytes], Path]
) -> None:
    content, message = DAMAGED[name]
    path = written(content)
    started = time.monotonic()
    tracemalloc.start()

    with pytest.raises(ExportError, match=message) as raised:
        reader.read(path)

    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert str(path) in str(raised.value)
    assert peak < 1 << 20
    # Case 18 asks for a second; a hang would take minutes.
    assert time.monotonic() - started < 10


def test_a_file_cut_off_anywhere_is_named(tmp_path: Path) -> None:
    whole = Toy(layers=1).write(tmp_path / "toy").read_bytes()
    cut = tmp_path / "cut"
    for length in range(0, len(whole) - 1, len(whole) // 97):
        cut.write_bytes(whole[:length])
        with pytest.raises(ExportError):
            reader.read(cut)


@settings(
    max_examples=400,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(position=st.integers(0, 9000), value=st.binary(min_size=1, max_size=8))
def test_overwritten_bytes_give_a_file_or_a_named_error(
    tmp_path: Path, position: int, value: bytes
) -> None:
    whole = tmp_path / "toy"
    if not whole.exists():
        Toy(layers=1).write(whole)
    content = bytearray(whole.read_bytes())
    content[position : position + len(value)] = value
    path = tmp_path / "mutated"
    path.write_bytes(content)
    with contextlib.suppress(ExportError):
        reader.read(path)


def read_entry(written: Callable[[bytes], Path], kind: int, value: bytes) -> reader.GgufFile:
    return reader.read(written(file([entry("key", kind, value)])))


def test_a_number_where_a_string_is_expected_is_named(written: Callable[[bytes], Path]) -> None:
    found = read_entry(written, TYPE_UINT32, U32)

    with pytest.raises(ExportError, match="metadata key key is 7; a string was expected"):
        found.string("key")


def test_a_string_where_a_number_is_expected_is_named(written: Callable[[bytes], Path]) -> None:
    found = read_entry(written, TYPE_STRING, string("7"))

    with pytest.raises(ExportError, match="an integer was expected"):
        found.integer("key")
    with pytest.raises(ExportError, match="a finite number was expected"):
        found.number("key")


def test_a_bool_is_no_integer(written: Callable[[bytes], Path]) -> None:
    found = read_entry(written, 7, b"\x01")

    with pytest.raises(ExportError, match="metadata key key is True"):
        found.integer("key", 3)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_is_not_finite_is_named(
    value: float, written: Callable[[bytes], Path]
) -> None:
    found = read_entry(written, 6, struct.pack("<f", value))

    with pytest.raises(ExportError, match="a finite number was expected"):
        found.number("key")


def test_a_missing_key_and_a_missing_tensor_are_named(written: Callable[[bytes], Path]) -> None:
    found = reader.read(written(file()))

    with pytest.raises(ExportError, match="metadata key key is missing"):
        found.integer("key")
    with pytest.raises(ExportError, match="tensor w is missing"):
        found.tensor("w")
    assert found.integer("key", 5) == 5


@pytest.mark.parametrize(
    ("counts", "message"),
    [((70_000, 0), "tensor count .* 70000 is more than"), ((0, 70_000), "metadata count .* more")],
)
def test_more_than_any_model_has_is_refused_at_once(
    counts: tuple[int, int], message: str, written: Callable[[bytes], Path]
) -> None:
    with pytest.raises(ExportError, match=message):
        reader.read(written(file(counts=counts, data=bytes(4_000_000))))


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(ExportError, match="no regular file"):
        reader.read(tmp_path / "pipe")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="nowhere: cannot be read"):
        reader.read(tmp_path / "nowhere")


def test_tensor_data_is_a_view_of_the_file(written: Callable[[bytes], Path]) -> None:
    values = np.arange(4, dtype=np.float32)
    found = reader.read(written(file(infos=[info("w", (4,))], data=values.tobytes())))

    assert found.tensor("w").data.view(np.float32).tolist() == values.tolist()
    assert not found.tensor("w").data.flags.writeable
