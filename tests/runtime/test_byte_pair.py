"""Byte-level BPE, cut in every way that is supported: llama.cpp's tokens, ends and beginnings."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from gguf.constants import TokenType

from export.bundle import byte_pair_model
from export.bundle.byte_pair_model import CUTS, Cut
from export.bundle.tokenizer import vocabulary
from export.errors import ExportError
from export.gguf import reader
from runtime.tokenizer import Tokenizer
from tests.llama.oracle import LlamaOracle
from tests.runtime.strings import strings
from tests.runtime.tokenization import load
from tests.toy import byte_pairs, llama_words
from tests.toy.byte_pairs import BytePairs

CONTROL = ("<|bos|>", "<|eos|>", "<|im_end|>", "<|tool|>")
SIZE = 2048
IDS: dict[str, int | bool] = {"bos_token_id": SIZE - 4, "eos_token_id": SIZE - 3}
# One name for each way to cut.
KINDS = list({cut: name for name, cut in CUTS.items()}.values())


@cache
def words(control: tuple[str, ...] = CONTROL) -> BytePairs:
    return byte_pairs.vocabulary(SIZE, control)


def toy(folder: Path, pre: str = "qwen2", **keys: int | bool) -> Path:
    return llama_words.write(folder / f"{pre}.gguf", words(), pre, IDS | keys)


@cache
def texts() -> list[str]:
    """Strings of every kind, and all that the cuts tell apart, side by side."""
    chance = random.Random(1)
    scraps = [*byte_pairs.CLASSES, "12", "123", "1234", "12345", "१२३", "word", "Quizzical", "quiz"]
    scraps += [" quiz", " \n", "\n ", "\n\n", "\r", "\x1c", "\u200b", "#", "|", "^", "+<=>", "क्"]
    scraps += ["\u2029", "\u202f", *CONTROL, " a a a", " 1", "  7"]
    joined = ["".join(chance.choices(scraps, k=chance.randint(1, 25))) for _ in range(500)]
    return strings(500) + joined


def differing(ours: Tokenizer, theirs: LlamaOracle) -> list[str]:
    return [
        text
        for text in texts()
        for special in (False, True)
        if ours.encode(text, special=special) != theirs.tokenize(text, special=special)
    ]


@pytest.mark.parametrize("pre", CUTS)
def test_tokens_equal_llama_cpp(pre: str, tmp_path: Path) -> None:
    path = toy(tmp_path, pre)

    assert differing(load(path), LlamaOracle(path, 32)) == []


@pytest.mark.parametrize("pre", KINDS)
def test_no_other_cut_gives_the_same_tokens(pre: str, tmp_path: Path) -> None:
    path = toy(tmp_path, pre)
    oracle = LlamaOracle(path, 32)

    for other in KINDS:
        found = differing(load(toy(tmp_path, other, add_bos_token=CUTS[pre].add_bos)), oracle)
        assert bool(found) == (other != pre), other


@pytest.mark.parametrize(
    "faulty",
    [
        replace(CUTS["llama-bpe"], whole_words=False),
        replace(CUTS["llama-bpe"], add_bos=False),
    ],
)
def test_what_llama_3_has_beside_its_pattern_is_seen(
    faulty: Cut, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = toy(tmp_path, "llama-bpe")
    monkeypatch.setattr(byte_pair_model, "CUTS", {"llama-bpe": faulty})

    assert differing(load(path), LlamaOracle(path, 32))


@pytest.mark.parametrize("said", [True, False])
@pytest.mark.parametrize("pre", ["llama-bpe", "qwen2"])
def test_a_beginning_is_put_in_front_where_the_file_says_so(
    pre: str, said: bool, tmp_path: Path
) -> None:
    path = toy(tmp_path, pre, add_bos_token=said)

    found = load(path).encode("a")

    assert found == LlamaOracle(path, 32).tokenize("a")
    assert (found[0] == IDS["bos_token_id"]) == said


@pytest.mark.parametrize("pre", KINDS)
def test_a_text_comes_back_whole_and_in_whole_characters(pre: str, tmp_path: Path) -> None:
    tokenizer = load(toy(tmp_path, pre))

    for text in texts():
        ids = tokenizer.encode(text, bos=False)
        pieces = list(tokenizer.stream(iter(ids)))
        assert tokenizer.decode(ids) == "".join(pieces) == text
        assert "\ufffd" not in "".join(pieces)


ENDS: dict[str, tuple[Sequence[str], dict[str, int | bool]]] = {
    "ChatML": (["<|endoftext|>", "<|im_start|>", "<|im_end|>"], {}),
    "Llama 3": (["<|end_of_text|>", "<|eom_id|>", "<|eot_id|>", "<|python_tag|>"], {}),
    "Gemma": (["<eos>", "<end_of_turn>", "</s>", "<unused3>"], {}),
    "DeepSeek": (["<\uff5cbegin▁of▁sentence\uff5c>", "<\uff5cend▁of▁sentence\uff5c>"], {}),
    "Qwen's code": (["<|fim_prefix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"], {}),
    "what metadata names": (
        ["<over>", "<more>", "<fill>"],
        {"eot_token_id": SIZE - 3, "eom_token_id": SIZE - 2, "fim_pad_token_id": SIZE - 1},
    ),
    "a gap that has a name": (["<PAD>", "<hole>"], {"fim_pad_token_id": SIZE - 1}),
    "a token of plain text": (["<|im_end|>"], {"eot_token_id": 70, "eos_token_id": 71}),
    "none known": (["<a>", "<b>"], {}),
}


@pytest.mark.parametrize("kind", [TokenType.CONTROL, TokenType.USER_DEFINED, TokenType.NORMAL])
@pytest.mark.parametrize("name", ENDS)
def test_ends_and_control_tokens_are_those_of_llama_cpp(
    name: str, kind: TokenType, tmp_path: Path
) -> None:
    control, keys = ENDS[name]
    made = words(tuple(control))
    types = made.types[: -len(control)] + (kind,) * len(control)
    ids = {"bos_token_id": SIZE - 1, "eos_token_id": SIZE - 1} | keys
    path = llama_words.write(tmp_path / "toy.gguf", replace(made, types=types), "qwen2", ids)
    tokenizer, oracle = load(path), LlamaOracle(path, 32)

    assert tokenizer.end == oracle.ends()
    for special in (False, True):
        text = "a".join(["", *control, ""])
        assert tokenizer.encode(text, special=special) == oracle.tokenize(text, special=special)


def test_a_pair_that_comes_twice_has_its_first_rank(tmp_path: Path) -> None:
    again = words().merges[::-1]
    twice = replace(words(), merges=(*words().merges, *again))
    path = llama_words.write(tmp_path / "toy.gguf", twice, "qwen2", IDS)

    assert differing(load(path), LlamaOracle(path, 32)) == []


WRONG: dict[str, tuple[BytePairs, str, dict[str, int | bool], str]] = {
    "an unknown cut": (
        words(),
        "tekken",
        IDS,
        r"tokenizer.ggml.pre is 'tekken', which is not supported; .*gpt-2, .*llama-bpe, .*qwen2",
    ),
    "merges of no tokens": (
        replace(words(), merges=("a b", "qq zz")),
        "qwen2",
        IDS,
        r"tokenizer.ggml.merges\[0\] 'a b' is no pair of tokens; .*convert the checkpoint again",
    ),
    "a text that is two tokens": (
        replace(words(), tokens=(*words().tokens[:-1], "a")),
        "qwen2",
        IDS,
        r"tokenizer.ggml.tokens has 'a' twice, as \d+ and 2047; .*convert the checkpoint again",
    ),
    "an end that is no token": (
        words(),
        "qwen2",
        IDS | {"eot_token_id": SIZE},
        "tokenizer.ggml.eot_token_id is 2048, the vocabulary has 2048 tokens; an id below 2048",
    ),
    "no beginning, where one is wanted": (
        words(),
        "llama-bpe",
        {"eos_token_id": 3},
        "tokenizer.ggml.bos_token_id is missing, .*add the key, or .*add_bos_token = false",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_vocabulary_that_is_none_is_named(name: str, tmp_path: Path) -> None:
    made, pre, keys, message = WRONG[name]
    path = llama_words.write(tmp_path / "toy.gguf", made, pre, keys)

    with pytest.raises(ExportError, match=f"toy.gguf: {message}"):
        vocabulary(reader.read(path))
