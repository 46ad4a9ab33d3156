"""The plots of what may be packed smaller: heads before and after rescoring, and projections."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.colors import BoundaryNorm, ListedColormap

from tools.report.axes import Decades, label_rows, numbers, percent
from tools.report.svg import WIDTH, colour, drawing, inline, series, text_width
from tools.report.text import label, share, small

Json = Mapping[str, Any]

# Light to dark, told apart in grey and without green; readable on a light and on a dark page.
_HEAT = ("#fde7b0", "#fcc37d", "#f59a5f", "#e26e57", "#bf4b61", "#8d3868", "#5c2c66")
_MISSED = "best token missed"
_LINE = 19  # pixels from a line of text to the next


def rescored(head: Json, candidates: int | None) -> Json | None:
    """A head's values after rescoring so many candidates; where not measured, of the most."""
    measured: list[Json] = [
        entry for entry in head.get("rescored") or [] if entry.get("top_1") is not None
    ]
    chosen = [entry for entry in measured if entry["candidates"] == candidates]
    return max(chosen or measured, key=lambda entry: entry["candidates"], default=None)


def heads_plot(heads: Sequence[Json], candidates: int | None, name: str) -> Markup | None:
    """Share of positions whose best token a head misses, against its bytes."""
    heads = [head for head in heads if head.get("bytes") and head.get("top_1") is not None]
    if not heads:
        return None
    size = numbers(head["bytes"] for head in heads) / 1e6
    before = 1 - numbers(head["top_1"] for head in heads)
    rescored_top_1 = [(rescored(head, candidates) or {}).get("top_1") for head in heads]
    after = 1 - numbers(rescored_top_1)
    decades = Decades.of(np.concatenate([before, after]))
    names = [label(head["head"]) for head in heads]
    labels = [f"{names[i]}{' ✓' if head.get('used') else ''}" for i, head in enumerate(heads)]
    low, high = size.min(), size.max()
    margin = max(0.1 * (high - low), 0.02 * high)
    pixels = 0.72 * WIDTH / (high - low + 2 * margin)
    rows = label_rows(list(size * pixels), [text_width(said) for said in labels])
    with drawing(270 + _LINE * max(rows)) as figure:
        axes = figure.add_subplot()
        axes.set_xlim(low - margin, high + margin)
        decades.label(axes, percent)
        for index, said in enumerate(labels):
            x, ends = size[index], decades.place(np.array([before[index], after[index]]))
            axes.plot([x, x], ends, color=series(index), linewidth=2)
            axes.plot(x, ends[0], "o", color=series(index), markerfacecolor=colour("surface"))
            axes.plot(x, ends[1], "o", color=series(index))
            axes.annotate(
                said,
                (x, 1),
                (0, 6 + _LINE * rows[index]),
                xycoords=axes.get_xaxis_transform(),
                textcoords="offset points",
                ha="center",
            )
        axes.plot([], [], "o", color=colour("ink"), markerfacecolor="none", label="before")
        axes.plot([], [], "o", color=colour("ink"), label="after rescoring")
        axes.locator_params(axis="x", nbins=5)
        axes.set_xlabel("bytes of the head, MB")
        axes.set_ylabel(_MISSED)
        figure.legend(loc="outside lower center", ncols=2)
        said = "; ".join(
            f"{names[index]} with {size[index]:.1f} MB agrees in {share(head['top_1'])} of "
            f"positions before and {share(rescored_top_1[index])} after rescoring"
            for index, head in enumerate(heads)
        )
        return inline(figure, name, f"{said}.")


