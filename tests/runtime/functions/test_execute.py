"""Calls run: Python functions, commands, and what goes wrong in them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from runtime.errors import RunError
from runtime.functions.execute import command, python_file
from runtime.functions.parse import Call

SOURCE = """
def add(a, b=2):
    return {"sum": a + b}
def fail():
    raise ValueError("no weather today")
def odd():
    return object()
def long():
    return "x" * 20_000
def nan():
    return float("nan")
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(SOURCE)
    return path


@pytest.mark.parametrize(
    ("name", "arguments", "response"),
    [
        ("add", {"a": 1}, {"sum": 3}),
        ("fail", {}, {"error": "ValueError: no weather today"}),
        ("add", {"c": 1}, {"error": "TypeError: add() got an unexpected keyword argument 'c'"}),
    ],
)
def test_a_python_function_gives_a_response_or_an_error_for_the_model(
    name: str, arguments: dict[str, Any], response: Any, file: Path
) -> None:
    assert python_file(file, ["add", "fail"])(Call(name, arguments)) == response


@pytest.mark.parametrize(
    ("name", "words"), [("odd", "no JSON"), ("nan", "no JSON"), ("long", "at most 16384")]
)
def test_a_response_that_is_no_json_is_an_error_for_the_model(
    name: str, words: str, file: Path
) -> None:
    assert words in python_file(file, [name])(Call(name, {}))["error"]


def test_what_cannot_be_run_is_named_before_anything_is(tmp_path: Path, file: Path) -> None:
    with pytest.raises(RunError, match="no function gone, away"):
        python_file(file, ["add", "gone", "away"])
    with pytest.raises(RunError, match="no Python file"):
        python_file(tmp_path / "none.py", [])
    (tmp_path / "broken.py").write_text("import nothing_of_this_name")
    with pytest.raises(RunError, match=r"broken.py: ModuleNotFoundError: No module"):
        python_file(tmp_path / "broken.py", [])


def run(code: str, arguments: dict[str, Any], timeout: float = 30) -> Any:
    return command([sys.executable, "-c", code], timeout)(Call("f", arguments))


def test_a_command_gets_the_name_and_json_and_gives_json() -> None:
    code = "import sys, json; print(json.dumps([sys.argv[1], json.load(sys.stdin)]))"

    assert run(code, {"ü": ['"', 1]}) == ["f", {"ü": ['"', 1]}]


def test_a_commands_text_is_a_response_too() -> None:
    assert run("print('sunny ☂')", {}) == "sunny ☂"


def test_a_command_that_fails_or_hangs_is_an_error_for_the_model() -> None:
    assert run("import sys; sys.exit('no such city')", {}) == {"error": "no such city"}
    assert run("import sys; sys.exit(3)", {}) == {"error": "status 3"}
    assert run("import time; time.sleep(60)", {}, 0.2) == {"error": "no answer within 0.2 s"}


def test_a_command_that_is_not_there_is_named() -> None:
    with pytest.raises(RunError, match="/no/such cannot be started"):
        command(["/no/such"], 1)(Call("f", {}))


def test_arguments_are_no_shell() -> None:
    code = "import sys; print(sys.stdin.read())"

    assert json.dumps(run(code, {"x": "$(touch /tmp/never); `id`"})).count("touch") == 1
