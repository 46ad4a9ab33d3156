"""Axes whose labels are text of the page's size: decades and shares on a logarithmic scale."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from tools.report.text import power

Values = Iterable[float | None]


def numbers(values: Values) -> np.ndarray:
    """Values as float64; NaN, which is not drawn, for what was not measured or is not finite."""
    array = np.array([np.nan if value is None else value for value in values], np.float64)
    return np.where(np.isfinite(array), array, np.nan)


@dataclass(frozen=True, kw_only=True)
class Decades:
    """A logarithmic scale over whole decades, with a place for 0 below the lowest.

    low, high: exponents of ten between which the values are. zero: whether 0 is among them.
    """

    low: int
    high: int
    zero: bool

    @classmethod
    def of(cls, values: np.ndarray) -> Decades:
        """The decades that hold all values; what is not above 0 counts as 0."""
        measured = values[np.isfinite(values)]
        positive = measured[measured > 0]
        logs = np.log10(positive) if positive.size else np.array([-1.0])
        low, high = math.floor(logs.min()), math.ceil(logs.max())
        return cls(low=low, high=max(high, low + 1), zero=bool((measured <= 0).any()))

    def place(self, values: np.ndarray) -> np.ndarray:
        """Where values are drawn: the exponent of each, and for 0 one below the lowest."""
        with np.errstate(divide="ignore", invalid="ignore"):
            placed = np.where(values > 0, np.log10(values), self.low - 1.0)
        return np.where(np.isnan(values), np.nan, placed)

    def label(self, axes: Axes, say: Callable[[int], str] = power) -> None:
        """Sets limits and labels of the vertical axis; seven labels at most."""
        step = math.ceil((self.high - self.low) / 6)
        exponents = list(range(self.low, self.high + 1, step))
        bottom = self.low - 1 if self.zero else self.low
        places = [bottom] * self.zero + exponents
        axes.set_yticks(places, ["0"] * self.zero + [say(exponent) for exponent in exponents])
        margin = 0.06 * (self.high - bottom)
        axes.set_ylim(bottom - margin, self.high + margin)


def percent(exponent: int) -> str:
    """A power of ten as a share: -3 is 0.1 %."""
    return f"{10.0 ** (exponent + 2):.10g} %"


def label_rows(centres: list[float], widths: list[float]) -> list[int]:
    """Rows, from 0 on, in which labels of these centres and widths do not touch."""
    ends: list[float] = []
    rows = [0] * len(centres)
    for index in sorted(range(len(centres)), key=centres.__getitem__):
        left = centres[index] - widths[index] / 2
        row = next((row for row, end in enumerate(ends) if end <= left), len(ends))
        ends[row : row + 1] = [centres[index] + widths[index] / 2]
        rows[index] = row
    return rows
