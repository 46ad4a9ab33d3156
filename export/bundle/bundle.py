"""Writes a bundle: a folder with the step's programs, embedding rows, tokenizer and a manifest.

bundle --name=NAME --gguf=FILE --checkpoint_info=JSON --description=JSON --torq_program=FILE
       --cpu_program=FILE --stablehlo=FILE --counts=STAGE=JSON … --torq_version=V --bundle=FOLDER
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

from absl import flags

from export import cli
from export.bundle import manifest
from export.bundle.tokenizer import vocabulary
from export.gguf import reader
from export.trace.packing import EMBEDDING

_NAME = flags.DEFINE_string("name", None, "The bundle's name.", required=True)
_GGUF = flags.DEFINE_string("gguf", None, "The checkpoint.", required=True)
_INFO = flags.DEFINE_string(
    "checkpoint_info", None, "JSON: the checkpoint's name and licence.", required=True
)
_DESCRIPTION = flags.DEFINE_string("description", None, "JSON of the traced step.", required=True)
_TORQ = flags.DEFINE_string("torq_program", None, "The step for the NPU.", required=True)
_CPU = flags.DEFINE_string("cpu_program", None, "The step for a CPU.", required=True)
_STABLEHLO = flags.DEFINE_string("stablehlo", None, "The fused step.", required=True)
_COUNTS = flags.DEFINE_multi_string("counts", [], "STAGE=JSON: what a stage counted.")
_TORQ_VERSION = flags.DEFINE_string("torq_version", None, "The Torq release.", required=True)
_BUNDLE = flags.DEFINE_string("bundle", None, "The folder to write.", required=True)


def write_rows(gguf: reader.GgufFile, name: str, path: Path) -> dict[str, Any]:
    """Writes a matrix's rows as the file has them; returns how to read them."""
    tensor = gguf.tensor(name)
    tensor.data.tofile(path)
    rows, columns = tensor.shape
    return {"file": path.name, "type": tensor.type.name, "rows": rows, "columns": columns}


def digest(path: Path) -> str:
    """The sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> None:
    """Writes the folder; the manifest, by which a bundle is known, comes last."""
    folder = Path(_BUNDLE.value)
    folder.mkdir(parents=True, exist_ok=True)
    gguf = reader.read(Path(_GGUF.value))
    description = cli.read_json(Path(_DESCRIPTION.value))
    embedding = write_rows(gguf, EMBEDDING, folder / "embedding.bin")
    head = description["head"]["tensor"]
    # A head that is the embedding has its rows already.
    head_rows = embedding if head == EMBEDDING else write_rows(gguf, head, folder / "head.bin")
    words = vocabulary(gguf)
    tokenizer = folder / words.file
    tokenizer.write_bytes(words.write())
    for program, source in (("torq", _TORQ), ("cpu", _CPU), ("stablehlo", _STABLEHLO)):
        shutil.copyfile(source.value, folder / manifest.PROGRAMS[program])
    counts = (item.split("=", 1) for item in _COUNTS.value)
    stages = {stage: cli.read_json(Path(path)) for stage, path in counts}
    content = manifest.build(
        name=_NAME.value,
        description=description,
        checkpoint=cli.read_json(Path(_INFO.value)) | {"sha256": digest(gguf.path)},
        embedding=embedding,
        head_rows=head_rows,
        tokenizer={"file": tokenizer.name, **words.description},
        stages=stages,
        torq_version=_TORQ_VERSION.value,
        digests={path.name: digest(path) for path in sorted(folder.iterdir())},
    )
    cli.write_json(folder / manifest.FILE, content)


if __name__ == "__main__":
    cli.run("bundle", main)
