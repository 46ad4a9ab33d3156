"""A byte-level BPE vocabulary from GGUF metadata, as the JSON of the package `tokenizers`.

Text is cut into words before pairs are merged, and GGUF has but a name for how. The names and what
they mean are llama.cpp's (src/llama-vocab.cpp), and so are the words: its tables are of Unicode
15.1, `tokenizers` has those of 16, so only a character that 16 added may be cut another way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from export.errors import ExportError
from export.gguf.reader import StringArray


@dataclass(frozen=True)
class Cut:
    """How text is cut into words, and what else a name stands for.

    patterns: Oniguruma's; each splits what the one before it left into matches and the rest.
    whole_words: whether a word that is a token is that token, whatever merging makes of it.
    add_bos: whether a text gets a beginning where the file does not say.
    """

    patterns: tuple[str, ...]
    whole_words: bool = False
    add_bos: bool = False


_SPACES = r"\s+(?!\S)|\s+"
_GPT_2 = rf"'s|'t|'re|'ve|'m|'ll|'d| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|{_SPACES}"


def _newer(letters: str, digits: str) -> str:
    """GPT-4's words: newlines stay with what is before them, any character may open a word.

    letters: what a word is made of. digits: how many make a number.
    """
    # Case by case: to (?i:'s) the long s is an s, to llama.cpp it is not.
    contractions = "'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
    word = rf"[^\r\n\p{{L}}\p{{N}}]?[{letters}]+"
    other = rf" ?[^\s{letters}\p{{N}}]+[\r\n]*"
    return rf"{contractions}|{word}|{digits}|{other}|\s*[\r\n]+|{_SPACES}"


_LLAMA_3 = _newer(r"\p{L}", r"\p{N}{1,3}")
_WORDS = Cut((_GPT_2,))
_SINGLE_DIGITS = Cut((r"\p{N}", _GPT_2))
_LLAMA_3_WORDS = Cut((_LLAMA_3,), whole_words=True, add_bos=True)
_QWEN_2 = Cut((_newer(r"\p{L}", r"\p{N}"),))
# The last pattern takes digits of ASCII alone, so those of other scripts stay in one word.
_DEFAULT = Cut((r"[\p{P}$+<=>^~|]+", _GPT_2, r"\p{N}+", "[0-9][0-9][0-9]"))

CUTS: Mapping[str, Cut] = {
    "default": _DEFAULT,
    **dict.fromkeys(
        ("gpt-2", "exaone4", "jais", "mpt", "olmo", "phi-2", "trillion"),
        _WORDS,
    ),
    **dict.fromkeys(
        ("smollm", "codeshell", "command-r", "exaone", "minerva-7b", "refact", "starcoder"),
        _SINGLE_DIGITS,
    ),
    **dict.fromkeys(
        ("llama-bpe", "llama3", "llama-v3", "falcon-h1", "falcon3", "lfm2", "pixtral"),
        _LLAMA_3_WORDS,
    ),
    **dict.fromkeys(("dbrx", "smaug-bpe"), Cut((_LLAMA_3,))),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez", "stablelm2"), _QWEN_2),
    "qwen35": Cut((_newer(r"\p{L}\p{M}", r"\p{N}"),)),
}


def cut(path: str, pre: str) -> Cut:
    """What the name in `tokenizer.ggml.pre` stands for.

    path: what an error calls the file. Raises ExportError for a name that is not known.
    """
    if pre not in CUTS:
        raise ExportError(
            f"{path}: tokenizer.ggml.pre is {pre!r}, which is not supported; "
            f"{', '.join(sorted(CUTS))} are"
        )
    return CUTS[pre]


def pairs(path: str, ids: Mapping[str, int], merges: StringArray) -> list[tuple[str, str]]:
    """The merges as pairs of tokens, by rank.

    path: what an error calls the file. ids: the token of each text.

    Raises ExportError for merges that are no pairs of tokens.
    """
    ranked: dict[tuple[str, str], None] = {}
    for index in range(len(merges)):
        left, _, right = merges[index].partition(" ")
        if left + right not in ids or left not in ids or right not in ids:
            raise ExportError(
                f"{path}: tokenizer.ggml.merges[{index}] {merges[index]!r} is no pair of tokens; "
                "two tokens that together are a third were expected; convert the checkpoint again"
            )
        # A pair that comes twice has its first rank to llama.cpp, its last one to `tokenizers`.
        ranked.setdefault((left, right))
    return list(ranked)


def write(ids: Mapping[str, int], ranked: list[tuple[str, str]], words: Cut) -> bytes:
    """The serialised tokenizer; control tokens are cut out by whoever runs it.

    ids: the token of each text. ranked: the pairs that are merged.
    """
    tokenizer = Tokenizer(
        models.BPE(vocab=dict(ids), merges=ranked, ignore_merges=words.whole_words)
    )
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in words.patterns]
    alphabet = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splits, alphabet])
    tokenizer.decoder = decoders.ByteLevel()
    text: str = tokenizer.to_str()
    return text.encode()
