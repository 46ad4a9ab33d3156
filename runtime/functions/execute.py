"""Runs the functions that a model calls: a person's Python functions, or a command."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from runtime.errors import RunError
from runtime.functions.parse import Call
from runtime.functions.values import Json

# What a response may have at most, in characters: it becomes a part of the prompt.
_MAX_RESPONSE = 16_384
# What a command may write, in bytes, before it is stopped.
_MAX_OUTPUT = 1 << 20
# Seconds between two looks at a command's output.
_POLL = 0.02

Execute = Callable[[Call], Any]


def python_file(path: Path, names: Sequence[str]) -> Execute:
    """Executes a call by the function of its name in a Python file.

    What the functions print goes to stderr: stdout is for the calls.

    Raises RunError where the file cannot be run, or lacks one of the functions.
    """
    spec = importlib.util.spec_from_file_location("tools_of_a_call", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise RunError(f"{path}: no Python file; --run takes a .py that defines the functions")
    module = importlib.util.module_from_spec(spec)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise RunError(f"{path}: {type(error).__name__}: {error}") from error
    functions = {name: getattr(module, name, None) for name in names}
    if missing := [name for name, function in functions.items() if not callable(function)]:
        raise RunError(f"{path}: no function {', '.join(missing)}, which the tools declare")
    return lambda call: _python(functions[call.name], call.arguments)  # type: ignore[arg-type]


def command(argv: Sequence[str], timeout: float) -> Execute:
    """Executes a call by a command: the function's name is its last argument.

    The arguments are JSON on its stdin; what it writes to stdout is the response, JSON or text.
    timeout: seconds.
    """
    return lambda call: _command([*argv, call.name], call.arguments, timeout)


def _python(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Json:
    """What the function returns; an exception is a response too, for the model to read."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return _json(function(**arguments))
    except (Exception, SystemExit) as error:
        return _error(f"{type(error).__name__}: {error}")


def _command(argv: list[str], arguments: Mapping[str, Any], timeout: float) -> Json:
    # Files, because a pipe stays open as long as any child that the command leaves behind.
    with _file() as given, _file() as out, _file() as complaints:
        given.write(json.dumps(arguments, ensure_ascii=False).encode(errors="replace"))
        given.seek(0)
        try:
            process = subprocess.Popen(
                argv, stdin=given, stdout=out, stderr=complaints, start_new_session=True
            )
        except OSError as error:
            raise RunError(f"{argv[0]} cannot be started: {error.strerror}") from None
        if stopped := _wait(process, (out, complaints), timeout):
            return _error(stopped)
        said, complaint = _read(out), _read(complaints).strip()
    if complaint:
        print(f"{argv[0]}: {complaint}", file=sys.stderr)
    if process.returncode:
        return _error(complaint[-_MAX_RESPONSE:] or f"status {process.returncode}")
    try:
        return _json(json.loads(said))
    except (ValueError, RecursionError):
        return _json(said.strip())


def _wait(process: subprocess.Popen[bytes], outputs: Sequence[IO[bytes]], timeout: float) -> str:
    """Waits for the command; why it was stopped, with all that it started, where it was."""
    deadline = time.monotonic() + timeout
    try:
        while process.poll() is None:
            if any(os.fstat(output.fileno()).st_size > _MAX_OUTPUT for output in outputs):
                return f"the command wrote more than {_MAX_OUTPUT} bytes"
            if time.monotonic() > deadline:
                return f"no answer within {timeout:g} s"
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_POLL)
        return ""
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _file() -> IO[bytes]:
    return tempfile.TemporaryFile()


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(_MAX_OUTPUT).decode("utf-8", errors="replace")


def _error(words: str) -> dict[str, str]:
    return {"error": words}


def _json(value: object) -> Json:
    """A value as JSON has it; an error for the model where it is none, or too long."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        return _error(f"the response is no JSON: {error}")
    if len(text) > _MAX_RESPONSE:
        return _error(f"the response has {len(text)} characters, at most {_MAX_RESPONSE} fit")
    return json.loads(text)
