"""Runs the programs of a Torq release from Python: the compiler and the simulator."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np

_ELEMENTS = {
    np.dtype(ml_dtypes.bfloat16): "bf16",
    np.dtype(np.float32): "f32",
    np.dtype(np.int32): "i32",
    np.dtype(np.int8): "i8",
}

# torq-compile warns twice for every tile size that it tries; that is no news to anyone.
_NOISE = re.compile("can't compute producers tile size|see current operation|called from")
_ERROR = re.compile(r"\berror:|Assertion|LLVM ERROR|terminate called|[Ss]egmentation|not found")
_MAX_LINE = 500

# Where the heap lies depends on these as well (measured).
_STACK = "--stack=8388608"
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "TMPDIR": "/tmp", "LC_ALL": "C.UTF-8"}

# What the simulator says when a dispatch takes longer than TorqSimulator::waitTimeout, which is
# 300,000,000 us in 2.3.0, of a clock that tools_repository.bzl slows where it can.
_GAVE_UP = "torq failed to wait"
_ON_GIVING_UP = (
    "the simulator gives a step 300 s where its clock is not slowed (Debian has the library for "
    "that): run it again when the machine is less busy"
)

# Above the programs and their launchers, below the libraries.
_COPIED_BYTES = 1 << 20


class ToolError(RuntimeError):
    """A program of the release failed; the message has its own words and its command line."""


@dataclass(frozen=True)
class Output:
    """Shape and dtype of a result."""

    shape: tuple[int, ...]
    dtype: np.dtype


@dataclass(frozen=True)
class TorqTools:
    """The programs in one folder (the toolchain's `bin`)."""

    folder: Path

    @classmethod
    def in_runfiles(cls) -> TorqTools:
        """The programs that //third_party/torq:programs brings into a target's runfiles."""
        return cls(Path(__file__).parents[3] / "torq_tools" / "bin")

    def version(self) -> str:
        """What torq-compile says of itself."""
        return self._run("torq-compile", ["--version"], timeout=60).stdout

    def compile(
        self,
        module: Path,
        program: Path,
        flags: Sequence[str],
        timeout: float,
        timeline: Path | None = None,
    ) -> str:
        """Compiles a module; returns what torq-compile wrote to stderr.

        timeline: where the compiler's timeline of the program goes, as CSV.
        timeout: seconds.

        The same module and flags give the same bytes, wherever everything lies, provided that
        `--mlir-disable-threading` is among the flags (see `_staged`). Files appear when they are
        whole. Raises ToolError where torq-compile fails or takes longer.
        """
        profiling = ["--torq-enable-profiling", "--torq-dump-profiling=timeline.csv"]
        with self._staged(module) as folder:
            arguments = [*flags, *(profiling if timeline else []), "module", "-o", "program"]
            command = ["prlimit", _STACK, "setarch", "-R", "./torq-compile", *arguments]
            done = _run(
                command,
                timeout,
                folder,
                shlex.join(
                    [str(self.folder / "torq-compile"), *flags, str(module), "-o", str(program)]
                ),
            )
            if timeline:
                _move(folder / "timeline.csv", timeline)
            _move(folder / "program", program)
        return done.stderr

    @contextmanager
    def _staged(self, module: Path) -> Iterator[Path]:
        """A folder with the programs and the module under names of constant length.

        Where torq-compile 2.3.0 allocates registers for the program's host side, it goes by the
        order of pointers: five bytes of the program, and their checksum, then depend on where the
        heap lies, and on the length of the paths that were allocated in it (measured). So it runs
        with no address randomisation, in a folder whose path is always as long. An executable's
        path is its real one, so small files are copied; libraries can be links.
        """
        with tempfile.TemporaryDirectory(prefix="torq", dir="/tmp") as scratch:
            folder = Path(scratch)
            for file in self.folder.iterdir():
                if file.stat().st_size < _COPIED_BYTES:
                    shutil.copy(file, folder / file.name)
                else:
                    (folder / file.name).symlink_to(file.resolve())
            (folder / "module").symlink_to(module.resolve())
            yield folder

    def dispatches(self, program: Path) -> list[str]:
        """The names of the dispatches in a compiled program."""
        with tempfile.TemporaryDirectory() as scratch:
            dump = Path(scratch) / "dispatches.json"
            arguments = [f"--module={program}", "--device=torq", f"--dump_dispatches={dump}"]
            self._run("torq-run-module", arguments, timeout=600)
            return [dispatch["name"] for dispatch in json.loads(dump.read_text())["dispatches"]]

    def simulate(
        self,
        program: Path,
        inputs: Sequence[np.ndarray],
        outputs: Sequence[Output],
        timeout: float,
    ) -> list[np.ndarray]:
        """Runs `main` of a compiled program once in the simulator.

        timeout: seconds. Raises ToolError where it fails, takes longer, or leaves a result of
        another size than its Output says.
        """
        with tempfile.TemporaryDirectory() as scratch:
            arguments = [f"--module={program}", "--device=torq", "--function=main"]
            for index, value in enumerate(inputs):
                file = Path(scratch) / f"input{index}.bin"
                file.write_bytes(np.ascontiguousarray(value).tobytes())
                kind = "x".join([*map(str, value.shape), _ELEMENTS[value.dtype]])
                arguments.append(f"--input={kind}=@{file}")
            files = [Path(scratch) / f"output{index}.bin" for index in range(len(outputs))]
            arguments += [f"--output=@{file}" for file in files]
            try:
                self._run("torq-run-module", arguments, timeout)
            except ToolError as error:
                if _GAVE_UP in str(error):
                    raise ToolError(f"{error}\n{_ON_GIVING_UP}") from None
                raise
            return [_result(file, output) for file, output in zip(files, outputs, strict=True)]

    def _run(
        self, program: str, arguments: Sequence[str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        return _run([str(self.folder / program), *arguments], timeout)


def _run(
    command: list[str], timeout: float, folder: Path | None = None, shown: str = ""
) -> subprocess.CompletedProcess[str]:
    """Runs a command; an error has its own words, and the command line or what is shown for it."""
    program = next(Path(word).name for word in command if "/" in word)
    shown = shown or shlex.join(command)
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            cwd=folder,
            # A staged program must not see the caller's TMPDIR: its length moves the heap too.
            env=_ENVIRONMENT if folder else None,
        )
    except subprocess.TimeoutExpired:
        raise ToolError(
            f"{program} took longer than {timeout:g} s; the command was: {shown}"
        ) from None
    except OSError as error:
        raise ToolError(f"{command[0]} cannot be started: {error}") from None
    if done.returncode:
        raise ToolError(
            f"{program} ended with status {done.returncode}:\n{_own_words(done.stderr)}\n"
            f"the command was: {shown}"
        )
    return done


def _move(source: Path, target: Path) -> None:
    """Moves a file, from another file system too; it appears when it is whole."""
    partial = target.with_name(target.name + ".partial")
    try:
        shutil.move(source, partial)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def _own_words(stderr: str) -> str:
    """What a failed program said: its errors, or where it names none, how its output ended."""
    lines = [line[:_MAX_LINE] for line in stderr.splitlines() if not _NOISE.search(line)]
    errors = [line for line in lines if _ERROR.search(line)]
    return "\n".join(list(dict.fromkeys(errors))[:20] or lines[-20:])


def _result(file: Path, output: Output) -> np.ndarray:
    raw = file.read_bytes()
    wanted = int(np.prod(output.shape)) * output.dtype.itemsize
    if len(raw) != wanted:
        raise ToolError(f"a result of {len(raw)} bytes where {output} has {wanted}")
    return np.frombuffer(raw, output.dtype).reshape(output.shape)
