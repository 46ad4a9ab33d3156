"""What the tests of both vocabularies, a toy's and the real one, have in common."""

from __future__ import annotations

from pathlib import Path

from export.bundle.tokenizer import vocabulary
from export.gguf import reader
from runtime.tokenizer import Tokenizer
from tests.llama.oracle import LlamaOracle
from tests.runtime.strings import strings


def load(path: Path) -> Tokenizer:
    """The tokenizer of a checkpoint, as a bundle would hold it."""
    words = vocabulary(reader.read(path))
    return Tokenizer.load(words.write(), words.description)


def assert_equals_llama_cpp(path: Path, count: int) -> None:
    """Compares so many strings, with control tokens as text and as tokens, and the reply's ends."""
    ours, theirs = load(path), LlamaOracle(path, 32)
    assert ours.end == theirs.ends()
    for special in (False, True):
        for text in strings(count):
            assert ours.encode(text, special=special) == theirs.tokenize(text, special=special)
