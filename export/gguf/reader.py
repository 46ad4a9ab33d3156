"""Reads a GGUF file: metadata and tensor directory by value, tensor data by memory map.

The `gguf` package knows the format's numbers and block types, and they come from there. Its own
reader makes several objects for every string of an array, which takes tens of seconds for a
vocabulary of 262,144 tokens; this one keeps such arrays as offsets into the map. Every count,
length and offset in the file is checked against the file's size before it is used.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import itertools
import math
import mmap
import struct
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

import numpy as np
from gguf.constants import (
    GGML_QUANT_SIZES,
    GGUF_DEFAULT_ALIGNMENT,
    GGUF_MAGIC,
    GGMLQuantizationType,
    GGUFValueType,
)

from export.errors import ExportError

_VERSIONS = (2, 3)
_MAX_DIMENSIONS = 4
_MAX_KEY_BYTES = 65_535
# Far above any model's, and small enough that a hostile file takes no time: real files have
# hundreds of tensors, dozens of keys, and vocabularies of some 260,000 strings.
_MAX_TENSORS = _MAX_ENTRIES = 65_536
_MAX_STRINGS = 4_194_304
# Smallest encodings: a key of no characters with a one-byte value; a tensor of no name, one axis.
_LEAST_ENTRY_BYTES = 8 + 4 + 1
_LEAST_TENSOR_BYTES = 8 + 4 + 8 + 4 + 8

_SCALARS: Mapping[GGUFValueType, str] = {
    GGUFValueType.UINT8: "<B",
    GGUFValueType.INT8: "<b",
    GGUFValueType.UINT16: "<H",
    GGUFValueType.INT16: "<h",
    GGUFValueType.UINT32: "<I",
    GGUFValueType.INT32: "<i",
    GGUFValueType.UINT64: "<Q",
    GGUFValueType.INT64: "<q",
    GGUFValueType.FLOAT32: "<f",
    GGUFValueType.FLOAT64: "<d",
    GGUFValueType.BOOL: "<?",
}


class StringArray(Sequence[str]):
    """An array of strings in the file, each decoded only when asked for."""

    def __init__(self, data: mmap.mmap, starts: array[int], ends: array[int]) -> None:
        self._data, self._starts, self._ends = data, starts, ends

    def __len__(self) -> int:
        return len(self._starts)

    def raw(self, index: int) -> bytes:
        """The bytes of one string, which need not be UTF-8."""
        return self._data[self._starts[index] : self._ends[index]]

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self.raw(index).decode("utf-8", errors="replace")


Value = int | float | bool | str | StringArray | np.ndarray


@dataclass(frozen=True, eq=False)
class Tensor:
    """One tensor of the file.

    shape: in numpy order, the outer axis first (the file has it reversed).
    data: uint8 [bytes], a view of the memory map.
    """

    name: str
    type: GGMLQuantizationType
    shape: tuple[int, ...]
    data: np.ndarray


@dataclass(frozen=True, eq=False)
class GgufFile:
    """A GGUF file: `metadata` by key, `tensors` by name, both in the file's order."""

    path: Path
    metadata: Mapping[str, Value]
    tensors: Mapping[str, Tensor]

    def tensor(self, name: str) -> Tensor:
        """The tensor of that name; ExportError where the file has none."""
        try:
            return self.tensors[name]
        except KeyError:
            raise ExportError(f"{self.path}: tensor {name} is missing") from None

    def integer(self, key: str, default: int | None = None) -> int:
        """An integer of the metadata; ExportError where it is absent without default, or none."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(key, "an integer", value)
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number of the metadata, under the same rules."""
        value = self._value(key, default)
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
        ):
            raise self._wrong(key, "a finite number", value)
        return float(value)

    def string(self, key: str, default: str | None = None) -> str:
        """A string of the metadata, under the same rules."""
        value = self._value(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, "a string", value)
        return value

    def _value(self, key: str, default: Value | None) -> Value:
        value = self.metadata.get(key, default)
        if value is None:
            raise ExportError(f"{self.path}: metadata key {key} is missing")
        return value

    def _wrong(self, key: str, expected: str, value: Value) -> ExportError:
        found = type(value).__name__ if isinstance(value, Sequence | np.ndarray) else repr(value)
        return ExportError(f"{self.path}: metadata key {key} is {found}; {expected} was expected")


