"""The accuracy report of a bundle: its stages compared on texts, as JSON and as a page; and gates.

report --gguf=FILE --bundle=FOLDER --tools=FOLDER --text=FILE … --step=NAME:POSITION …
       --gate=NAME=LIMIT … --report=OUT.json --page=OUT.html

Every stage reads every text as it stands. Float32 on the file's weights, float32 on the weights as
the program holds them, and bf16 on these run on this CPU (export/models/sequence.py); the compiled
program runs a few steps in the simulator, each on the cache that the bf16 stage left.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags, logging

from export import cli
from export.files import whole_file
from export.gguf import reader
from export.models.config import DecoderConfig
from export.models.decoder import Weights
from export.models.read import read_config
from export.trace.packing import HEAD, Packing, matrix_slots
from export.trace.weights import dense_weights, packed_weights
from runtime.bundle import Bundle
from runtime.tokenizer import Tokenizer
from third_party.torq.torq_tools import TorqTools
from tools.report import gates, heads, metrics, page, simulated, stages
from tools.report.module_weights import packed_matrices
from tools.report.pairs import Pair, Said, spread
from tools.report.stages import Stage
from tools.texts import Text, embed, read_texts

_GGUF = flags.DEFINE_string("gguf", None, "The checkpoint.", required=True)
_BUNDLE = flags.DEFINE_string("bundle", None, "The bundle.", required=True)
_TOOLS = flags.DEFINE_string("tools", None, "The folder of torq-run-module.", required=True)
_TEXT = flags.DEFINE_multi_string("text", [], "A file of text.")
_STEP = flags.DEFINE_multi_string("step", [], "NAME:POSITION of a text: a step to simulate.")
_GATE = flags.DEFINE_multi_string("gate", [], "NAME=LIMIT: what must be reached.")
_SENSITIVITY = flags.DEFINE_string("sensitivity", "", "JSON of what 4 bits cost each projection.")
_REPORT = flags.DEFINE_string("report", None, "Where the JSON goes.", required=True)
_PAGE = flags.DEFINE_string("page", None, "Where the page goes.", required=True)
_POSITIONS = flags.DEFINE_integer("positions", 1024, "Where a text is cut.")
_TIMEOUT = flags.DEFINE_float("timeout", 3600, "Seconds that the simulator may take for a step.")

Json = dict[str, Any]

_MEANINGS = {
    "file": "float32 arithmetic on the file's own weights",
    "q8_0": "float32 arithmetic on the file's projections requantised to Q8_0, the file's head",
    "packed": "float32 arithmetic on the projections as the program holds them, the file's head",
    "bf16": "the step in bf16 on the same weights, the file's head in float32",
    "device": "the program's own head, in bf16, on the hidden states of the bf16 stage",
    "rescored": "the same, the best tokens computed anew from the file's head on the host",
    "torq": "the compiled program in the simulator of torq-runtime; a board was not measured",
}
# Logits at once: 64 rows of 262,144 are 67 MB.
_CHUNK = 64
# Of every third position the heads that could have been are tried.
_HEAD_STRIDE = 3


@dataclass(frozen=True, eq=False)
class _Model:
    """What every part of the report needs."""

    config: DecoderConfig
    gguf: reader.GgufFile
    bundle: Bundle
    texts: tuple[Text, ...]
    embedded: tuple[np.ndarray, ...]


def main() -> None:
    """Measures, writes JSON and page, and ends with status 1 where a gate fails."""
    limits = {name: float(limit) for name, _, limit in (g.partition("=") for g in _GATE.value)}
    gates.check_names(limits)
    model = _open()
    places = [
        simulated.Place.parse(step, model.texts, model.bundle.context) for step in _STEP.value
    ]
    file = dense_weights(model.gguf, model.config)
    matrices = packed_matrices(model.bundle.program("stablehlo").path)
    bodies = _bodies(model, file, matrices)
    logits = _Logits(model, file, matrices)
    pairs = _compare(bodies, logits, model)
    states = np.concatenate([bodies["bf16"].hidden(t) for t in range(len(model.texts))])
    compared = _heads(model, logits, file, states[::_HEAD_STRIDE])
    steps, sound = _simulate(model, bodies["bf16"], logits, places)
    report = _report(model, pairs, bodies, compared, steps)
    values = _gated(pairs, report, steps, sound)
    report["gates"] = gates.gates(values, {name: limits[name] for name in limits if name in values})
    cli.write_json(Path(_REPORT.value), _without_nan(report))
    with whole_file(Path(_PAGE.value)) as partial:
        partial.write_text(page.render(report), "utf-8")
    gates.require(report["gates"])


def _open() -> _Model:
    gguf = reader.read(Path(_GGUF.value))
    config = read_config(gguf)
    bundle = Bundle.open(Path(_BUNDLE.value))
    positions = min(_POSITIONS.value, config.context_length)
    texts = read_texts(bundle.tokenizer, [Path(path) for path in _TEXT.value], positions)
    return _Model(config, gguf, bundle, tuple(texts), tuple(embed(gguf, config, texts)))


def _bodies(model: _Model, file: Weights, matrices: Any) -> dict[str, Stage]:
    """The stages of the body by name, in the order of the export."""
    single, narrow = np.dtype(np.float32), stages.BF16

    def run(name: str, weights: Weights, dtype: np.dtype) -> Stage:
        started = time.monotonic()
        stage = stages.run_stage(name, model.config, weights, model.embedded, dtype)
        stage.hidden(0)
        logging.info("%s: %.0f s", name, time.monotonic() - started)
        return stage

    found = {"file": run("file", file, single)}
    kinds = {slot.take(model.gguf).type.name for slot in matrix_slots(model.config)}
    if kinds - {"Q8_0"}:
        packed = packed_weights(model.gguf, model.config, Packing(requantise="Q8_0"))
        dense_q8 = stages.dequantised(packed.weights.matrices, single)  # type: ignore[arg-type]
        found["q8_0"] = run("q8_0", Weights(dense_q8, file.vectors), single)
    for name, dtype in (("packed", single), ("bf16", narrow)):
        held = Weights(stages.dequantised(matrices, dtype), file.vectors)
        found[name] = run(name, held, dtype)
    return found


class _Logits:
    """The heads of a report: the file's, the program's, and what the runtime makes of both."""

    def __init__(self, model: _Model, file: Weights, matrices: Any) -> None:
        cap = model.config.logit_cap
        head = {HEAD: matrices[HEAD]}
        self.exact = stages.exact_head(np.asarray(file.matrices[HEAD]), cap)
        self.device = stages.device_head(stages.dequantised(head, stages.BF16)[HEAD], cap)
        self._runtime = model.bundle.head

    def restored(self, hidden: np.ndarray) -> np.ndarray:
        """The device's logits with what the export took off."""
        return self._by_runtime(self.device(hidden), hidden, 0)

    def on_device(self, hidden: np.ndarray) -> dict[str, np.ndarray]:
        """The device's logits with what the export took off, and as the runtime uses them."""
        raw = self.device(hidden)
        counts = {"device": 0, "rescored": self._runtime.candidates}
        return {name: self._by_runtime(raw, hidden, count) for name, count in counts.items()}

    def _by_runtime(self, raw: np.ndarray, hidden: np.ndarray, candidates: int) -> np.ndarray:
        rows = zip(raw, hidden, strict=True)
        return np.stack([self._runtime.rescore(row, state, candidates) for row, state in rows])


