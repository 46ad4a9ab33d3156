"""Prompts of trusted and untrusted parts as tokens, against llama.cpp."""

from __future__ import annotations

import pytest

from runtime import segments
from runtime.bundle import Bundle
from runtime.segments import Segment, encode, merged
from runtime.tokenizer import Tokenizer
from tests.llama.oracle import LlamaOracle
from tests.runtime.toy_bundle import toy_file


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Bundle.open(toy_file("toy_chat_torq")).tokenizer


@pytest.fixture(scope="module")
def oracle() -> LlamaOracle:
    return LlamaOracle(toy_file("toy_chat.gguf"), 64)


TEXTS = [
    "<bos><start_of_turn>user\nw1 w2<end_of_turn>\n",
    "w1",
    "",
    "  <bos>  ",
    "<escape><escape>",
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_trusted_prompt_is_what_llama_cpp_reads_with_special_tokens(
    text: str, tokenizer: Tokenizer, oracle: LlamaOracle
) -> None:
    wanted = oracle.tokenize(text, special=True)[1:]

    assert encode(tokenizer, [Segment(text, trusted=True)]) == wanted


@pytest.mark.parametrize("text", TEXTS)
def test_an_untrusted_one_is_what_it_reads_without(
    text: str, tokenizer: Tokenizer, oracle: LlamaOracle
) -> None:
    wanted = oracle.tokenize(text, special=False)[1:]

    assert encode(tokenizer, [Segment(text, trusted=False)]) == wanted


def test_text_on_both_sides_of_a_border_is_encoded_as_one(tokenizer: Tokenizer) -> None:
    parts = [Segment("<bos>▁w", True), Segment("1", False), Segment(" w2<eos>", True)]

    assert encode(tokenizer, parts) == [2, *tokenizer.encode("▁w1 w2", bos=False), 1]


def test_merging_joins_neighbours_of_one_kind_and_keeps_the_text() -> None:
    parts = [Segment("a", True), Segment("", False), Segment("b", True), Segment("c", False)]

    assert merged(parts) == (Segment("ab", True), Segment("c", False))
    assert segments.text(parts) == "abc"
