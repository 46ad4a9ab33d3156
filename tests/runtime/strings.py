"""Strings that tokenizers stumble over, by seed: code, scripts, emoji, spaces, control tokens."""

from __future__ import annotations

import random
from pathlib import Path

_RANGES = [
    (0x20, 0x7F),
    (0xA0, 0x250),
    (0x370, 0x530),
    (0x590, 0x700),
    (0x900, 0xA00),
    (0xE00, 0xE80),
    (0x2000, 0x2070),
    (0x3040, 0x3100),
    (0x4E00, 0x5000),
    (0xAC00, 0xAE00),
    (0x1F300, 0x1F650),
]
_SCRIPTS = [chr(code) for start, end in _RANGES for code in range(start, end)]
_SCRAPS = [" ", "  ", "\n", "\t", "\r", "a", "▁", "\0x", "<0x0A>", "<b>", "</b>", "\u3000"]
_SCRAPS += ["<bos>", "<eos>", "<start_of_turn>", "<unused3>", "[multimodal]", "<unk>", "</s>"]
_SCRAPS += ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "'s", "'LL", "12", "\u0663", "²", "Ⅷ"]
_JOINED = ["👩", "\u200d", "👧", "🏽", "🇩", "🇪", "\ufe0f", "é", "e\u0301", "ﬁ", "Å", "\u00a0"]


def strings(count: int, seed: int = 0) -> list[str]:
    """So many strings, a fifth of each kind; the first is empty."""
    chance = random.Random(seed)
    code = Path(__file__).read_text("utf-8")
    words = code.split()

    def joined(pieces: list[str], most: int) -> str:
        return "".join(chance.choice(pieces) for _ in range(chance.randint(0, most)))

    def spaced() -> str:
        gap = " " * chance.randint(1, 4)
        text = gap.join(chance.choice(words) for _ in range(chance.randint(0, 12)))
        return " " * chance.randint(0, 5) + text + "\n" * chance.randint(0, 4)

    def cut() -> str:
        start = chance.randrange(len(code))
        return code[start : start + chance.randint(1, 200)]

    made = [""]
    while len(made) < count:
        kinds = (joined(_SCRIPTS, 30), spaced(), joined(_SCRAPS, 15), joined(_JOINED, 12), cut())
        made += kinds
    return made[:count]
