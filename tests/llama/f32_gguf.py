"""Copies a GGUF with every tensor as F32, for comparisons with llama.cpp in exact arithmetic."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from export.gguf import reader
from export.gguf.dense import dense

_ALIGNMENT = 32
_F32 = 0


def write_f32_copy(source: Path, target: Path) -> Path:
    """Writes the copy: the metadata's own bytes, then each tensor dequantised by gguf."""
    gguf = reader.read(source)
    raw = source.read_bytes()
    # The first tensor's name starts right after the metadata.
    name = next(iter(gguf.tensors)).encode()
    end = raw.index(struct.pack("<Q", len(name)) + name)
    offset, infos = 0, []
    for tensor in gguf.tensors.values():
        shape = tuple(reversed(tensor.shape))
        infos.append(struct.pack("<Q", len(tensor.name)) + tensor.name.encode())
        infos.append(struct.pack(f"<I{len(shape)}Q", len(shape), *shape))
        infos.append(struct.pack("<IQ", _F32, offset))
        size = 4 * int(np.prod(shape))
        offset += size + -size % _ALIGNMENT
    with target.open("wb") as file:
        file.write(raw[:end] + b"".join(infos))
        file.write(bytes(-file.tell() % _ALIGNMENT))
        for tensor in gguf.tensors.values():
            file.write(np.ascontiguousarray(dense(tensor)).tobytes())
            file.write(bytes(-file.tell() % _ALIGNMENT))
    return target
