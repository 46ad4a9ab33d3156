"""The step on a board: an agent of ours runs there, one process for the conversation."""

from __future__ import annotations

import contextlib
import json
import shlex
import struct
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import numpy as np

from runtime.backends import agent
from runtime.backends.backend import Backend
from runtime.bundle import DTYPES, Bundle
from runtime.errors import RunError

_LOCAL = "local"
_BOOTSTRAP = (
    "import sys; exec(compile(sys.stdin.buffer.read(int(sys.argv[1])), 'agent.py', 'exec'))"
)
# Without a terminal ssh must not ask; a board that is gone is noticed after 15 s.
_SSH_OPTIONS = [
    *("-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"),
    *("-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"),
]
_PIECE = 4 << 20


def command(device: str, ssh: str, python: str, size: int) -> list[str]:
    """The command that starts an agent of `size` bytes, which come on its stdin.

    Raises RunError for a device that is neither `ssh://…` nor `local:`.
    """
    start = [python, "-u", "-c", _BOOTSTRAP, str(size)]
    url = urlsplit(device)
    try:
        port = url.port
    except ValueError:
        port = -1
    if url.scheme == _LOCAL and not url.netloc and not url.path:
        return start
    if url.scheme != "ssh" or not url.hostname or url.path.strip("/") or port == -1:
        raise RunError(
            f"--device={device}: expected ssh://[user@]host[:port], or local: on the board itself"
        )
    user = f"{url.username}@" if url.username else ""
    where = ["-p", str(port)] if port else []
    return [
        *shlex.split(ssh),
        *_SSH_OPTIONS,
        *where,
        "--",
        f"{user}{url.hostname}",
        shlex.join(start),
    ]


