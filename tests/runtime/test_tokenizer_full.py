"""The tokenizer of the real Gemma 3 against llama.cpp."""

from __future__ import annotations

import os
from pathlib import Path

from tests.runtime.tokenization import assert_equals_llama_cpp


def test_tokens_of_two_thousand_strings_equal_llama_cpp() -> None:
    assert_equals_llama_cpp(Path(os.environ["TEST_SRCDIR"]) / "gemma3_270m" / "model.gguf", 2000)
