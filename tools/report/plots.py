"""The plots of a pair of stages: cosines by layer, logits beside logits, and how KL is spread.

Each takes a part of the report and a name that is unique on the page, and gives inline SVG; None
where there is nothing to draw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.ticker import MaxNLocator

from export.errors import ExportError
from tools.report.axes import Decades, numbers
from tools.report.svg import colour, drawing, inline, series
from tools.report.text import cosine, count, power, small

Json = Mapping[str, Any]


def layer_plot(layers: Sequence[Json], name: str) -> Markup | None:
    """1 - cosine of the K and V rows of each layer: the mean of all positions, and the worst."""
    lines = {
        (row, kind): 1 - numbers((layer.get(row) or {}).get(kind) for layer in layers)
        for row in ("k", "v")
        for kind in ("mean", "min")
    }
    together = np.concatenate(list(lines.values()))
    if not np.isfinite(together).any():
        return None
    decades = Decades.of(together)
    indices = [layer["layer"] for layer in layers]
    with drawing(300) as figure:
        axes = figure.add_subplot()
        for (row, kind), values in lines.items():
            axes.plot(
                indices,
                decades.place(values),
                color=series(0 if row == "k" else 1),
                linestyle="-" if kind == "mean" else ":",
                linewidth=2,
                marker="o" if row == "k" else "s",
                markersize=3.5,
                label=f"{row.upper()}, {'mean' if kind == 'mean' else 'worst'}",
            )
        decades.label(axes)
        axes.set_xlabel("layer")
        axes.set_ylabel("1 − cosine")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        figure.legend(loc="outside lower center", ncols=2)
        worst = [
            f"the worst {row.upper()} is {cosine(1 - np.nanmax(values))} "
            f"in layer {indices[int(np.nanargmax(values))]}"
            for row in ("k", "v")
            if np.isfinite(values := lines[row, "min"]).any()
        ]
        said = f"1 minus cosine of K and V for {len(layers)} layers; {', '.join(worst)}."
        return inline(figure, name, said)


def logits_plot(scatter: Json | None, name: str) -> Markup | None:
    """Logits of the one stage against those of the other, and the line on which they are equal.

    Raises ExportError where there are not as many of the one as of the other.
    """
    reference, found = (numbers((scatter or {}).get(key) or []) for key in ("reference", "found"))
    if len(reference) != len(found):
        raise ExportError(
            f"scatter: {len(reference)} logits of the reference and {len(found)} found; a point "
            "has one of each, so write as many"
        )
    drawn = np.isfinite(reference) & np.isfinite(found)
    if not drawn.any():
        return None
    reference, found = reference[drawn], found[drawn]
    low, high = (float(end(np.concatenate([reference, found]))) for end in (np.min, np.max))
    with drawing(300) as figure:
        axes = figure.add_subplot()
        axes.plot([low, high], [low, high], color=colour("muted"), linewidth=1)
        # A dot is a line of no length with round ends: one path for all, a few bytes a dot.
        gaps = np.full_like(reference, np.nan)
        axes.plot(
            np.stack([reference, reference, gaps], 1).ravel(),
            np.stack([found, found, gaps], 1).ravel(),
            color=series(0),
            linewidth=2.5,
            solid_capstyle="round",
            alpha=0.6,
        )
        axes.set_aspect("equal", "box")
        axes.locator_params(nbins=5)
        axes.set_xlabel("logit, reference")
        axes.set_ylabel("logit, found")
        furthest = float(np.abs(reference - found).max())
        said = (
            f"{len(reference)} logits, from {small(low)} to {small(high)}, of both stages; "
            f"the largest difference is {small(furthest)}."
        )
        return inline(figure, name, said)


def kl_plot(histogram: Json | None, kl: Json | None, name: str) -> Markup | None:
    """How many positions have which KL divergence, with its median and its 99th percentile.

    Raises ExportError where the counts do not fit the edges.
    """
    edges, counts = ((histogram or {}).get(key) or [] for key in ("log10_edges", "counts"))
    if not counts or not sum(counts):
        return None
    if len(edges) != len(counts) + 1:
        raise ExportError(
            f"kl_histogram: {len(edges)} edges for {len(counts)} counts; write "
            f"{len(counts) + 1}, both ends among them"
        )
    with drawing(300) as figure:
        axes = figure.add_subplot()
        axes.stairs(counts, edges, fill=True, facecolor=series(0), edgecolor=colour("surface"))
        lowest, highest = (int(np.floor(edges[0])), int(np.ceil(edges[-1])))
        for percentile, said, style in (("p50", "median", "--"), ("p99", "99th percentile", ":")):
            value = (kl or {}).get(percentile)
            if value is not None and value > 0 and edges[0] <= np.log10(value) <= edges[-1]:
                axes.axvline(np.log10(value), color=colour("ink"), linestyle=style, label=said)
        exponents = range(lowest, highest + 1, max(1, -(-(highest - lowest) // 6)))
        axes.set_xticks(list(exponents), [power(exponent) for exponent in exponents])
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.grid(visible=False, axis="x")
        axes.set_xlabel("KL divergence, nats")
        axes.set_ylabel("positions")
        if axes.get_legend_handles_labels()[0]:
            figure.legend(loc="outside lower center", ncols=2)
        fullest = int(np.argmax(counts))
        said = (
            f"{count(sum(counts))} positions by their KL divergence; most, {counts[fullest]}, have "
            f"between {small(10 ** edges[fullest])} and {small(10 ** edges[fullest + 1])} nats."
        )
        return inline(figure, name, said)
