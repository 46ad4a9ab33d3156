"""The accuracy report's page as Chromium lays it out: phone and desktop, light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.report.browser import CHROMIUM, DRIVER, Browser, browser
from tests.report.sample import PAIRS, awkward, report
from tools.report import page

pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="no Chromium: apt install chromium chromium-driver"
)
WINDOWS = [
    (width, height, scheme)
    for width, height in ((360, 800), (768, 1024), (1280, 900), (1920, 1080))
    for scheme in ("light", "dark")
]

# Elements that hold text themselves and are seen, with what decides how it looks.
TEXTS = """
const shown = element => element.checkVisibility({contentVisibilityAuto: true});
const parse = colour => colour.match(/[\\d.]+/g).map(Number);
const back = element => {
  for (; element; element = element.parentElement) {
    const [r, g, b, a = 1] = parse(getComputedStyle(element).backgroundColor);
    if (a === 1) return [r, g, b];
  }
  return null;
};
document.querySelectorAll('details').forEach(details => details.open = true);
return [...document.querySelectorAll('body *')].filter(element => shown(element) &&
  [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim())).map(element => {
    const style = getComputedStyle(element);
    const svg = element.closest('svg');
    const scale = svg ? svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : 1;
    return {
      text: element.textContent.trim().slice(0, 40),
      size: parseFloat(style.fontSize) * scale,
      weight: Number(style.fontWeight),
      colour: parse(svg ? style.fill : style.color).slice(0, 3),
      back: back(element),
      drawn: svg !== null,
    };
  });
"""

# Boxes that reach out of the section that they are in, but for those that scroll in a box.
OUTSIDE = """
document.querySelectorAll('details').forEach(details => details.open = true);
return [...document.querySelectorAll('section *, header *, nav *')].filter(element => {
  if (element.closest('.scroll') && !element.matches('.scroll')) return false;
  const box = element.getBoundingClientRect();
  const around = element.closest('section, header, nav').getBoundingClientRect();
  return box.width && (box.right > around.right + 1 || box.left < around.left - 1);
}).map(element => element.outerHTML.slice(0, 200));
"""

# Texts of a plot that are cut, or that lie on another one.
COLLIDING = """
return [...document.querySelectorAll('svg.plot')].flatMap(svg => {
  const around = svg.getBoundingClientRect();
  const boxes = [...svg.querySelectorAll('text')].map(text => [text, text.getBoundingClientRect()]);
  return boxes.flatMap(([text, a], index) => [
    ...(a.left < around.left - 2 || a.right > around.right + 2 || a.top < around.top - 2 ||
        a.bottom > around.bottom + 2 ? [`${text.textContent} leaves its plot`] : []),
    ...boxes.slice(index + 1).filter(([, b]) =>
        Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
        Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3)
      .map(([other]) => `${text.textContent} on ${other.textContent}`)]);
});
"""


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("chromium")) as running:
        yield running


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page.render(report()), "utf-8")
    return path


@pytest.fixture(params=WINDOWS, ids=lambda window: "x".join(map(str, window)))
def opened(request: pytest.FixtureRequest, chromium: Browser, file: Path) -> Browser:
    chromium.requests()
    chromium.complaints()
    chromium.open(file, *request.param)
    return chromium


def luminance(colour: list[float]) -> float:
    """Relative luminance of WCAG 2.2."""
    linear = [
        value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4
        for value in (channel / 255 for channel in colour)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(entry: dict[str, Any]) -> float:
    dark, light = sorted(luminance(entry[key]) for key in ("colour", "back"))
    return (light + 0.05) / (dark + 0.05)


def test_the_page_does_not_scroll_sideways(opened: Browser) -> None:
    root = "document.documentElement"
    assert opened.run(f"return {root}.scrollWidth <= {root}.clientWidth")
    assert opened.run(OUTSIDE) == []


def test_text_is_large_enough_and_stands_out(opened: Browser) -> None:
    texts = opened.run(TEXTS)

    assert len(texts) > 1000
    least = {True: 12, False: 14}
    assert [entry for entry in texts if entry["size"] < least[entry["drawn"]] - 0.01] == []
    assert [entry for entry in texts if contrast(entry) < 4.5] == []


def test_plots_are_seen_and_their_labels_are_apart(opened: Browser) -> None:
    sizes = opened.run(
        "return [...document.querySelectorAll('svg.plot')].map(svg => svg.getBoundingClientRect())"
    )

    assert len(sizes) == 3 * len(PAIRS) + 3
    assert all(size["width"] > 280 and size["height"] > 150 for size in sizes)
    assert opened.run(COLLIDING) == []


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_a_report_of_an_odd_shape_fits_as_well(
    chromium: Browser, tmp_path: Path, width: int
) -> None:
    path = tmp_path / "awkward.html"
    path.write_text(page.render(awkward()), "utf-8")

    chromium.open(path, width, 800, "light")

    root = "document.documentElement"
    assert chromium.run(f"return {root}.scrollWidth <= {root}.clientWidth")
    assert chromium.run(OUTSIDE) == []
    assert chromium.run(COLLIDING) == []


def test_nothing_is_asked_of_a_network_and_the_console_is_silent(
    opened: Browser, file: Path
) -> None:
    assert [url for url in opened.requests() if not url.startswith("data:")] == [file.as_uri()]
    assert opened.complaints() == []


def test_a_screen_reader_finds_tables_on_a_phone_and_plots_by_name(
    chromium: Browser, file: Path
) -> None:
    chromium.open(file, 360, 800, "light")

    nodes = chromium.command("Accessibility.getFullAXTree", {})["nodes"]
    roles = [node.get("role", {}).get("value") for node in nodes if not node.get("ignored")]
    plots = [node for node in nodes if node.get("role", {}).get("value") in {"img", "image"}]

    assert roles.count("table") >= 2
    assert roles.count("columnheader") >= 14
    assert len([plot for plot in plots if plot["name"]["value"]]) >= 3 * len(PAIRS) + 3


def test_a_wide_table_scrolls_in_its_own_box_by_keyboard(chromium: Browser, file: Path) -> None:
    chromium.open(file, 360, 800, "light")

    boxes = chromium.run(
        "return [...document.querySelectorAll('.scroll')].filter(box => "
        "box.scrollWidth > box.clientWidth).map(box => [box.tabIndex, box.ariaLabel.length > 3])"
    )

    assert boxes
    assert all(box == [0, True] for box in boxes)


def test_paper_is_white_without_a_menu_and_with_all_details(chromium: Browser, file: Path) -> None:
    chromium.open(file, 1280, 900, "dark")
    chromium.media("print", "dark")

    assert chromium.run("return getComputedStyle(document.body).backgroundColor") == (
        "rgb(255, 255, 255)"
    )
    assert not chromium.run("return document.querySelector('nav').checkVisibility()")
    assert chromium.run(
        "return [...document.querySelectorAll('details table')]"
        ".every(table => table.checkVisibility())"
    )
