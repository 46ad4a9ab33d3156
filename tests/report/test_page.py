"""The accuracy report's page: what is in it, and that it is the same every time."""

from __future__ import annotations

import copy
import hashlib
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest

from export.errors import ExportError
from tests.report.sample import HOSTILE, PAIRS, report
from tools.report import page


class Text(HTMLParser):
    """The text of a page by the section that it is in, the elements, and ids."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.sections: dict[str, str] = {}
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self._section = "top"
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs
        if tag == "section":
            self._section = dict(attrs)["id"] or ""

    def handle_data(self, data: str) -> None:
        self.sections[self._section] = self.sections.get(self._section, "") + f" {data.strip()}"

    def __getitem__(self, section: str) -> str:
        return " ".join(self.sections[section].split())


@pytest.fixture(scope="module")
def html() -> str:
    return page.render(report())


@pytest.fixture(scope="module")
def shown(html: str) -> Text:
    return Text(html)


def empty(value: Any) -> Any:
    """The same report in which no number was measured: its leaves are null."""
    if isinstance(value, dict):
        return {key: empty(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [empty(inner) for inner in value if isinstance(inner, dict)]
    return value if isinstance(value, str) else None


def test_the_bundle_is_named_at_the_top(shown: Text) -> None:
    for said in ("Gemma 3 270M", "gemma3_270m_torq", "Q4_1, calibrated", "1,024 positions"):
        assert said in shown["top"]
    assert "130.0 MB" in shown["top"]
    assert "5f2c1d6a" * 8 in shown["top"]


def test_every_gate_has_its_value_limit_reference_and_result(shown: Text) -> None:
    for row in (
        "✓ PASS head_after_rescoring_top_1 0.9995 ≥ 0.999 the exact head on the same hidden states",
        "✗ FAIL logits_cosine_p1 0.99897 ≥ 0.999 the stage before",
        "✓ PASS kl_p99 0.0081 ≤ 0.02 float32 arithmetic on the file's own weights",
    ):
        assert row in shown["gates"]


@pytest.mark.parametrize(
    ("results", "said"),
    [
        ((True, True), "✓ PASS all 2 gates passed"),
        ((True,), "✓ PASS the gate passed"),
        ((True, False), "✗ FAIL 1 of 2 gates failed"),
        ((None, False), "✗ FAIL 1 of 2 gates failed"),
        ((True, None), "? OPEN 1 of 2 gates passed"),
        ((), "? OPEN no gate was set"),
    ],
)
def test_the_verdict_follows_from_the_gates(results: tuple[bool | None, ...], said: str) -> None:
    value = report(pairs=1)
    value["gates"] = [{**value["gates"][0], "passed": passed} for passed in results]

    assert said in Text(page.render(value))["top"]


def test_every_pair_is_in_the_summary_and_has_a_section_of_its_own(shown: Text) -> None:
    for index, (reference, found) in enumerate(PAIRS, 1):
        assert f"{reference} → {found}" in shown["pairs"]
        assert f"{reference} → {found}" in shown[f"pair-{index}"]


def test_the_numbers_of_a_pair_are_shown() -> None:
    value = report(pairs=1)
    pair = value["pairs"][0]
    pair |= {
        "positions": 911,
        "top_1": 0.98765,
        "top_5": 0.97654,
        "top_10": 0.96543,
        "error_ulp": {"mean": 1.23, "max": 45.6},
        "perplexity": {"reference": 23.4171, "found": 23.4289},
        "kl": {"mean": 0.00111, "p50": 0.00222, "p90": 0.00333, "p99": 0.00444, "max": 0.00555},
    }
    for kind, digit in (("logits_cosine", 1), ("hidden_cosine", 2)):
        keys = ("mean", "min", "p1", "p5", "p50")
        pair[kind] = {key: float(f"0.9{digit}{n}{n}{n}{n}") for n, key in enumerate(keys, 1)}

    text = Text(page.render(value))

    for said in ("911", "98.76 %", "97.65 %", "96.54 %", "1.23", "45.6", "23.4171", "23.4289"):
        assert said in text["pair-1"]
    assert "KL, nats 0.00111 0.00555 0.00222 0.00333 0.00444" in text["pair-1"]
    for digit in (1, 2):
        said = " ".join(f"0.9{digit}{n}{n}{n}{n}" for n in range(1, 6))
        assert f"cosine {said}" in text["pair-1"]
    row = "911 0.911111 0.912222 0.00111 0.00444 98.76 % 96.54 % 23.4171 → 23.4289"
    assert row in text["pairs"]


def test_layers_texts_and_divergences_are_shown(shown: Text) -> None:
    assert "float32 arithmetic on the weights as they are packed" in shown["measured"]
    assert "900 positions of 3 texts" in shown["measured"]
    assert "prose.txt position 17 code.txt position 48 chat.txt never" in shown["pair-1"]
    assert "Cosines of all 18 layers" in shown["pair-1"]


def test_heads_projections_and_simulated_steps_are_shown(shown: Text) -> None:
    for said in ("Q4_1 ✓ used 104.9 MB", "40,960", "43.5 kB", "Q3_K 256"):
        assert said in shown["heads"]
    assert "Packed as Q4_1" in shown["projections"]
    assert "ffn_down 17 Q4_1 2.8 MB" in shown["projections"]
    assert (
        "prose.txt 212 bf16 0.999940 0.999910 0.999900 0.999530 ✗ differs 9" in (shown["simulated"])
    )


@pytest.mark.parametrize("token", HOSTILE)
def test_a_hostile_string_is_text_wherever_it_stands(token: str) -> None:
    def everywhere(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: everywhere(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [everywhere(inner) for inner in value]
        return token if isinstance(value, str) else value

    html = page.render(everywhere(report(pairs=1)))

    text = Text(html)
    assert html.encode()
    assert "script" not in text.tags
    assert "{{ 7 * 7 }}" not in token or "49" not in text["top"]
    assert not [name for name, _ in text.attributes if name.startswith("on")]
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u200b\u2028\u202e\ufeff]", html)


def test_nothing_is_loaded_and_no_script_is_in_it(html: str, shown: Text) -> None:
    assert not shown.tags & {"script", "img", "iframe", "object", "embed", "form"}
    assert "http://" not in html
    assert "https://" not in html
    assert "@import" not in html
    assert set(re.findall(r"url\((.)", html)) <= {"#"}


def test_ids_are_unique_and_links_go_to_them(shown: Text) -> None:
    ids = [value for name, value in shown.attributes if name == "id"]
    links = {value[1:] for name, value in shown.attributes if name == "href" and value[:1] == "#"}  # type: ignore[index]

    assert len(ids) == len(set(ids))
    assert links <= set(ids)


def test_every_plot_is_well_formed_and_says_what_it_shows(html: str) -> None:
    plots = [ElementTree.fromstring(svg) for svg in re.findall("<svg.*?</svg>", html, re.DOTALL)]

    assert len(plots) == 3 * len(PAIRS) + 3
    for plot in plots:
        assert plot.get("role") == "img"
        assert len(plot.get("aria-label", "")) > 40
        assert plot.findall(".//path")


def test_a_report_without_measurements_is_a_page() -> None:
    value: dict[str, Any] = {section: [] for section in report()}

    text = Text(page.render(value | {"bundle": None, "rescoring": None}))

    assert "No gate was set" in text["gates"]
    assert "No pair was compared" in text["pairs"]
    assert "No head was measured" in text["heads"]
    assert "No projection was measured" in text["projections"]
    assert "No step was simulated" in text["simulated"]


def test_numbers_that_are_null_are_dashes() -> None:
    text = Text(page.render(empty(report(pairs=1))))

    assert "file → packed – – – – – – – – → –" in text["pairs"]
    assert "Not measured." in text["pair-1"]


@pytest.mark.parametrize("part", ["logits_cosine", "kl", "layers", "scatter", "perplexity"])
def test_a_part_of_a_pair_may_be_null(part: str) -> None:
    value = report(pairs=1)
    value["pairs"][0][part] = None

    assert "file → packed" in Text(page.render(value))["pair-1"]


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf"), 0, 1, -1])
def test_a_number_may_be_any(number: float) -> None:
    def everywhere(value: Any) -> Any:
        if isinstance(value, dict):
            kept = {"layer", "candidates", "position", "kl_histogram"}
            return {k: v if k in kept else everywhere(v) for k, v in value.items()}
        if isinstance(value, list):
            return [everywhere(inner) for inner in value]
        return number if isinstance(value, float) else value

    assert "file → packed" in Text(page.render(everywhere(report(pairs=1))))["pairs"]


def test_a_report_without_a_section_is_refused_by_its_name() -> None:
    value = report(pairs=1)
    del value["gates"]

    with pytest.raises(ExportError, match="the report has no gates"):
        page.render(value)


def test_counts_that_do_not_fit_are_refused() -> None:
    edges, scatter = report(pairs=1), report(pairs=1)
    edges["pairs"][0]["kl_histogram"]["log10_edges"].pop()
    scatter["pairs"][0]["scatter"]["found"].pop()

    with pytest.raises(ExportError, match="17 edges for 17 counts"):
        page.render(edges)
    with pytest.raises(ExportError, match="2000 logits of the reference and 1999 found"):
        page.render(scatter)


def test_rendering_leaves_the_report_as_it_is() -> None:
    value = report(pairs=1)
    before = copy.deepcopy(value)

    page.render(value)

    assert value == before


def test_two_processes_render_the_same_bytes_and_few_of_them(html: str) -> None:
    program = (
        "import hashlib; from tests.report.sample import report; from tools.report import page\n"
        "print(hashlib.sha256(page.render(report()).encode()).hexdigest())"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "7"}

    other = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, env=environment, text=True
    )

    assert other.stdout.strip() == hashlib.sha256(html.encode()).hexdigest()
    assert len(html.encode()) < 1_500_000
