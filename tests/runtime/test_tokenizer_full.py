"""The tokenizers of real checkpoints, of both kinds, against llama.cpp."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from export.bundle.tokenizer import vocabulary
from export.errors import ExportError
from export.gguf import reader
from tests.runtime.strings import strings
from tests.runtime.tokenization import assert_equals_llama_cpp, load


def checkpoint(name: str) -> Path:
    return Path(os.environ["TEST_SRCDIR"]) / name / "model.gguf"


@pytest.mark.parametrize("name", ["gemma3_270m", "smollm2_135m"])
def test_tokens_of_two_thousand_strings_equal_llama_cpp(name: str) -> None:
    assert_equals_llama_cpp(checkpoint(name), 2000)


def test_byte_level_bpe_gives_every_text_back() -> None:
    tokenizer = load(checkpoint("smollm2_135m"))

    for text in strings(1000):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_byte_level_bpe_streams_whole_characters() -> None:
    tokenizer = load(checkpoint("smollm2_135m"))
    text = "日本語 👩\u200d👩\u200d👧 é ﬁ"
    tokens = tokenizer.encode(text)

    pieces = list(tokenizer.stream(iter(tokens)))

    assert "".join(pieces) == text
    assert "\ufffd" not in "".join(pieces)
    assert len(pieces) < len(tokens)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("pre", "tekken", "pre is 'tekken', which is not supported; .*smollm"),
        ("model", "rwkv", "tokenizer 'rwkv' is not supported"),
    ],
)
def test_a_cut_that_is_not_known_is_named(key: str, value: str, words: str) -> None:
    gguf = reader.read(checkpoint("smollm2_135m"))
    changed = replace(gguf, metadata={**gguf.metadata, f"tokenizer.ggml.{key}": value})

    with pytest.raises(ExportError, match=words):
        vocabulary(changed)