def _compare(bodies: dict[str, Stage], logits: _Logits, model: _Model) -> list[Pair]:
    """Every pair of stages, over all positions."""
    named = dict.fromkeys(bodies, logits.exact)
    names = [("file", "packed"), ("packed", "bf16"), ("bf16", "device"), ("bf16", "rescored")]
    names.append(("file", "rescored"))
    if "q8_0" in bodies:
        names.append(("file", "q8_0"))
    pairs = [Pair(*both) for both in names]
    for index, text in enumerate(model.texts):
        following = [*text.tokens[1:], None]
        for start in range(0, len(text.tokens), _CHUNK):
            chunk = slice(start, start + _CHUNK)
            found = {n: head(bodies[n].hidden(index)[chunk]) for n, head in named.items()}
            hidden = bodies["bf16"].hidden(index)[chunk]
            found |= logits.on_device(hidden)
            said = {name: Said(values) for name, values in found.items()}
            for pair in pairs:
                pair.add(said[pair.reference], said[pair.found], following[chunk])
        logging.info("compared %s", text.name)
    return pairs


def _heads(model: _Model, logits: _Logits, file: Weights, states: np.ndarray) -> list[Json]:
    """The program's head and those of GGUF's quantisers, on the same hidden states."""
    records = {record["name"]: record for record in model.bundle.manifest.get("tensors", list)}
    used = records[model.config.head]["packed_type"]
    own = {used: (records[model.config.head]["bytes"], logits.restored)}
    others = heads.quantised_heads(np.asarray(file.matrices[HEAD]), model.config.logit_cap)
    # The program's own comes first, in the place of one of its type.
    return heads.compare_heads(own | others | own, logits.exact, states, used)


