"""Attributes by which a later stage finds what an earlier one put into a module."""

# On an argument or result of `main`: its port's name.
PORT = "torq.port"

# On a private function: an island, elementwise operations that stay float32.
FLOAT32 = "torq.float32"

# On a private function: a fused block-quantised matmul; a dictionary of block_size and parts.
FUSED = "torq.block_quant_matmul"
