"""Writes a toy checkpoint of the build: make_toy NAME OUT.gguf INFO.json"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.toy.toy import FUNCTION_TOKENS, Toy

TYPES = {"attn_q": "Q5_0", "attn_v": "Q4_1", "ffn_up": "Q4_0", "ffn_down": "F16"}

TOYS = {
    "toy": Toy(head_dim=16, default_type="Q8_0", types=TYPES, control=FUNCTION_TOKENS),
    # A window that a prompt of the tests does not leave at once.
    "toy_chat": Toy(
        head_dim=16, window=64, default_type="Q8_0", types=TYPES, control=FUNCTION_TOKENS
    ),
    "toy_gemma2": Toy(architecture="gemma2", rope_base=10_000.0, default_type="Q8_0", types=TYPES),
    "toy_llama": Toy(
        architecture="llama",
        head_dim=16,
        rope_base=500_000.0,
        rope_factors=(1.0, 1.0, 1.5, 3.7, 8.0, 8.0, 32.0, 32.0),
        default_type="Q4_1",
        types={"token_embd": "Q8_0"},
        vocabulary=384,
        control=("<|start_header_id|>", "<|end_header_id|>"),
        chat_template="{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}"
        "<|end_header_id|>\n\n{{ m.content }}<|eot_id|>{% endfor %}"
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
    "toy_qwen2": Toy(
        architecture="qwen2", head_dim=16, own_head=True, default_type="Q8_0", types=TYPES
    ),
    "toy_qwen3": Toy(architecture="qwen3", default_type="Q8_0", types=TYPES),
}


def main(name: str, out: str, info: str) -> None:
    TOYS[name].write(Path(out))
    Path(info).write_text(json.dumps({"name": name, "licence": "Apache-2.0"}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
