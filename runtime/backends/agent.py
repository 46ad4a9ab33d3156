"""Runs a bundle's program on a board, for a host that talks to it over a pipe.

The host sends this file to the board's Python, so it needs nothing of this workspace: numpy and
ml_dtypes, and torq.runtime for the NPU. One process serves one conversation: the cache stays here.

A message, both ways, is two big-endian uint32 (sizes), JSON of the first size, bytes of the second.
What a request may be stands at the methods of Agent; an answer with "error" says what went wrong.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import ml_dtypes
import numpy as np

PROTOCOL = 2
_DTYPES = {"bf16": np.dtype(ml_dtypes.bfloat16), "f32": np.dtype(np.float32)}
# Engines that are devices of IREE's.
_DEVICES = {"torq": "torq", "cpu": "local-task"}
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "torq-decoder"


class Engine(Protocol):
    """What runs the program and holds the caches."""

    def fill(self, caches: dict[str, np.ndarray]) -> None:
        """Takes the whole of every cache by port."""

    def step(self, values: dict[str, np.ndarray], slots: dict[str, int]) -> list[np.ndarray]:
        """Runs one step with every other port's value; writes the new rows to their slots."""


class RunnerEngine:
    """torq.runtime: caches are buffers of the device, and only rows go in or out.

    device: an IREE device, "torq" for the NPU.
    """

    def __init__(self, program: Path, description: dict[str, Any], device: str) -> None:
        from torq.runtime import VMFBInferenceRunner

        self._runner = VMFBInferenceRunner(
            program, function=description["function"], device_uri=device, device_outputs=True
        )
        self._description = description
        self._buffers: dict[str, Any] = {}
        dtype = _DTYPES[description["dtype"]]
        # DeviceArray.to_host never frees what it maps (IREE 3.11), so results are copied to arrays
        # that are mapped once.
        self._results = [
            self._runner.allocate_device_array(np.zeros(port["shape"], dtype))
            for port in description["outputs"]
        ]

    def fill(self, caches: dict[str, np.ndarray]) -> None:
        self._buffers = {
            name: self._runner.allocate_device_array(value) for name, value in caches.items()
        }

    def step(self, values: dict[str, np.ndarray], slots: dict[str, int]) -> list[np.ndarray]:
        inputs = [
            self._buffers[port["name"]]
            if port["name"] in self._buffers
            else self._runner.allocate_device_array(values[port["name"]])
            for port in self._description["inputs"]
        ]
        for result, target in zip(self._runner.infer(inputs), self._results, strict=True):
            self._copy(result, target)
        results = [target.to_host() for target in self._results]
        for cache in self._description["caches"]:
            # The host's view of the device's memory: a row is written where it lies.
            _write(cache, self._buffers[cache["argument"]].to_host(), slots, results)
        return results

    def _copy(self, source: Any, target: Any) -> None:
        from iree import runtime as iree_runtime

        device = self._runner.device
        semaphore = device.create_semaphore(0)
        done = iree_runtime.HalFence.create_at(semaphore, 1)
        device.queue_copy(
            source._buffer_view.get_buffer(),
            target._buffer_view.get_buffer(),
            wait_semaphores=iree_runtime.HalFence.create_at(semaphore, 0),
            signal_semaphores=done,
        )
        done.wait()


class SimulatorEngine:
    """torq-run-module, started anew each step: for tests without a board."""

    def __init__(self, program: Path, description: dict[str, Any], tools: Path) -> None:
        self._program, self._description, self._tools = program, description, tools
        self._caches: dict[str, np.ndarray] = {}

    def fill(self, caches: dict[str, np.ndarray]) -> None:
        self._caches = {name: value.copy() for name, value in caches.items()}

    def step(self, values: dict[str, np.ndarray], slots: dict[str, int]) -> list[np.ndarray]:
        given = {**self._caches, **values}
        dtype = self._description["dtype"]
        with tempfile.TemporaryDirectory() as scratch:
            command = [
                str(self._tools / "torq-run-module"),
                f"--module={self._program}",
                "--device=torq",
                f"--function={self._description['function']}",
            ]
            for index, port in enumerate(self._description["inputs"]):
                file = Path(scratch) / f"in{index}"
                file.write_bytes(given[port["name"]].tobytes())
                command.append(f"--input={'x'.join(map(str, port['shape']))}x{dtype}=@{file}")
            files = [Path(scratch) / f"out{i}" for i in range(len(self._description["outputs"]))]
            command += [f"--output=@{file}" for file in files]
            done = subprocess.run(command, capture_output=True, text=True, errors="replace")
            if done.returncode:
                raise RuntimeError(f"torq-run-module: {done.stderr[-2000:]}")
            results = [
                np.frombuffer(file.read_bytes(), _DTYPES[dtype]).reshape(port["shape"])
                for file, port in zip(files, self._description["outputs"], strict=True)
            ]
        for cache in self._description["caches"]:
            _write(cache, self._caches[cache["argument"]], slots, results)
        return results


