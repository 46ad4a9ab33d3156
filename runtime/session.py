"""Saves a conversation to a file and restores it: tokens, K/V, messages, random numbers.

The file is a NumPy .npz with no pickles: `meta` (JSON, as bytes), `tokens`, and the filled slots of
every cache by port, bf16 as its bits.
"""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from runtime.bundle import DTYPES
from runtime.decoder import Decoder
from runtime.errors import RunError
from runtime.files import write_whole

_FORMAT, _VERSION = "torq-decoder-session", 1


@dataclass(kw_only=True)
class Conversation:
    """What a session holds beside the cache: messages, and the sampler's random state."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    random: dict[str, Any] | None = None


def save(path: Path, decoder: Decoder, conversation: Conversation) -> None:
    """Writes a session; a file that cannot be written stays as it was, and is a RunError."""
    names = {dtype: name for name, dtype in DTYPES.items()}
    dtype = decoder.backend.program.dtype
    meta = {
        "format": _FORMAT,
        "version": _VERSION,
        "bundle": decoder.bundle.identity,
        "name": decoder.bundle.name,
        "dtype": names[dtype],
        "messages": conversation.messages,
        "random": conversation.random,
    }
    filled = decoder.backend.cache.filled(len(decoder.tokens))
    arrays = {name: value.view(f"u{dtype.itemsize}") for name, value in filled.items()}
    arrays["tokens"] = np.array(decoder.tokens, np.int32)
    arrays["meta"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    try:
        write_whole(path, buffer.getvalue())
    except OSError as error:
        raise RunError(f"{path}: the session cannot be saved: {error.strerror}") from None


def restore(path: Path, decoder: Decoder) -> Conversation:
    """Reads a session into a decoder of the same checkpoint, of any backend.

    Raises RunError where the file is no session, is broken, or is of another checkpoint, packing
    or context; the decoder is then as it was.
    """
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        meta = json.loads(arrays.pop("meta").tobytes())
        kind = meta["format"], meta["version"]
        if kind != (_FORMAT, _VERSION):
            raise RunError(f"{path}: {kind} is not {(_FORMAT, _VERSION)}")
        if meta["bundle"] != decoder.bundle.identity:
            raise RunError(
                f"{path}: a session of another bundle ({meta['name']}), of another checkpoint, "
                f"packing or context than {decoder.bundle.name}; use that bundle, or another file"
            )
        tokens = [int(token) for token in arrays.pop("tokens")]
        if len(tokens) > decoder.bundle.context:
            raise ValueError(f"{len(tokens)} tokens")
        dtype = DTYPES[meta["dtype"]]
        rows = {name: value.view(dtype) for name, value in arrays.items()}
        conversation = Conversation(messages=list(meta["messages"]), random=meta["random"])
        decoder.backend.cache.fill(len(tokens), rows)
    except OSError as error:
        raise RunError(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        raise RunError(f"{path}: no session, or a broken one; name another file") from None
    decoder.tokens = tokens
    decoder.backend.cache_changed()
    return conversation
