"""Runs the functions that a model calls: a person's Python functions, or a command."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from runtime.errors import RunError
from runtime.functions.parse import Call

# What a response may have at most, in characters: it becomes a part of the prompt.
_MAX_RESPONSE = 16_384

Execute = Callable[[Call], Any]


def python_file(path: Path, names: Sequence[str]) -> Execute:
    """Executes a call by the function of its name in a Python file.

    Raises RunError where the file cannot be run, or lacks one of the functions.
    """
    spec = importlib.util.spec_from_file_location("tools_of_a_call", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise RunError(f"{path}: no Python file; --run takes a .py that defines the functions")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
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


def _python(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """What the function returns; an exception is a response too, for the model to read."""
    try:
        return _json(function(**arguments))
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def _command(argv: list[str], arguments: Mapping[str, Any], timeout: float) -> Any:
    try:
        done = subprocess.run(
            argv,
            input=json.dumps(arguments, ensure_ascii=False),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"no answer within {timeout:g} s"}
    except OSError as error:
        raise RunError(f"{argv[0]} cannot be started: {error.strerror}") from None
    if done.returncode:
        return {"error": done.stderr.strip()[-_MAX_RESPONSE:] or f"status {done.returncode}"}
    try:
        return _json(json.loads(done.stdout))
    except ValueError:
        return _json(done.stdout.strip())


def _json(value: Any) -> Any:
    """A value as JSON has it; an error for the model where it is none, or too long."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        return {"error": f"the response is no JSON: {error}"}
    if len(text) > _MAX_RESPONSE:
        return {"error": f"the response has {len(text)} characters, at most {_MAX_RESPONSE} fit"}
    return json.loads(text)
