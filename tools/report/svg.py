"""A matplotlib figure as SVG inside an HTML page: small, the same bytes every time, themed by CSS.

A colour of the page is drawn as a stand-in, and written as the CSS variable that it stands for.
A unit of the drawing is a CSS pixel where the figure is shown at its own width.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

# The narrowest phone has 360 px, of which the page's margins leave these; text of the drawing is
# then shown at its size.
WIDTH = 320
TEXT = 12.5

_NAMES = ("ink", "muted", "grid", "surface", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8")
_STAND_INS = {name: f"#0000{index:02x}" for index, name in enumerate(_NAMES, 1)}
_VARIABLES = {colour: f"var(--{name})" for name, colour in _STAND_INS.items()}
_SVG, _XLINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}"
_NUMBER = re.compile(r"-?\d+\.\d+")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "torq",
    "text.parse_math": False,
    "font.family": "DejaVu Sans",
    "font.size": TEXT,
    "axes.labelsize": TEXT,
    "axes.titlesize": TEXT,
    "xtick.labelsize": TEXT,
    "ytick.labelsize": TEXT,
    "legend.fontsize": TEXT,
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    "legend.borderpad": 0.2,
    "legend.borderaxespad": 0.6,
    "text.color": _STAND_INS["ink"],
    "axes.labelcolor": _STAND_INS["ink"],
    "axes.edgecolor": _STAND_INS["muted"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.linewidth": 1,
    "grid.color": _STAND_INS["grid"],
    "grid.linewidth": 1,
    "xtick.major.pad": 6,
    "xtick.color": _STAND_INS["muted"],
    "ytick.color": _STAND_INS["muted"],
    "xtick.labelcolor": _STAND_INS["ink"],
    "ytick.labelcolor": _STAND_INS["ink"],
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "path.simplify": False,
}


def colour(name: str) -> str:
    """What matplotlib draws with, for a colour of the page: ink, muted, grid, surface, s1 to s8."""
    return _STAND_INS[name]


def series(index: int) -> str:
    """The colour of a series, from 0 on; after eight they come again."""
    return colour(f"s{index % 8 + 1}")


def text_width(text: str) -> float:
    """About how wide a text is, in pixels, in the widest font that a page is read in."""
    return 0.65 * TEXT * len(text)


@contextmanager
def drawing(height: float) -> Iterator[Figure]:
    """A figure of the page's width and a height in pixels; draw and export inside the block."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(WIDTH / 72, height / 72), dpi=72, layout="constrained")
        FigureCanvasSVG(figure)
        yield figure


def inline(figure: Figure, name: str, alternative: str) -> Markup:
    """The figure as one <svg>.

    name: begins its ids, so it must be unique on the page.
    alternative: what it shows, in words, for whom cannot see it.
    """
    written = io.StringIO()
    figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    root = ElementTree.fromstring(written.getvalue())
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag == f"{_SVG}metadata" or child.find(f"{_SVG}style") is not None:
                parent.remove(child)
    used = _used_ids(root)
    for element in root.iter():
        _clean(element, name, used)
    for size in ("width", "height", "version"):
        root.attrib.pop(size, None)
    root.attrib |= {"role": "img", "aria-label": alternative, "class": "plot"}
    return Markup(ElementTree.tostring(root, "unicode", short_empty_elements=True))


def _used_ids(root: ElementTree.Element) -> set[str]:
    used = set()
    for element in root.iter():
        if link := element.get(f"{_XLINK}href"):
            used.add(link[1:])
        for value in element.attrib.values():
            used.update(_REFERENCE.findall(value))
    return used


def _clean(element: ElementTree.Element, name: str, used: set[str]) -> None:
    """Leaves of an element what a page needs: ids that are used, rounded numbers, CSS colours."""
    element.tag = element.tag.removeprefix(_SVG)
    if element.tag != "text" and element.text and not element.text.strip():
        element.text = None
    element.tail = None
    attributes = {}
    for key, value in element.attrib.items():
        if key == "id":
            if value in used:
                attributes["id"] = f"{name}-{value}"
        elif key == f"{_XLINK}href":
            attributes["href"] = f"#{name}-{value[1:]}"
        elif key == "style":
            attributes["style"] = _style(value)
        elif key == "d":
            attributes["d"] = _path(value)
        elif key == "transform" and value.startswith("rotate(-0 "):
            continue
        else:
            attributes[key] = _REFERENCE.sub(rf"url(#{name}-\1)", _rounded(value))
    element.attrib.clear()
    element.attrib.update(attributes)


def _path(path: str) -> str:
    """A path in few bytes; a line to where it starts, which is drawn as a dot, in fewer."""
    short = re.sub(r"\s*([MLCQz])\s*", r"\1", " ".join(_rounded(path).split()))
    return re.sub(r"M([^MLCQz]+)L\1(?=M|$)", r"M\1h0", short)


def _style(style: str) -> str:
    """A style without its fonts, which are the page's, and with the page's colours."""
    kept = [part for part in style.split("; ") if not part.startswith("font-family")]
    return ";".join(
        f"{key}:{_VARIABLES.get(value, value)}"
        for key, value in (part.split(": ") for part in kept)
    )


def _rounded(text: str) -> str:
    """Numbers to a tenth of a pixel, which is less than what is seen."""
    return _NUMBER.sub(lambda match: f"{float(match[0]):.1f}".removesuffix(".0"), text)