class Connection:
    """Requests and answers over the pipe of one agent."""

    def __init__(self, device: str, start: list[str], source: bytes) -> None:
        self.device = device
        try:
            # Of its own session, so that Ctrl-C here does not end it amid a step.
            self._process = subprocess.Popen(
                start,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise RunError(f"{device}: {start[0]} cannot be started: {error.strerror}") from None
        self._said: list[str] = []
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self._send(source)

    def ask(self, request: dict[str, Any], payload: bytes = b"") -> tuple[dict[str, Any], bytes]:
        """The answer to a request.

        Raises RunError where the board is lost, or says that something went wrong.
        """
        header = json.dumps(request).encode()
        self._send(struct.pack(">II", len(header), len(payload)) + header + payload)
        sizes = struct.unpack(">II", self._receive(8))
        answer: dict[str, Any] = json.loads(self._receive(sizes[0]))
        data = self._receive(sizes[1])
        if "error" in answer:
            raise RunError(f"{self.device}: {request['do']}: {answer['error']}")
        return answer, data

    @property
    def process(self) -> int:
        """The id of the process at the other end of the pipe."""
        return self._process.pid

    def close(self) -> None:
        """Ends the agent."""
        if self._process.stdin:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _send(self, data: bytes) -> None:
        stream: BinaryIO = self._process.stdin  # type: ignore[assignment]
        try:
            stream.write(data)
            stream.flush()
        except (BrokenPipeError, ValueError):
            raise self._lost() from None

    def _receive(self, size: int) -> bytes:
        stream: BinaryIO = self._process.stdout  # type: ignore[assignment]
        data = stream.read(size)
        if len(data) != size:
            raise self._lost()
        return data

    def _listen(self) -> None:
        for line in self._process.stderr or ():
            self._said = [*self._said[-20:], line.decode(errors="replace").rstrip()]

    def _lost(self) -> RunError:
        self.close()
        self._listener.join(timeout=5)
        words = "; ".join(line for line in self._said if line) or "it said nothing"
        return RunError(
            f"{self.device}: the board cannot be reached, or was lost (status "
            f"{self._process.returncode}): {words}. Try the ssh command by hand, check that "
            "python3 with numpy and torq.runtime is there, and start again; a session goes on"
        )


class DeviceBackend(Backend):
    """Sends each step's embedding, RoPE rows and masks; gets logits, hidden state and new rows.

    The caches stay on the board; the host's copy is written row by row, so that a session can be
    saved when the board is lost.
    """

    def __init__(self, bundle: Bundle, connection: Connection, engine: str) -> None:
        super().__init__(bundle, bundle.program("cpu" if engine == "cpu" else "torq"))
        self._connection = connection
        self._caches = bundle.caches
        held = {cache.argument for cache in self._caches}
        self._sent = [port.name for port in bundle.inputs if port.name not in held]
        self._held = [port.name for port in bundle.inputs if port.name in held]
        self._upload()
        self._load(engine)
        self.cache_changed()

    @classmethod
    def connect(
        cls, bundle: Bundle, device: str, ssh: str, engine: str, python: str
    ) -> DeviceBackend:
        """Starts the agent and loads the bundle's program, which is sent where it is not there.

        device: `ssh://[user@]host[:port]` or `local:`. ssh: the command. python: the board's.
        engine: `torq` (the NPU), `cpu` (the CPU program, on an x86-64 machine), or
            `simulator:FOLDER` (torq-run-module of a folder).

        Raises RunError where the board cannot be reached or the program not be loaded.
        """
        if engine not in ("torq", "cpu") and not engine.startswith("simulator:"):
            raise RunError(f"--board_engine={engine}: expected torq, cpu or simulator:FOLDER")
        source = Path(agent.__file__).read_bytes()
        connection = Connection(device, command(device, ssh, python, len(source)), source)
        try:
            answer, _ = connection.ask({"do": "hello"})
            if answer["protocol"] != agent.PROTOCOL:
                raise RunError(f"{device}: an agent of protocol {answer['protocol']}")
            return cls(bundle, connection, engine)
        except BaseException:
            connection.close()
            raise

    def _upload(self) -> None:
        """Sends the program, by its digest, where the board has no such file."""
        path = self.program.path
        digest = self.bundle.manifest.get("digests", dict)[path.name]
        self._digest = digest
        if self._connection.ask({"do": "find", "sha256": digest})[0]["found"]:
            return
        size, offset = path.stat().st_size, 0
        with path.open("rb") as file:
            while offset < size:
                piece = file.read(_PIECE)
                last = offset + len(piece) == size
                self._connection.ask(
                    {"do": "put", "sha256": digest, "offset": offset, "last": last}, piece
                )
                offset += len(piece)

    def _load(self, engine: str) -> None:
        results = {port.name: index for index, port in enumerate(self.bundle.outputs)}
        names = {dtype: name for name, dtype in DTYPES.items()}
        self._connection.ask(
            {
                "do": "load",
                "sha256": self._digest,
                "engine": engine,
                "function": self.program.function,
                "dtype": names[self.program.dtype],
                "inputs": [{"name": p.name, "shape": p.shape} for p in self.bundle.inputs],
                "outputs": [{"name": p.name, "shape": p.shape} for p in self.bundle.outputs],
                "caches": [
                    {
                        "argument": cache.argument,
                        "results": [results[row] for row in cache.rows],
                        "axis": cache.axis,
                    }
                    for cache in self._caches
                ],
            }
        )

    def _run(self, values: Mapping[str, np.ndarray], position: int) -> Mapping[str, np.ndarray]:
        slots = {cache.argument: cache.kind.slot(position) for cache in self._caches}
        payload = b"".join(values[name].tobytes() for name in self._sent)
        _, data = self._connection.ask({"do": "step", "slots": slots}, payload)
        dtype = self.program.dtype
        flat = np.frombuffer(data, dtype)
        counts = [int(np.prod(port.shape)) for port in self.bundle.outputs]
        if len(flat) != sum(counts):
            raise RunError(f"{self._connection.device}: a step gave {len(flat)} values")
        parts = np.split(flat, np.cumsum(counts)[:-1])
        return {
            port.name: part.reshape(port.shape)
            for port, part in zip(self.bundle.outputs, parts, strict=True)
        }

    def cache_changed(self) -> None:
        payload = b"".join(self.cache.values[name].tobytes() for name in self._held)
        self._connection.ask({"do": "fill"}, payload)

    @property
    def process(self) -> int:
        """The id of the process that talks to the agent: ssh, or the agent itself on a board."""
        return self._connection.process

    def close(self) -> None:
        self._connection.close()
