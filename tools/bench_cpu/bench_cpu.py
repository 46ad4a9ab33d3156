"""A step on this CPU beside llama.cpp's, on the same file, the same tokens and as many threads.

    bazel run //export:gemma3_270m_torq.bench_cpu -- [--rounds=8] [--steps=16]

The two take turns, a round of steps each, so that what else the machine does falls on both. Ours is
the bundle's CPU program with the host's work (embedding, tables, cache, rescoring); theirs is
llama_decode as it is by default (repacked weights, activations quantised to 8 bits), where ours are
float32. Prints JSON: the median milliseconds of a step, and how many times theirs ours is.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from absl import flags
from cyllama.llama import llama_cpp

from runtime import options
from runtime.bundle import Bundle
from runtime.errors import RunError
from tools.llama.llama import Llama

_GGUF = flags.DEFINE_string("gguf", "", "The bundle's checkpoint.")
_ROUNDS = flags.DEFINE_integer("rounds", 8, "Rounds of each.", lower_bound=1)
_STEPS = flags.DEFINE_integer("steps", 16, "Steps of a round.", lower_bound=1)
flags.adopt_module_key_flags(options)

Step = Callable[[int], object]


def llama_step(gguf: Path, context: int, threads: int) -> Step:
    """llama.cpp's step of one token at the next position, its options as they are by default."""
    parameters, options_ = llama_cpp.LlamaModelParams(), llama_cpp.LlamaContextParams()
    options_.n_ctx = context
    options_.n_threads = options_.n_threads_batch = threads
    return Llama(gguf, parameters, options_).feed


def rounds(steps: Sequence[Step], tokens: Sequence[int], length: int) -> list[list[float]]:
    """Milliseconds of each step, by engine; all see all tokens, `length` of them at a turn.

    The first step of each is not in it: it loads what later ones have.
    """
    found: list[list[float]] = [[] for _ in steps]
    for start in range(0, len(tokens), length):
        for step, milliseconds in zip(steps, found, strict=True):
            for token in tokens[start : start + length]:
                begun = time.perf_counter()
                step(token)
                milliseconds.append(1000 * (time.perf_counter() - begun))
    return [milliseconds[1:] for milliseconds in found]


def sample(bundle: Bundle, count: int) -> list[int]:
    """So many tokens, the beginning of a text first; RunError where the context has fewer."""
    if count > bundle.context:
        raise RunError(
            f"{count} steps are beyond the bundle's context of {bundle.context}; "
            "lower --rounds or --steps"
        )
    text = bundle.tokenizer.encode("The quick brown fox jumps over the lazy dog. ")
    return (text * count)[:count]


def main(_: list[str]) -> int:
    """Measures and prints."""
    if not _GGUF.value:
        raise RunError("--gguf is missing: the bundle's checkpoint, beside which it is measured")
    bundle = options.open_bundle()
    tokens = sample(bundle, _ROUNDS.value * _STEPS.value)
    threads = len(os.sched_getaffinity(0))
    with options.open_decoder(bundle, "iree") as decoder:
        steps = [
            lambda token: decoder.logits(decoder.feed(token)),
            llama_step(options.brought(_GGUF.value), bundle.context, threads),
        ]
        ours, theirs = (median(found) for found in rounds(steps, tokens, _STEPS.value))
    result = {
        "bundle": bundle.name,
        "threads": threads,
        "ours_milliseconds_p50": round(ours, 2),
        "llama_cpp_milliseconds_p50": round(theirs, 2),
        "ratio": round(ours / theirs, 2),
    }
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    options.run("bench_cpu", main)