def candidates_plot(heads: Sequence[Json], name: str) -> Markup | None:
    """Share of positions whose best token is missed, against how many candidates are rescored."""
    lines = [
        (index, label(head["head"]), entries)
        for index, head in enumerate(heads)
        if (entries := [e for e in head.get("rescored") or [] if e.get("top_1") is not None])
    ]
    if not lines:
        return None
    decades = Decades.of(1 - numbers(e["top_1"] for _, _, entries in lines for e in entries))
    tried = sorted({entry["candidates"] for _, _, entries in lines for entry in entries})
    columns = max(1, int(WIDTH / (48 + max(text_width(head) for _, head, _ in lines))))
    with drawing(250 + _LINE * math.ceil(len(lines) / columns)) as figure:
        axes = figure.add_subplot()
        for index, head, entries in lines:
            ordered = sorted(entries, key=lambda entry: entry["candidates"])
            axes.plot(
                [math.log2(entry["candidates"]) for entry in ordered],
                decades.place(1 - numbers(entry["top_1"] for entry in ordered)),
                color=series(index),
                linewidth=2,
                marker="osD^vPX*"[index % 8],
                markersize=5,
                label=head,
            )
        decades.label(axes, percent)
        shown = tried[:: math.ceil(len(tried) / 7)]
        axes.set_xticks([math.log2(candidates) for candidates in shown], [str(n) for n in shown])
        axes.set_xlabel("candidates rescored")
        axes.set_ylabel(_MISSED)
        figure.legend(loc="outside lower center", ncols=columns)
        said = "; ".join(
            f"{head}: {share(best['top_1'])} with {best['candidates']}"
            for _, head, entries in lines
            if (best := max(entries, key=lambda entry: entry["top_1"]))
        )
        return inline(figure, name, f"Best agreement of the best token by head: {said} candidates.")


def projections_plot(projections: Sequence[Json], name: str) -> Markup | None:
    """KL per megabyte saved of each projection in each layer, as a heat map."""
    columns = list(dict.fromkeys(entry["projection"] for entry in projections))
    layers = sorted({entry["layer"] for entry in projections})
    cells = np.full((len(layers), len(columns)), np.nan)
    for entry in projections:
        place = layers.index(entry["layer"]), columns.index(entry["projection"])
        cells[place] = numbers([entry.get("kl_per_megabyte")])[0]
    positive = cells[cells > 0]
    if not positive.size:
        return None
    lowest, highest = positive.min(), max(positive.max(), positive.min() * 1.01)
    bounds = np.geomspace(lowest, highest, len(_HEAT) + 1)
    with drawing(150 + 17 * len(layers)) as figure:
        axes = figure.add_subplot()
        mesh = axes.pcolormesh(
            np.clip(np.ma.masked_invalid(cells), lowest, highest),
            cmap=ListedColormap(_HEAT),
            norm=BoundaryNorm(bounds, len(_HEAT)),
            edgecolor=colour("surface"),
            linewidth=1.5,
        )
        axes.invert_yaxis()
        axes.grid(visible=False)
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_label(False)
        axes.xaxis.tick_top()
        names = [label(column) for column in columns]
        axes.set_xticks(np.arange(len(columns)) + 0.5, names, rotation=90)
        step = math.ceil(len(layers) / 30)
        axes.set_yticks(np.arange(0, len(layers), step) + 0.5, [str(n) for n in layers[::step]])
        axes.set_ylabel("layer")
        key = figure.colorbar(mesh, location="bottom", aspect=24, spacing="uniform")
        key.outline.set_label(False)
        middle = len(bounds) // 2
        key.set_ticks([bounds[0], bounds[middle], bounds[-1]])
        key.set_ticklabels([small(bounds[0]), small(bounds[middle]), small(bounds[-1])])
        key.set_label("KL per megabyte saved, nats/MB")
        row, column = np.unravel_index(int(np.nanargmax(cells)), cells.shape)
        missing = int(np.isnan(cells).sum())
        said = (
            f"{len(columns)} projections in {len(layers)} layers; the dearest is "
            f"{names[column]} of layer {layers[row]} with {small(cells[row, column])} nats "
            f"per megabyte; {missing or 'none'} not measured."
        )
        return inline(figure, name, said)
