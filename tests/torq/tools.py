"""The Torq toolchain's programs, from a test's runfiles."""

from __future__ import annotations

import os
from pathlib import Path

from third_party.torq.torq_tools import TorqTools


def torq_tools() -> TorqTools:
    """The release that //third_party/torq:programs brings into the runfiles."""
    return TorqTools(Path(os.environ["TEST_SRCDIR"]) / "torq_tools" / "bin")
