"""What 4 bits would cost each projection of a checkpoint: a mixed export is chosen by this table.

sensitivity --gguf=FILE --importance=FILE.npz --text=FILE … --output=OUT.json

One projection at a time becomes Q4_GPTQ, the others stay as the file has them; the KL divergence
of the next token is measured against the file's own values, in float32, with the file's head, and
divided by the bytes that the NPU would read less.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags, logging

from export import cli
from export.gguf import gptq, reader
from export.gguf.forms import GPTQ
from export.models import sequence
from export.models.config import DecoderConfig
from export.models.decoder import Weights
from export.models.read import read_config
from export.trace.importance import read_importance
from export.trace.packing import HEAD, Packing, Slot, input_name, matrix_slots, packed_bytes
from export.trace.weights import dense_weights
from tools.report import metrics
from tools.report.stages import body, exact_head
from tools.texts import embed, read_texts, tokenizer_of

_GGUF = flags.DEFINE_string("gguf", None, "The checkpoint.", required=True)
_IMPORTANCE = flags.DEFINE_string("importance", None, "Of every projection's input.", required=True)
_TEXT = flags.DEFINE_multi_string("text", [], "A file of text.")
_OUTPUT = flags.DEFINE_string("output", None, "Where the JSON goes.", required=True)
_POSITIONS = flags.DEFINE_integer("positions", 64, "Where a text is cut.")

Json = dict[str, Any]

# Of so many positions the next token is measured.
_STRIDE = 4


class _Probe:
    """Measures a model's next tokens against those of the file."""

    def __init__(
        self, config: DecoderConfig, weights: Weights, texts: Sequence[np.ndarray]
    ) -> None:
        self._config, self._texts = config, texts
        self._head = exact_head(np.asarray(weights.matrices[HEAD]), config.logit_cap)
        self.weights = jax.tree.map(jnp.asarray, body(weights))
        self._reference = self._logs(self.weights)

    def _logs(self, weights: Weights) -> np.ndarray:
        hidden = [
            np.asarray(sequence.run(self._config, weights, text).hidden)[::_STRIDE]
            for text in self._texts
        ]
        return metrics.log_softmax(self._head(np.concatenate(hidden)))

    def kl(self, name: str, matrix: np.ndarray) -> float:
        """Mean KL divergence with one matrix [k, n] in the place of the file's."""
        matrices = {**self.weights.matrices, name: jnp.asarray(matrix)}
        found = self._logs(Weights(matrices, self.weights.vectors))
        return float(metrics.kl_divergence(self._reference, found).mean())


def _bytes(slot: Slot, gguf: reader.GgufFile, packing: Packing) -> int:
    return packed_bytes(slot.shape, packing.packed_type(slot, slot.take(gguf)))


def table(
    gguf: reader.GgufFile, config: DecoderConfig, moments: dict[str, np.ndarray], probe: _Probe
) -> list[Json]:
    """What 4 bits cost each projection, in the order of the layers."""
    four = Packing(projections=(("*", GPTQ),))
    rows = []
    for slot in matrix_slots(config):
        if slot.name == HEAD:
            continue
        _, layer, projection, _ = slot.name.split(".")
        values = np.ascontiguousarray(np.asarray(probe.weights.matrices[slot.name]).T)
        found = gptq.quantise(values, moments[input_name(slot.name)], slot.name)
        kl = probe.kl(slot.name, found.dequantise().T)
        saved = _bytes(slot, gguf, Packing()) - _bytes(slot, gguf, four)
        rows.append(
            {
                "projection": projection,
                "layer": int(layer),
                "block_type": GPTQ,
                "bytes_saved": saved,
                "kl": kl,
                "kl_per_megabyte": kl / (saved / 1e6) if saved > 0 else None,
            }
        )
        logging.info("%s: KL %.5f, %d bytes", slot.name, kl, saved)
    return rows


def main() -> None:
    """Measures and writes."""
    gguf = reader.read(Path(_GGUF.value))
    config = read_config(gguf)
    texts = read_texts(tokenizer_of(gguf), [Path(p) for p in _TEXT.value], _POSITIONS.value)
    probe = _Probe(config, dense_weights(gguf, config), embed(gguf, config, texts))
    moments = read_importance(Path(_IMPORTANCE.value))
    cli.write_json(Path(_OUTPUT.value), {"projections": table(gguf, config, moments, probe)})


if __name__ == "__main__":
    cli.run("sensitivity", main)
