"""The facts of a checkpoint as short plain text, at most 100 columns wide."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterator
from typing import Any

_WIDTH = 100
_LABEL = 20

_BECOMES = {
    "packed": "stays packed as it is",
    "quantised": "is quantised to {}",
    "requantised": "is requantised to {}",
    "dense": "stays dense (norms, biases)",
    "embedding": "rows of the embedding, as they are",
    "rope": "divides the angles of RoPE",
    "refused": "has no packed form",
    "unknown": "has no place in the step",
}


def text(facts: dict[str, Any]) -> str:
    """Lines for people."""
    lines = [*_model(facts), "", *_tensors(facts["tensors"]), ""]
    if facts["step"]:
        lines += [*_step(facts["step"]), ""]
    whole = "\n".join([*lines, *_verdict(facts)])
    # What the file says is shown, and not obeyed by a terminal.
    return "".join(char if char.isprintable() or char == "\n" else "?" for char in whole)


def _row(label: str, value: str) -> str:
    return f"{label:<{_LABEL}}{value}"


def _model(facts: dict[str, Any]) -> Iterator[str]:
    model = facts["model"]
    yield from _wrapped(facts["file"], "file")
    yield _row("", f"{facts['file_bytes']:,} bytes, {model['parameters']:,} parameters")
    licence = model["licence"] or "not in the file"
    yield from _wrapped(f"{model['name'] or 'not in the file'}; licence: {licence}", "name")
    yield _row("architecture", f"{model['architecture']}")
    yield _row("layers", _layers(model))
    yield _row(
        "hidden", f"{_count(model['hidden_size'])}, feed-forward {_count(model['ffn_size'])}"
    )
    heads = [_count(model[name]) for name in ("heads", "kv_heads", "head_dim")]
    yield _row("heads", "{}, K/V {}, of {} values".format(*heads))
    head = "of its own" if model["own_head"] else "tied to the embedding"
    yield _row("vocabulary", f"{_count(model['vocabulary'])} tokens, head {head}")
    yield _row("trained context", f"{_count(model['context_length'])} positions")
    for rope in model["ropes"]:
        scaled = f"scale {rope['scale']:g}" if rope["scale"] != 1 else "not scaled"
        factors = f", {rope['factors']} factors" if rope["factors"] else ""
        kind = f"{rope['layers'].lower()} layers"
        yield _row("RoPE", f"{kind}: base {_plain(rope['base'])}, {scaled}{factors}")
    kind = model["tokenizer"] or f"{model['tokenizer_in_file']!r}, which cannot be used"
    template = "a chat template" if model["chat_template"] else "no chat template"
    yield _row("tokenizer", f"{kind}; {template}")


def _plain(number: float) -> str:
    return f"{number:,.0f}" if number == round(number) else f"{number:,}"


def _count(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"


def _layers(model: dict[str, Any]) -> str:
    layers = _count(model["layers"])
    if not model["ropes"]:
        return layers
    if not model["window"]:
        return f"{layers}, all see the whole context"
    return f"{layers}, of them {model['sliding_layers']:,} see {model['window']:,} positions"


def _tensors(groups: list[dict[str, Any]]) -> Iterator[str]:
    yield _row("tensors", f"{sum(group['count'] for group in groups):,}")
    for group in groups:
        fate = _BECOMES[group["becomes"]].format(group["packed_type"])
        size = f"{group['count']:>6,} {group['file_bytes']:>17,} bytes"
        yield _row(f"  {group['file_type']}", f"{size}  {fate}")


def _step(step: dict[str, Any]) -> Iterator[str]:
    estimate = step["estimate"]
    yield _row("context", f"{step['context']:,} positions")
    yield _row("fusions", f"{step['fusions']:,} matmuls in {step['parts']:,} parts")
    stacked = "caches stacked by kind of layer" if step["stacked_caches"] else "a cache a layer"
    limit = f"at most {step['most_arguments']}"
    yield _row("dispatch arguments", f"{step['arguments']} ({limit}), {stacked}")
    sizes = {
        "packed weights": (step["packed_bytes"], "q, scales and zero points"),
        "embedding": (step["embedding_bytes"], "on the host, a row a token"),
        "caches": (step["cache_bytes"], "K and V in bf16"),
        "program": (estimate["program_bytes"], "estimate"),
    }
    for label, (size, note) in sizes.items():
        yield _row(label, f"{size:>17,} bytes  {note}")
    yield _row("timeline of a step", f"{estimate['end_units']:>17,} units  estimate")
    yield _row("  of it, DMA", f"{estimate['dma_units']:>17,} units  weights and caches, estimate")
    yield from _wrapped(
        f"{estimate['unit']}; the estimates are fitted to what was measured, and off there by",
        "",
    )
    for error in estimate["off_by"]:
        parts = f"program {error['program']:+6.1%}  timeline {error['end']:+6.1%}"
        yield _row("", f"  {parts}  {error['name']}")


def _verdict(facts: dict[str, Any]) -> Iterator[str]:
    yield _row("Torq can take it", "yes" if facts["torq_can_take_it"] else "no")
    alike = Counter(re.sub(r"\bblk\.\d+\.", "blk.N.", reason) for reason in facts["reasons"])
    for reason, count in alike.items():
        layers = f" ({count} layers)" if count > 1 else ""
        yield from _wrapped(f"- {reason}{layers}", "", "  ")
    yield from _wrapped(facts["not_checked"], "not checked")


def _wrapped(value: str, label: str, indent: str = "") -> list[str]:
    """A row whose value goes on below itself where it is too long."""
    lines = textwrap.wrap(value, _WIDTH - _LABEL, subsequent_indent=indent, break_on_hyphens=False)
    return [_row(label, lines[0]), *(_row("", line) for line in lines[1:])]