def _write(
    cache: dict[str, Any], value: np.ndarray, slots: dict[str, int], results: list[np.ndarray]
) -> None:
    """Writes the new row of each layer whose heads lie in a cache to the cache's slot."""
    slot = slots[cache["argument"]]
    at = tuple(slice(slot, slot + 1) if i == cache["axis"] else slice(None) for i in range(3))
    layers = np.split(value, len(cache["results"]))
    for layer, result in zip(layers, cache["results"], strict=True):
        layer[at] = results[result]


class Agent:
    """Answers requests until the pipe ends."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._description: dict[str, Any] = {}
        self._partial: Path | None = None

    def hello(self, _request: dict[str, Any], _payload: bytes) -> tuple[dict[str, Any], bytes]:
        """Says who is there."""
        machine = f"{platform.node()} ({platform.machine()}, Python {platform.python_version()})"
        return {"protocol": PROTOCOL, "machine": machine}, b""

    def find(self, request: dict[str, Any], _payload: bytes) -> tuple[dict[str, Any], bytes]:
        """sha256: whether the board has the file."""
        path = _CACHE / request["sha256"]
        found = path.is_file() and _digest(path) == request["sha256"]
        return {"found": found}, b""

    def put(self, request: dict[str, Any], payload: bytes) -> tuple[dict[str, Any], bytes]:
        """sha256, offset, last: the next piece of a file, which appears when it is whole."""
        _CACHE.mkdir(parents=True, exist_ok=True)
        if request["offset"] == 0:
            descriptor, name = tempfile.mkstemp(dir=_CACHE, prefix="partial-")
            os.close(descriptor)
            self._partial = Path(name)
        if self._partial is None:
            raise RuntimeError("a piece of a file that was not begun")
        try:
            with self._partial.open("ab") as file:
                file.write(payload)
            if request["last"]:
                if _digest(self._partial) != request["sha256"]:
                    raise RuntimeError("the file arrived with another digest")
                self._partial.replace(_CACHE / request["sha256"])
                self._partial = None
        except BaseException:
            self.clean()
            raise
        return {}, b""

    def load(self, request: dict[str, Any], _payload: bytes) -> tuple[dict[str, Any], bytes]:
        """sha256, engine and the program's description: loads the program."""
        program = _CACHE / request["sha256"]
        kind, _, folder = request["engine"].partition(":")
        if kind == "simulator":
            self._engine = SimulatorEngine(program, request, Path(folder))
        else:
            self._engine = RunnerEngine(program, request, _DEVICES[kind])
        self._description = request
        return {}, b""

    def fill(self, _request: dict[str, Any], payload: bytes) -> tuple[dict[str, Any], bytes]:
        """The whole of every cache, one after the other."""
        caches = {cache["argument"] for cache in self._description["caches"]}
        ports = [port for port in self._description["inputs"] if port["name"] in caches]
        self._loaded().fill(self._arrays(ports, payload))
        return {}, b""

    def step(self, request: dict[str, Any], payload: bytes) -> tuple[dict[str, Any], bytes]:
        """slots by cache; every other port's value: the step's results, one after the other."""
        caches = {cache["argument"] for cache in self._description["caches"]}
        ports = [port for port in self._description["inputs"] if port["name"] not in caches]
        results = self._loaded().step(self._arrays(ports, payload), request["slots"])
        return {}, b"".join(np.ascontiguousarray(result).tobytes() for result in results)

    def clean(self) -> None:
        """Drops a file that did not arrive whole."""
        if self._partial:
            self._partial.unlink(missing_ok=True)
            self._partial = None

    def _loaded(self) -> Engine:
        if self._engine is None:
            raise RuntimeError("no program is loaded")
        return self._engine

    def _arrays(self, ports: list[dict[str, Any]], payload: bytes) -> dict[str, np.ndarray]:
        dtype = _DTYPES[self._description["dtype"]]
        arrays, offset = {}, 0
        for port in ports:
            count = int(np.prod(port["shape"]))
            values = np.frombuffer(payload, dtype, count, offset)
            arrays[port["name"]] = values.reshape(port["shape"])
            offset += count * dtype.itemsize
        return arrays


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def _exactly(source: BinaryIO, size: int) -> bytes:
    data = source.read(size)
    if len(data) != size:
        raise EOFError
    return data


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Answers the requests of `source` in `sink` until it ends."""
    agent = Agent()
    requests = {name: getattr(agent, name) for name in ("hello", "find", "put", "load", "fill")}
    requests["step"] = agent.step
    try:
        while True:
            sizes = struct.unpack(">II", _exactly(source, 8))
            request = json.loads(_exactly(source, sizes[0]))
            payload = _exactly(source, sizes[1])
            try:
                answer, data = requests[request["do"]](request, payload)
            except Exception as error:
                answer, data = {"error": f"{type(error).__name__}: {error}"}, b""
            header = json.dumps(answer).encode()
            sink.write(struct.pack(">II", len(header), len(data)) + header + data)
            sink.flush()
    except (EOFError, BrokenPipeError):
        pass
    finally:
        agent.clean()


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "wb")
    # What libraries print must not get between the answers.
    os.dup2(2, 1)
    serve(sys.stdin.buffer, answers)
