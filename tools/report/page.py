"""The accuracy report as one HTML file, which needs no network, no script and no other file.

page.render(json.loads(report.read_text("utf-8")))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from export.errors import ExportError
from tools.report import head_plots, plots, text

Json = Mapping[str, Any]

_FOLDER = Path(__file__).parent
_SECTIONS = (
    "bundle",
    "text",
    "stages",
    "pairs",
    "heads",
    "rescoring",
    "projections",
    "simulated",
    "gates",
)
_FILTERS = (
    text.beside,
    text.cosine,
    text.count,
    text.megabytes,
    text.perplexity,
    text.share,
    text.small,
    text.token,
)


def render(report: Json) -> str:
    """The page of a report.

    report: the JSON value with bundle, text, stages, pairs, heads, rescoring, projections,
    simulated and gates; a value in them may be None where it was not measured, and a list empty.
    Returns HTML in characters that UTF-8 can hold; the same bytes for the same report.
    Raises ExportError where a section is missing, or where numbers that belong together differ in
    how many they are.
    """
    if missing := [section for section in _SECTIONS if section not in report]:
        raise ExportError(
            f"the report has no {', '.join(missing)}; a page is made of {', '.join(_SECTIONS)}: "
            "write null or [] for what was not measured"
        )
    heads, projections = report["heads"] or [], report["projections"] or []
    candidates = (report["rescoring"] or {}).get("candidates")
    values = {section: report[section] or [] for section in _SECTIONS}
    values["pairs"] = [_with_plots(pair, index) for index, pair in enumerate(values["pairs"], 1)]
    return (
        _environment()
        .get_template("page.html.jinja")
        .render(
            values,
            css=Markup((_FOLDER / "page.css").read_text("utf-8")),
            heads_plot=head_plots.heads_plot(heads, candidates, "heads"),
            candidates_plot=head_plots.candidates_plot(heads, "candidates"),
            heat_maps=_heat_maps(projections),
            rescored=[head_plots.rescored(head, candidates) for head in heads],
        )
    )


def _with_plots(pair: Json, index: int) -> Json:
    """A pair with its id on the page and its plots."""
    name = f"pair-{index}"
    return {
        **pair,
        "id": name,
        "index": index,
        "layer_plot": plots.layer_plot(pair.get("layers") or [], f"{name}-layers"),
        "logits_plot": plots.logits_plot(pair.get("scatter"), f"{name}-logits"),
        "kl_plot": plots.kl_plot(pair.get("kl_histogram"), pair.get("kl"), f"{name}-kl"),
    }


def _heat_maps(projections: Sequence[Json]) -> list[tuple[str, Markup | None]]:
    """Each block type that was tried, with its map."""
    types = list(dict.fromkeys(entry["block_type"] for entry in projections))
    return [
        (
            block_type,
            head_plots.projections_plot(
                [entry for entry in projections if entry["block_type"] == block_type],
                f"projections-{index}",
            ),
        )
        for index, block_type in enumerate(types, 1)
    ]


def _environment() -> jinja2.Environment:
    """Templates of this folder: what they put out is escaped, and nothing in it hides."""
    environment = jinja2.Environment(
        autoescape=True,
        finalize=_said,
        loader=jinja2.FileSystemLoader(_FOLDER),
        lstrip_blocks=True,
        trim_blocks=True,
        # A value that is null has no values in it either, and both are said as not measured.
        undefined=jinja2.ChainableUndefined,
    )
    for filter_ in _FILTERS:
        environment.filters[filter_.__name__] = _tolerant(filter_)
    return environment


def _tolerant(say: Callable[..., str]) -> Callable[..., str]:
    """A wording for templates, where what was not measured is also an undefined value."""

    def filter_(*values: object) -> str:
        return say(*(None if isinstance(value, jinja2.Undefined) else value for value in values))

    return filter_


def _said(value: object) -> object:
    """What a template puts out for a value."""
    if value is None or isinstance(value, jinja2.Undefined):
        return text.NOT_MEASURED
    return text.visible(value) if type(value) is str else value