def read(path: Path) -> GgufFile:
    """Opens a little-endian GGUF file of version 2 or 3.

    Raises ExportError, naming the field and its offset, where the file is not one, is cut off, or
    states a count, length, offset, type or alignment that cannot be.
    """
    if path.exists() and not path.is_file():
        raise ExportError(f"{path}: cannot be read as GGUF: no regular file")
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise ExportError(f"{path}: cannot be read as GGUF: {error}") from None
    cursor = _Cursor(path, data)
    tensor_count, entry_count = _header(cursor)
    metadata = _metadata(cursor, entry_count)
    return GgufFile(path, metadata, _tensors(cursor, metadata, tensor_count))


class _Cursor:
    """A position in the map that never reads past its end."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path, self.data, self.offset = path, data, 0

    def fail(self, field: str, found: str) -> ExportError:
        return ExportError(f"{self.path}: {field} at byte {self.offset}: {found}")

    def need(self, size: int, field: str) -> None:
        left = len(self.data) - self.offset
        if size > left:
            raise self.fail(
                field,
                f"needs {size} bytes where {left} are left; the file is cut off or damaged, "
                "fetch it again",
            )

    def scalar(self, code: str, field: str) -> int | float | bool:
        size = struct.calcsize(code)
        self.need(size, field)
        value: int | float | bool = struct.unpack_from(code, self.data, self.offset)[0]
        self.offset += size
        return value

    def unsigned(self, code: str, field: str) -> int:
        return int(self.scalar(code, field))

    def count(self, field: str, least_bytes: int, most: int | None = None) -> int:
        """A count of things that take at least so many bytes each, so that it cannot be absurd."""
        value = self.unsigned("<Q", field)
        if most is not None and most < value <= len(self.data):
            raise self.fail(field, f"{value} is more than the {most} that this reader takes")
        if value * least_bytes > len(self.data) - self.offset:
            raise self.fail(field, f"{value} does not fit in a file of {len(self.data)} bytes")
        return value

    def string(self, field: str) -> str:
        length = self.unsigned("<Q", field)
        self.need(length, field)
        raw = self.data[self.offset : self.offset + length]
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.fail(field, f"is not UTF-8: {error}") from None
        self.offset += length
        return text

    def name(self, field: str) -> str:
        length = struct.unpack_from("<Q", self.data, self.offset)[0] if self._has(8) else 0
        if length > _MAX_KEY_BYTES:
            raise self.fail(
                field, f"is {length} bytes long; at most {_MAX_KEY_BYTES} were expected"
            )
        return self.string(field)

    def _has(self, size: int) -> bool:
        return self.offset + size <= len(self.data)


def _header(cursor: _Cursor) -> tuple[int, int]:
    """Magic, version and the two counts: of tensors and of metadata entries."""
    magic = cursor.unsigned("<I", "magic")
    if magic != GGUF_MAGIC:
        raise ExportError(f"{cursor.path}: starts with {magic:#010x}; no GGUF file")
    version = cursor.unsigned("<I", "version")
    if version & 0xFFFF == 0:
        raise ExportError(
            f"{cursor.path}: a big-endian GGUF file; convert it with gguf_convert_endian.py of the "
            "gguf package"
        )
    if version not in _VERSIONS:
        raise ExportError(f"{cursor.path}: GGUF version {version}; 2 or 3 was expected")
    tensor_count = cursor.count("tensor count", _LEAST_TENSOR_BYTES, _MAX_TENSORS)
    return tensor_count, cursor.count("metadata count", _LEAST_ENTRY_BYTES, _MAX_ENTRIES)


def _metadata(cursor: _Cursor, count: int) -> dict[str, Value]:
    metadata: dict[str, Value] = {}
    for index in range(count):
        key = cursor.name(f"metadata key {index}")
        if key in metadata:
            raise cursor.fail(f"metadata key {key}", "stands in the file twice")
        metadata[key] = _entry(cursor, f"metadata key {key}")
    return metadata


def _value_type(cursor: _Cursor, field: str) -> GGUFValueType:
    number = cursor.unsigned("<I", field)
    try:
        return GGUFValueType(number)
    except ValueError:
        raise cursor.fail(field, f"has the unknown value type {number}") from None


def _entry(cursor: _Cursor, field: str) -> Value:
    kind = _value_type(cursor, field)
    if kind == GGUFValueType.STRING:
        return cursor.string(field)
    if kind != GGUFValueType.ARRAY:
        return cursor.scalar(_SCALARS[kind], field)
    kind = _value_type(cursor, field)
    if kind == GGUFValueType.STRING:
        return _strings(cursor, field)
    if kind == GGUFValueType.ARRAY:
        raise cursor.fail(field, "is an array of arrays, which no known model has")
    code = _SCALARS[kind]
    count = cursor.count(field, struct.calcsize(code))
    values = np.frombuffer(cursor.data, np.dtype(code), count, cursor.offset)
    cursor.offset += values.nbytes
    return values


def _strings(cursor: _Cursor, field: str) -> StringArray:
    count = cursor.count(field, 8, _MAX_STRINGS)
    starts, ends = array("Q"), array("Q")
    data, offset, size = cursor.data, cursor.offset, len(cursor.data)
    unpack = struct.Struct("<Q").unpack_from
    for _ in range(count):
        end = offset + 8
        if end <= size:
            end += unpack(data, offset)[0]
        if end > size:
            cursor.offset = offset
            raise cursor.fail(field, f"string {len(starts)} of {count} passes the end of the file")
        starts.append(offset + 8)
        ends.append(end)
        offset = end
    cursor.offset = offset
    return StringArray(data, starts, ends)


def _alignment(cursor: _Cursor, metadata: Mapping[str, Value]) -> int:
    alignment = metadata.get("general.alignment", GGUF_DEFAULT_ALIGNMENT)
    if (
        isinstance(alignment, bool)
        or not isinstance(alignment, int)
        or alignment <= 0
        or alignment % 8
    ):
        raise ExportError(
            f"{cursor.path}: metadata key general.alignment is {alignment!r}; a positive multiple "
            "of 8 was expected"
        )
    return alignment


def _tensors(cursor: _Cursor, metadata: Mapping[str, Value], count: int) -> dict[str, Tensor]:
    infos: dict[str, tuple[GGMLQuantizationType, tuple[int, ...], int]] = {}
    for index in range(count):
        name = cursor.name(f"name of tensor {index}")
        if name in infos:
            raise cursor.fail(f"tensor {name}", "stands in the file twice")
        infos[name] = _tensor_info(cursor, f"tensor {name}")
    alignment = _alignment(cursor, metadata)
    start = -(-cursor.offset // alignment) * alignment
    tensors, spans = {}, []
    for name, (kind, shape, offset) in infos.items():
        size = _byte_size(cursor, name, kind, shape)
        end = start + offset + size
        if offset % alignment:
            raise cursor.fail(
                f"tensor {name}", f"lies at offset {offset}, not on {alignment} bytes"
            )
        if end > len(cursor.data):
            raise cursor.fail(
                f"tensor {name}",
                f"ends at byte {end} of a file of {len(cursor.data)}; the file is cut off or "
                "damaged, fetch it again",
            )
        spans.append((start + offset, end, name))
        data = np.frombuffer(cursor.data, np.uint8, size, start + offset)
        tensors[name] = Tensor(name, kind, shape, data)
    _refuse_overlap(cursor, spans)
    return tensors


def _tensor_info(cursor: _Cursor, field: str) -> tuple[GGMLQuantizationType, tuple[int, ...], int]:
    rank = cursor.unsigned("<I", field)
    if not 1 <= rank <= _MAX_DIMENSIONS:
        raise cursor.fail(field, f"has {rank} dimensions; 1 to {_MAX_DIMENSIONS} were expected")
    reversed_shape = [cursor.unsigned("<Q", field) for _ in range(rank)]
    if 0 in reversed_shape:
        raise cursor.fail(field, f"has the shape {reversed_shape}; a dimension is 0")
    number = cursor.unsigned("<I", field)
    try:
        kind = GGMLQuantizationType(number)
    except ValueError:
        raise cursor.fail(field, f"has the unknown type {number}") from None
    return kind, tuple(reversed(reversed_shape)), cursor.unsigned("<Q", field)


def _byte_size(
    cursor: _Cursor, name: str, kind: GGMLQuantizationType, shape: tuple[int, ...]
) -> int:
    block_size, block_bytes = GGML_QUANT_SIZES[kind]
    if shape[-1] % block_size:
        raise ExportError(
            f"{cursor.path}: tensor {name}: rows of {shape[-1]} values are no multiple of the "
            f"{block_size} values in a block of {kind.name}"
        )
    return int(math.prod(shape) // block_size * block_bytes)


def _refuse_overlap(cursor: _Cursor, spans: list[tuple[int, int, str]]) -> None:
    for (_, end, first), (start, _, second) in itertools.pairwise(sorted(spans)):
        if start < end:
            raise ExportError(
                f"{cursor.path}: tensors {first} and {second} overlap at byte {start}; the file "
                "is damaged"
            )
