"""Opens a bundle: the manifest is read and checked, a file's digest when the file is first used."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from runtime.embedding import EmbeddingRows
from runtime.errors import RunError
from runtime.manifest import Manifest
from runtime.ports import CachePorts, Port, check_ports
from runtime.positions import LayerKind, Rope
from runtime.rescoring import Head
from runtime.tokenizer import Tokenizer

MANIFEST = "manifest.json"
FORMAT, VERSION = "torq-decoder-bundle", 4

DTYPES = {"bf16": np.dtype(ml_dtypes.bfloat16), "f32": np.dtype(np.float32)}


@dataclass(frozen=True, kw_only=True)
class Program:
    """The step for one kind of machine: its file, function, target and the dtype of its ports."""

    path: Path
    function: str
    target: str
    dtype: np.dtype


@dataclass(frozen=True, eq=False, kw_only=True)
class Bundle:
    """What a bundle's manifest says.

    digest: sha256 of the manifest, which names the digest of every file.
    context: positions of the cache.
    ropes: the tables of RoPE; kinds: the kinds of layers by name.
    caches: the ports of K and V.
    inputs, outputs: ports of every program, in order.
    """

    folder: Path
    name: str
    digest: str
    context: int
    vocabulary: int
    ropes: tuple[Rope, ...]
    kinds: Mapping[str, LayerKind]
    caches: tuple[CachePorts, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    manifest: Manifest

    @classmethod
    def open(cls, folder: Path) -> Bundle:
        """Reads a bundle's manifest.

        Raises RunError where the folder is no bundle, is of another version, lacks a field, or
        has ports that this runtime does not know.
        """
        path = folder / MANIFEST
        try:
            raw = path.read_bytes()
        except OSError as error:
            raise RunError(
                f"{folder}: no bundle: {MANIFEST}: {error.strerror}; "
                "--bundle is the folder that a torq_decoder target makes"
            ) from None
        try:
            content = json.loads(raw)
        except ValueError as error:
            raise RunError(f"{path}: no JSON: {error}; build the bundle again") from None
        manifest = Manifest(path, content)
        found = manifest.get("format", str), manifest.get("version", int)
        if found != (FORMAT, VERSION):
            raise RunError(
                f"{path}: format {found[0]!r}, version {found[1]}; this runtime reads {FORMAT!r}, "
                f"version {VERSION}; build the bundle again"
            )
        kinds = [LayerKind(**fields) for fields in manifest.records("layer_kinds", LayerKind)]
        ropes = [Rope(**fields) for fields in manifest.records("ropes", Rope)]
        bundle = cls(
            folder=folder,
            name=manifest.get("name", str),
            digest=hashlib.sha256(raw).hexdigest(),
            context=manifest.get("context", int),
            vocabulary=manifest.get("model/vocabulary", int),
            ropes=tuple(ropes),
            kinds={kind.name: kind for kind in kinds},
            caches=_caches(manifest, {kind.name: kind for kind in kinds}),
            inputs=_ports(manifest, "inputs"),
            outputs=_ports(manifest, "outputs"),
            manifest=manifest,
        )
        check_ports(path, bundle.inputs, bundle.outputs, ropes, kinds, bundle.caches)
        return bundle

    @property
    def identity(self) -> str:
        """What two bundles have in common whose caches mean the same: checkpoint and packing."""
        fields = {name: self.manifest.get(name, dict) for name in ("checkpoint", "packing")}
        text = json.dumps([fields, self.context], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def file(self, name: str) -> Path:
        """A file of the bundle, its digest checked against the manifest's.

        Raises RunError where it is missing or has another digest.
        """
        path = self.folder / name
        wanted = self.manifest.get("digests", dict).get(name)
        if wanted is None or Path(name).name != name:
            raise RunError(f"{self.folder}: the manifest has no digest of {name!r}")
        try:
            with path.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise RunError(f"{path}: {error.strerror}; copy or build the bundle again") from None
        if found != wanted:
            raise RunError(
                f"{path}: sha256 {found} ({path.stat().st_size} bytes), where the manifest says "
                f"{wanted}: truncated or changed; copy or build the bundle again"
            )
        return path

    def program(self, name: str) -> Program:
        """The program `torq`, `cpu` or `stablehlo`, its file checked."""
        at = f"programs/{name}"
        dtype = self.manifest.get(f"{at}/dtype", str)
        if dtype not in DTYPES:
            raise RunError(f"{self.manifest.path}: {at}/dtype is {dtype!r}, not bf16 or f32")
        return Program(
            path=self.file(self.manifest.get(f"{at}/file", str)),
            function=self.manifest.get(f"{at}/function", str),
            target=self.manifest.get(f"{at}/target", str),
            dtype=DTYPES[dtype],
        )

    @cached_property
    def embedding(self) -> EmbeddingRows:
        """The embedding's rows, mapped into memory."""
        return self._rows("embedding", self.manifest.number("embedding/scale"))

    def _rows(self, at: str, scale: float = 1.0) -> EmbeddingRows:
        return EmbeddingRows.map(
            self.file(self.manifest.get(f"{at}/file", str)),
            block_type=self.manifest.get(f"{at}/type", str),
            rows=self.manifest.get(f"{at}/rows", int),
            columns=self.manifest.get(f"{at}/columns", int),
            scale=scale,
        )

    @cached_property
    def head(self) -> Head:
        """The head's exact rows, mapped into memory, and what the program's head leaves out."""
        path = self.manifest.path
        columns = self.manifest.get("head/rows/columns", int)
        fields = self.manifest.get("head", dict)
        mean, cap = fields.get("mean"), fields.get("cap")
        if mean is not None and (not isinstance(mean, list) or len(mean) != columns):
            raise RunError(f"{path}: head/mean: {columns} numbers, or null, were expected")
        if cap is not None and (mean is not None or not isinstance(cap, int | float)):
            raise RunError(f"{path}: head/cap is a number only where there is no mean, else null")
        candidates = self.manifest.get("head/candidates", int)
        if candidates < 0:
            raise RunError(f"{path}: head/candidates: {candidates}, 0 or more was expected")
        tied = fields["rows"]["file"] == self.manifest.get("embedding/file", str)
        return Head(
            # The embedding's file was checked when it was mapped.
            rows=replace(self.embedding, scale=np.float32(1)) if tied else self._rows("head/rows"),
            mean=None if mean is None else np.array(mean, np.float32),
            cap=cap,
            candidates=candidates,
        )

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The checkpoint's tokenizer."""
        model = self.file(self.manifest.get("tokenizer/file", str)).read_bytes()
        return Tokenizer.load(model, self.manifest.get("tokenizer", dict))

    @property
    def chat_template(self) -> str | None:
        """The checkpoint's own Jinja template, where it has one."""
        template: Any = self.manifest.get("tokenizer", dict).get("chat_template")
        return template if isinstance(template, str) else None


def _ports(manifest: Manifest, name: str) -> tuple[Port, ...]:
    return tuple(
        Port(fields["name"], tuple(fields["shape"])) for fields in manifest.records(name, Port)
    )


def _caches(manifest: Manifest, kinds: Mapping[str, LayerKind]) -> tuple[CachePorts, ...]:
    caches = []
    for index, fields in enumerate(manifest.records("caches", CachePorts)):
        if fields["kind"] not in kinds:
            raise RunError(
                f"{manifest.path}: caches/{index}: unknown kind of layer {fields['kind']}"
            )
        if fields["axis"] not in (1, 2) or not fields["rows"]:
            raise RunError(f"{manifest.path}: caches/{index}: expected axis 1 or 2, and rows")
        changed = {"kind": kinds[fields["kind"]], "rows": tuple(fields["rows"])}
        caches.append(CachePorts(**fields | changed))
    return tuple(caches)
