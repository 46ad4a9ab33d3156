"""Ctrl-C that ends a generation after its token, so that nothing is lost."""

from __future__ import annotations

import signal
from types import FrameType


class Interrupt:
    """While it is entered, the first Ctrl-C is only noted; the second one interrupts as usual."""

    def __init__(self) -> None:
        self.noted = False

    def __call__(self) -> bool:
        """Whether Ctrl-C was pressed."""
        return self.noted

    def __enter__(self) -> Interrupt:
        self.noted = False
        self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self.noted = True
        signal.signal(signal.SIGINT, signal.default_int_handler)
