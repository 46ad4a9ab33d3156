"""Real checkpoints against llama.cpp on the same file as F32: greedy tokens and logits.

Case 12: Gemma's positions lie on both sides of 512, the window; global layers see past it.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from export.gguf import reader
from export.models.read import read_config
from export.trace.weights import dense_weights
from tests.llama.f32_gguf import write_f32_copy
from tests.llama.oracle import LlamaOracle
from tools.report.reference import ReferenceDecoder

CONTEXT = 1024
GEMMAS_WINDOW = 512
MIN_COSINE = 0.99999
GREEDY_TOKENS = 128

# The first chapter of a public-domain book: Alice's Adventures in Wonderland (1865).
TEXT = """\
Alice was beginning to get very tired of sitting by her sister on the bank, and of having nothing
to do: once or twice she had peeped into the book her sister was reading, but it had no pictures
or conversations in it, "and what is the use of a book," thought Alice "without pictures or
conversations?" So she was considering in her own mind (as well as she could, for the hot day made
her feel very sleepy and stupid), whether the pleasure of making a daisy-chain would be worth the
trouble of getting up and picking the daisies, when suddenly a White Rabbit with pink eyes ran
close by her. There was nothing so very remarkable in that; nor did Alice think it so very much
out of the way to hear the Rabbit say to itself, "Oh dear! Oh dear! I shall be late!" (when she
thought it over afterwards, it occurred to her that she ought to have wondered at this, but at the
time it all seemed quite natural); but when the Rabbit actually took a watch out of its waistcoat-
pocket, and looked at it, and then hurried on, Alice started to her feet, for it flashed across
her mind that she had never before seen a rabbit with either a waistcoat-pocket, or a watch to
take out of it, and burning with curiosity, she ran across the field after it, and fortunately was
just in time to see it pop down a large rabbit-hole under the hedge. In another moment down went
Alice after it, never once considering how in the world she was to get out again. The rabbit-hole
went straight on like a tunnel for some way, and then dipped suddenly down, so suddenly that Alice
had not a moment to think about stopping herself before she found herself falling down a very deep
well. Either the well was very deep, or she fell very slowly, for she had plenty of time as she
went down to look about her and to wonder what was going to happen next. First, she tried to look
down and make out what she was coming to, but it was too dark to see anything; then she looked at
the sides of the well, and noticed that they were filled with cupboards and book-shelves; here and
there she saw maps and pictures hung upon pegs."""


PROMPTS = {
    "gemma3_270m": TEXT,
    "smollm2_135m": "<|im_start|>user\nTell me a story of a rabbit.<|im_end|>\n"
    "<|im_start|>assistant\n",
}


def decoders(name: str, folder: Path) -> tuple[ReferenceDecoder, LlamaOracle]:
    source = Path(os.environ["TEST_SRCDIR"]) / name / "model.gguf"
    copy = write_f32_copy(source, folder / "model.gguf")
    gguf = reader.read(copy)
    config = read_config(gguf)
    weights = dense_weights(gguf, config)
    return ReferenceDecoder(gguf, config, weights, CONTEXT), LlamaOracle(copy, CONTEXT)


def step(ours: ReferenceDecoder, theirs: LlamaOracle, token: int) -> tuple[np.ndarray, np.ndarray]:
    return ours.step(token)["logits"].ravel(), theirs.logits([token])[0]


def cosine(x: np.ndarray, y: np.ndarray) -> float:
    return float(x.astype(np.float64) @ y / np.linalg.norm(x) / np.linalg.norm(y))


@pytest.mark.parametrize("name", PROMPTS)
def test_greedy_tokens_and_logits_equal_llama_cpp(name: str, tmp_path: Path) -> None:
    ours, theirs = decoders(name, tmp_path)
    prompt = theirs.tokenize(PROMPTS[name], special=True)
    worst = 1.0
    for token in prompt:
        x, y = step(ours, theirs, token)
        worst = min(worst, cosine(x, y))
    tokens: list[int] = []
    for _ in range(GREEDY_TOKENS):
        assert int(x.argmax()) == int(y.argmax()), f"after {len(tokens)} greedy tokens"
        tokens.append(int(x.argmax()))
        x, y = step(ours, theirs, tokens[-1])
        worst = min(worst, cosine(x, y))

    assert worst > MIN_COSINE
    assert len(set(tokens)) > 20
    if name == "gemma3_270m":
        assert 440 <= len(prompt) < GEMMAS_WINDOW - 16
        assert ours.position > GEMMAS_WINDOW + 32
