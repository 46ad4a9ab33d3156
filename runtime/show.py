"""What people see on stderr while a program works: progress, and what it cost."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm

from runtime.generate import Stats


@contextmanager
def prefill(tokens: int) -> Iterator[Callable[[int], None]]:
    """A line that grows while the prompt is run, where stderr is a terminal."""
    with tqdm(
        total=tokens,
        desc="prompt",
        unit="token",
        file=sys.stderr,
        leave=False,
        disable=not sys.stderr.isatty(),
    ) as bar:

        def progress(done: int) -> None:
            bar.update(done - bar.n)
            if done == tokens:
                bar.close()

        yield progress


def note(text: str) -> None:
    """One line on stderr, where it is a terminal."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr)


def stats_line(stats: Stats) -> str:
    """What a generation cost, as one line."""
    return (
        f"prompt {stats.prompt_tokens} tokens ({stats.kept_tokens} cached), "
        f"first token after {stats.first_token_seconds:.2f} s; "
        f"{stats.tokens} tokens, {stats.token_milliseconds:.1f} ms/token; end: {stats.finish}"
    )


def stats_json(stats: Stats) -> dict[str, object]:
    """What a generation cost, as JSON values; times in ms."""
    return {
        "prompt_tokens": stats.prompt_tokens,
        "cached_tokens": stats.kept_tokens,
        "tokens": stats.tokens,
        "first_token_ms": round(1000 * stats.first_token_seconds, 3),
        "ms_per_token": round(stats.token_milliseconds, 3),
        "finish": stats.finish,
    }
