"""How often two backends want the same next token: both are fed the same text, token by token.

    bazel run //tools/agreement -- --bundle=bazel-bin/export/gemma3_270m_torq \
        --backend=sim --against=jax --max_tokens=8 "The capital of France is"

The text is the prompt and then what the reference (--against) goes on with, greedily. Prints JSON:
positions, top-1 agreement, and the lowest and mean cosine of the logits.
"""

from __future__ import annotations

import json
import sys

import numpy as np
from absl import flags

from runtime import options
from runtime.errors import RunError

_AGAINST = flags.DEFINE_enum("against", "jax", ["iree", "jax"], "The backend to compare with.")
_MAX_TOKENS = flags.DEFINE_integer("max_tokens", 64, "Tokens after the prompt.", lower_bound=0)
flags.adopt_module_key_flags(options)


def main(arguments: list[str]) -> int:
    """Feeds both and compares."""
    if not arguments:
        raise RunError("no text; write it after the flags")
    bundle = options.open_bundle()
    prompt = bundle.tokenizer.encode(" ".join(arguments))
    same, cosines = [], []
    with (
        options.open_decoder(bundle) as tried,
        options.open_decoder(bundle, _AGAINST.value) as reference,
    ):
        tokens = list(prompt)
        for position in range(min(len(prompt) + _MAX_TOKENS.value, bundle.context)):
            wanted = reference.feed(tokens[position]).logits.astype(np.float64)
            found = tried.feed(tokens[position]).logits.astype(np.float64)
            same.append(bool(wanted.argmax() == found.argmax()))
            cosines.append(wanted @ found / np.linalg.norm(wanted) / np.linalg.norm(found))
            print(f"position {position}: cosine {cosines[-1]:.6f}", file=sys.stderr)
            if position + 1 == len(tokens):
                tokens.append(int(wanted.argmax()))
    result = {
        "positions": len(same),
        "top_1": float(np.mean(same)),
        "lowest_cosine": float(np.min(cosines)),
        "mean_cosine": float(np.mean(cosines)),
    }
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    options.run("agreement", main)