def _simulate(
    model: _Model, bf16: Stage, logits: _Logits, places: Sequence[simulated.Place]
) -> tuple[list[Json], bool]:
    """The simulated steps beside the bf16 stage, and whether they are sound."""
    if not places:
        return [], True
    tools = TorqTools(Path(_TOOLS.value))
    arguments = [
        simulated.port_values(
            model.bundle,
            bf16.results[place.text],
            model.embedded[place.text][place.position],
            place.position,
        )
        for place in places
    ]
    started = time.monotonic()
    results = simulated.simulate(model.bundle.folder, arguments, tools, _TIMEOUT.value)
    logging.info("simulated %d steps in %.0f s", len(places), time.monotonic() - started)
    out = []
    for place, found in zip(places, results, strict=True):
        hidden = bf16.hidden(place.text)[place.position]
        wanted = simulated.step_rows(model.bundle, bf16.results[place.text], place.position)
        wanted |= {"hidden": hidden, "logits": logits.device(hidden[None])}
        out.append(simulated.compared(model.texts[place.text].name, place, found, wanted))
    return out, simulated.sound(results)


def _report(
    model: _Model,
    pairs: Sequence[Pair],
    bodies: dict[str, Stage],
    compared: list[Json],
    steps: list[Json],
) -> Json:
    tokenizer: Tokenizer = model.bundle.tokenizer
    manifest = model.bundle.manifest
    head = model.bundle.head
    present = {name for pair in pairs for name in (pair.reference, pair.found)}
    present |= {"torq"} if steps else set()
    sensitivity = (
        cli.read_json(Path(_SENSITIVITY.value))["projections"] if _SENSITIVITY.value else []
    )
    return {
        "bundle": {
            "name": model.bundle.name,
            "checkpoint": manifest.get("checkpoint/name", str),
            "sha256": manifest.get("checkpoint/sha256", str),
            "context": model.bundle.context,
            "head": compared[0]["head"],
            "bytes_per_step": sum(t["bytes"] for t in manifest.get("tensors", list)),
            "torq": manifest.get("tools/torq", str),
        },
        "text": [
            {"name": text.name, "kind": text.name, "positions": len(text.tokens)}
            for text in model.texts
        ],
        "stages": [
            {"name": name, "meaning": meaning}
            for name, meaning in _MEANINGS.items()
            if name in present
        ],
        "pairs": [
            pair.report(model.texts, tokenizer) | _layers(model.config, bodies, pair)
            for pair in pairs
        ],
        "heads": compared,
        "rescoring": {
            "candidates": head.candidates,
            "multiply_adds": head.candidates * model.config.hidden_size,
            "bytes": head.candidates * head.row_bytes,
        },
        "projections": sensitivity,
        "simulated": steps,
    }


def _layers(config: DecoderConfig, bodies: dict[str, Stage], pair: Pair) -> Json:
    """K, V and hidden cosines of a pair, where the two have other ones."""
    first = bodies[pair.reference]
    second = bodies[pair.found if pair.found in bodies else "bf16"]
    if first is second:
        return {"layers": [], "hidden_cosine": None}

    def of(part: str, layer: int) -> np.ndarray:
        both = zip(first.results, second.results, strict=True)
        return np.concatenate(
            [metrics.cosines(getattr(a, part)[layer], getattr(b, part)[layer]) for a, b in both]
        )

    texts = range(len(first.results))
    hidden = [metrics.cosines(first.hidden(t), second.hidden(t)) for t in texts]
    layers = []
    for layer in range(config.layers):
        values = {part: of(part, layer) for part in ("k", "v")}
        said = {p: {"mean": float(v.mean()), "min": float(v.min())} for p, v in values.items()}
        layers.append({"layer": layer, "kind": config.kind(layer), **said})
    return {"layers": layers, "hidden_cosine": spread(np.concatenate(hidden))}


def _gated(pairs: Sequence[Pair], report: Json, steps: list[Json], sound: bool) -> dict[str, float]:
    """The values that gates are for."""
    by_name = {(pair.reference, pair.found): pair for pair in pairs}
    said = {(pair["reference"], pair["found"]): pair for pair in report["pairs"]}
    layers = said["packed", "bf16"]["layers"]
    values = {
        "head_rescored_top_1": float(by_name["bf16", "rescored"].same.mean()),
        "head_cosine": float(by_name["bf16", "device"].numbers("cosine").mean()),
        # numpy's min, unlike Python's, is NaN where one of the values is.
        "bf16_kv_cosine": float(np.min([layer[p]["mean"] for layer in layers for p in ("k", "v")])),
        "bf16_top_1": float(by_name["packed", "bf16"].same.mean()),
    }
    if steps:
        names = ("lowest_k_cosine", "lowest_v_cosine", "hidden_cosine", "logits_cosine")
        values["simulated_cosine"] = float(np.min([step[n] for step in steps for n in names]))
        values["simulated_sound"] = float(sound)
    return values


def _without_nan(value: Any) -> Any:
    """JSON has no NaN: what could not be computed is null."""
    if isinstance(value, dict):
        return {name: _without_nan(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


if __name__ == "__main__":
    cli.run("report", main)
