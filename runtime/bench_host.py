"""What a step costs the host on this machine, the program itself left out.

    bazel run //export:gemma3_270m_torq.bench_host -- [--steps=300] [--position=600]

A bundle's own embedding rows, RoPE tables, masks, cache and head, with a backend that takes no time
and gives random results; tokens are chosen greedily, freely and then within calls of 20 functions.
Prints JSON: milliseconds a step (median and 99th percentile), by part and whole. What a backend on
this CPU does to hand over the caches is its own, and not in it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from absl import flags

from runtime import options
from runtime.backends.backend import Backend
from runtime.bundle import Bundle
from runtime.decoder import Decoder
from runtime.errors import RunError
from runtime.functions.constraint import CallConstraint, Vocabulary
from runtime.functions.schema import load_functions
from runtime.prompting import Form
from runtime.sampling import Sampler, Sampling

flags.adopt_module_key_flags(options)
_STEPS = flags.DEFINE_integer("steps", 300, "Steps that are measured.", lower_bound=1)
_POSITION = flags.DEFINE_integer("position", 600, "That of the first step.", lower_bound=0)

_TOOLS = [
    {
        "name": f"{verb}_{thing}",
        "parameters": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {"type": "string", "maxLength": 200},
                "kind": {"enum": ["work", "home", "other"]},
                "count": {"type": "integer", "minimum": 0, "maximum": 999},
            },
        },
    }
    for verb in ("create", "delete", "find", "show", "send")
    for thing in ("alarm", "event", "message", "note")
]


class _NoTime(Backend):
    """Gives the same random results for every step, in the dtype of the NPU's program."""

    def __init__(self, bundle: Bundle) -> None:
        super().__init__(bundle, bundle.program("torq"))
        random = np.random.default_rng(0)
        self._results = {
            port.name: random.standard_normal(port.shape, np.float32).astype(self.program.dtype)
            for port in bundle.outputs
        }

    def _run(self, _values: Mapping[str, np.ndarray], _position: int) -> Mapping[str, np.ndarray]:
        return self._results


class _Clock:
    """Milliseconds by part, one list each."""

    def __init__(self) -> None:
        self.parts: dict[str, list[float]] = {}
        self._since = time.perf_counter()

    def start(self) -> None:
        """Begins the first part of a step."""
        self._since = time.perf_counter()

    def note(self, part: str) -> None:
        """Ends a part of a step, and begins the next."""
        now = time.perf_counter()
        self.parts.setdefault(part, []).append(1000 * (now - self._since))
        self._since = now


def measure(bundle: Bundle, steps: int, position: int, constrained: bool) -> dict[str, list[float]]:
    """Milliseconds of each of so many steps: by part, and whole as "step".

    constrained: whether the tokens are those of calls of functions.

    Raises RunError where the positions are beyond the bundle's context.
    """
    if position + steps > bundle.context:
        raise RunError(
            f"--position={position} and --steps={steps} are beyond the context of {bundle.context}"
        )
    decoder, sampler = Decoder(bundle, _NoTime(bundle)), Sampler(Sampling())
    token = bundle.tokenizer.bos
    decoder.tokens = [token] * position
    constraint = next(constraints := _constraints(bundle)) if constrained else None
    clock = _Clock()
    for _step in range(steps):
        if constraint and constraint.finished:
            constraint = next(constraints)
        clock.start()
        result = decoder.feed(token)
        clock.note("feed")
        allowed = constraint.allowed() if constraint else None
        clock.note("mask")
        logits = decoder.logits(result, allowed)
        clock.note("rescoring")
        token = sampler.choose(logits, decoder.tokens, allowed)
        clock.note("choice")
        if constraint:
            constraint.accept(token)
        clock.note("acceptance")
    whole = [sum(step) for step in zip(*clock.parts.values(), strict=True)]
    return {**clock.parts, "step": whole}


def _constraints(bundle: Bundle) -> Iterator[CallConstraint]:
    """A constraint for one reply after the other."""
    vocabulary = Vocabulary.of(bundle.tokenizer, Form.of(bundle).stops)
    functions = load_functions(_TOOLS)
    while True:
        yield CallConstraint(vocabulary, functions, bundle.vocabulary)


def main(_: list[str]) -> int:
    """Measures and prints."""
    bundle = options.open_bundle()
    shown: dict[str, Any] = {"bundle": bundle.name, "unit": "ms"}
    for name, constrained in (("text", False), ("calls", True)):
        parts = measure(bundle, _STEPS.value, _POSITION.value, constrained)
        shown[name] = {part: _percentiles(values) for part, values in parts.items()}
    print(json.dumps(shown, indent=2))
    return 0


def _percentiles(values: list[float]) -> dict[str, float]:
    return {f"p{at}": round(float(np.percentile(values, at)), 3) for at in (50, 99)}


if __name__ == "__main__":
    options.run("bench_host", main)
