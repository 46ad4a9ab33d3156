"""A byte-level BPE vocabulary from GGUF metadata, as the JSON of the package `tokenizers`."""

from __future__ import annotations

from collections.abc import Callable

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from export.errors import ExportError
from export.gguf.reader import StringArray


def _smollm() -> pre_tokenizers.PreTokenizer:
    """Each digit alone, then GPT-2's words."""
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )


# How text is cut before merging, by GGUF's `tokenizer.ggml.pre`. Each is compared with llama.cpp.
_CUTS: dict[str, Callable[[], pre_tokenizers.PreTokenizer]] = {"smollm": _smollm}


def write(path: str, tokens: StringArray, merges: StringArray, pre: str) -> bytes:
    """The serialised tokenizer; control tokens are cut out by whoever runs it.

    path: what an error calls the file. pre: the name of how text is cut before merging.

    Raises ExportError for a cut that is not known, and for merges that are no pairs of tokens.
    """
    if pre not in _CUTS:
        raise ExportError(
            f"{path}: tokenizer.ggml.pre is {pre!r}, which is not supported; {', '.join(_CUTS)} is"
        )
    ids = {tokens[index]: index for index in range(len(tokens))}
    pairs = []
    for index in range(len(merges)):
        # A piece is never a space, but may begin with one in a foreign file.
        left, _, right = merges[index].partition(" ")
        if left + right not in ids or left not in ids or right not in ids:
            raise ExportError(
                f"{path}: tokenizer.ggml.merges[{index}] {merges[index]!r} is no pair of tokens"
            )
        pairs.append((left, right))
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=pairs))
    tokenizer.pre_tokenizer = _CUTS[pre]()
    tokenizer.decoder = decoders.ByteLevel()
    text: str = tokenizer.to_str()
    return text.encode()
