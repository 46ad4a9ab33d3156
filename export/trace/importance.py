"""The importance matrix of a checkpoint on disk: second moments of what its matrices are given.

A NumPy .npz with no pickles: float32 [k, k] by `packing.input_name`, E[x x^T] over the positions of
a text.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from export.errors import ExportError
from export.files import whole_file


def write_importance(path: Path, moments: Mapping[str, np.ndarray]) -> None:
    """Writes the file: to a temporary one first, then renamed."""
    buffer = io.BytesIO()
    np.savez(buffer, **{name: value.astype(np.float32) for name, value in moments.items()})  # type: ignore[arg-type]
    with whole_file(path) as partial:
        partial.write_bytes(buffer.getvalue())


def read_importance(path: Path) -> dict[str, np.ndarray]:
    """The moments by input; ExportError where the file is none."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ExportError(f"{path}: no importance matrix: {error}; build it again") from None
