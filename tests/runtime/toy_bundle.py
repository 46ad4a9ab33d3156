"""The bundles and checkpoints of the toys that the build makes, from a test's runfiles."""

from __future__ import annotations

import os
from pathlib import Path


def toy_file(name: str) -> Path:
    """A file or folder of //tests/toy that the test has as data."""
    workspace = os.environ.get("TEST_WORKSPACE", "torq_decoder")
    return Path(os.environ["TEST_SRCDIR"]) / workspace / "tests" / "toy" / name
