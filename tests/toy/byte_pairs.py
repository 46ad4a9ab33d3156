"""A toy's byte-level BPE vocabulary, whose tokens reach over every place where text may be cut.

It is trained on text that is not cut at all, so each pair of neighbours that the training text has
becomes a token: a tokenizer that cuts at another place than it should gives other tokens.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass

from gguf.constants import TokenType
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

# What the cuts tell apart: letters of some scripts, marks, digits, contractions, spaces, the rest.
CLASSES = (
    *("a", "Z", "ß", "ж", "日", "\u0627", "é", "e\u0301", "\u0301", "ि"),
    *("1", "7", "²", "Ⅷ", "٣"),
    *("'s", "'S", "'ll", "'Ll", "'re", "'VE", "\u2019s", "'\u017f", "\u02bct"),
    *(" ", "  ", "\t", "\n", "\r\n", "\u00a0", "\u2028", "\u0085", "\u3000"),
    *("!", "?!", "$", "~", "`", "-", "👩", "\u200d", "\ufe0f", "\0", "\ufeff"),
)
# Words that no merges lead to, as Llama 3's vocabulary has some.
WHOLE_WORDS = ("quiz", "Ġquiz", "Quizzical")


@dataclass(frozen=True)
class BytePairs:
    """tokens, types (gguf's TokenType) and merges, as the keys of `tokenizer.ggml` have them."""

    tokens: tuple[str, ...]
    types: tuple[int, ...]
    merges: tuple[str, ...]


def vocabulary(size: int, control: Sequence[str] = ()) -> BytePairs:
    """A vocabulary of `size` tokens for any `tokenizer.ggml.pre`, the same every time.

    size: at least 256 (the bytes) + 3 (whole words) + the control tokens, which come last.
    """
    chance = random.Random(0)
    texts = ["".join(chance.choices(CLASSES, k=60)) for _ in range(600)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(
        vocab_size=size - len(WHOLE_WORDS) - len(control),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    trained = sorted(model["vocab"], key=model["vocab"].__getitem__)
    plain = (*trained, *WHOLE_WORDS)
    return BytePairs(
        tokens=(*plain, *control),
        types=(TokenType.NORMAL,) * len(plain) + (TokenType.CONTROL,) * len(control),
        merges=tuple(" ".join(pair) for pair in model["merges"]),
    )
