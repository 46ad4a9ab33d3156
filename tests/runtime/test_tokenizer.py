"""The tokenizer of a toy: llama.cpp's tokens, and text that streams in whole characters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from export.bundle.tokenizer import vocabulary
from export.errors import ExportError
from export.gguf import reader
from export.gguf.reader import GgufFile, Value
from runtime.tokenizer import Tokenizer
from tests.runtime.strings import strings
from tests.runtime.tokenization import assert_equals_llama_cpp, load
from tests.toy.toy import Toy


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    return Toy().write(tmp_path / "toy.gguf")


@pytest.fixture
def tokenizer(toy: Path) -> Tokenizer:
    return load(toy)


def test_tokens_equal_llama_cpp(toy: Path) -> None:
    assert_equals_llama_cpp(toy, 500)


def test_control_tokens_in_a_users_text_stay_text(tokenizer: Tokenizer) -> None:
    as_text = tokenizer.encode("<eos>", bos=False)
    as_token = tokenizer.encode("<eos>", bos=False, special=True)

    assert tokenizer.eos not in as_text
    assert as_token == [tokenizer.eos]


@pytest.mark.parametrize("text", ["", "é", "👩‍👧", "日本", "plain"])
def test_streamed_text_is_the_decoded_text_in_whole_characters(
    text: str, tokenizer: Tokenizer
) -> None:
    ids = tokenizer.encode(text, bos=False)

    pieces = list(tokenizer.stream(iter(ids)))

    assert "".join(pieces) == tokenizer.decode(ids)
    assert "\ufffd" not in "".join(pieces)
    # A toy has a token for each byte, so characters of several bytes come from several tokens.
    assert len(pieces) <= len(ids)


def test_half_a_character_at_the_end_is_shown_as_damaged(tokenizer: Tokenizer) -> None:
    *whole, _ = tokenizer.encode("é", bos=False)

    assert "".join(tokenizer.stream(iter(whole))).endswith("\ufffd")


def test_a_marker_that_a_file_has_as_user_defined_is_a_control_token(toy: Path) -> None:
    words = vocabulary(reader.read(toy))
    said = {**words.description, "user_defined": {"<escape>": 270, "  ": 260}}
    tokenizer = Tokenizer.load(words.write(), said)

    assert tokenizer.control["<escape>"] == 270
    assert 270 not in tokenizer.encode("a<escape>  b", bos=False)
    assert 260 in tokenizer.encode("a<escape>  b", bos=False)


def test_what_is_no_unicode_is_read_as_a_replacement_character(tokenizer: Tokenizer) -> None:
    # As Python reads the bytes 61 ff c3 of a command line.
    found = tokenizer.encode("a\udcff\udcc3", bos=False)

    assert found == tokenizer.encode("a\ufffd\ufffd", bos=False)


def test_a_text_comes_back(tokenizer: Tokenizer) -> None:
    # "▁" is how the vocabulary writes a space, so it comes back as one.
    for text in (text for text in strings(300) if "▁" not in text):
        assert tokenizer.decode(tokenizer.encode(text, bos=False)) == text


def changed(gguf: GgufFile, **keys: Value) -> GgufFile:
    prefixed = {f"tokenizer.ggml.{key}": value for key, value in keys.items()}
    return replace(gguf, metadata={**gguf.metadata, **prefixed})


WRONG: dict[str, tuple[dict[str, Value], str]] = {
    "another kind": ({"model": "bert"}, "tokenizer 'bert' is not supported"),
    "scores of text": ({"scores": "none"}, "scores is no array of 288 numbers"),
    "fewer scores": ({"scores": np.zeros(3, np.float32)}, "scores is no array of 288 numbers"),
    "fewer types": ({"token_type": np.ones(3, np.int32)}, "token_type is no array of 288"),
    "tokens of numbers": ({"tokens": np.ones(288)}, "tokens is no array of texts"),
    "no merges": ({"model": "gpt2"}, "merges is no array of texts"),
}


@pytest.mark.parametrize("name", WRONG)
def test_metadata_that_is_no_vocabulary_is_named(name: str, toy: Path) -> None:
    keys, message = WRONG[name]

    with pytest.raises(ExportError, match=message):
        vocabulary(changed(reader.read(toy), **keys))
