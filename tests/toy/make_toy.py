"""Writes the toy checkpoint of the build: make_toy WINDOW OUT.gguf INFO.json"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.toy.gemma3 import FUNCTION_TOKENS, Toy

TYPES = {"attn_q": "Q5_0", "attn_v": "Q4_1", "ffn_up": "Q4_0", "ffn_down": "F16"}


def main(window: str, out: str, info: str) -> None:
    toy = Toy(
        default_type="Q8_0",
        types=TYPES,
        head_dim=16,
        heads=4,
        window=int(window),
        control=FUNCTION_TOKENS,
    )
    toy.write(Path(out))
    Path(info).write_text(json.dumps({"name": "toy", "licence": "Apache-2.0"}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
