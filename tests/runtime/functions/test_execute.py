"""Calls run: Python functions, commands, and what goes wrong in them."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from runtime.errors import RunError
from runtime.functions.execute import command, python_file
from runtime.functions.parse import Call
from runtime.functions.values import Json

SOURCE = """
def add(a, b=2):
    return {"sum": a + b}
def fail():
    raise ValueError("no weather today")
def odd():
    return object()
def long():
    return "x" * 20_000
def chatty():
    print("to stderr")
    return 1
def leave():
    raise SystemExit("bye")
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
        ("leave", {}, {"error": "SystemExit: bye"}),
        ("add", {"c": 1}, {"error": "TypeError: add() got an unexpected keyword argument 'c'"}),
    ],
)
def test_a_python_function_gives_a_response_or_an_error_for_the_model(
    name: str, arguments: dict[str, Any], response: Json, file: Path
) -> None:
    assert python_file(file, ["add", "fail", "leave"])(Call(name, arguments)) == response


def test_what_a_function_prints_stays_out_of_stdout(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert python_file(file, ["chatty"])(Call("chatty", {})) == 1
    assert capsys.readouterr() == ("", "to stderr\n")


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


def run(code: str, arguments: dict[str, Any], timeout: float = 30) -> Json:
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


def test_a_command_that_writes_without_end_is_stopped() -> None:
    endless = "import sys\nwhile True: sys.stdout.write('x' * 65536)"

    assert run(endless, {}) == {"error": "the command wrote more than 1048576 bytes"}


def test_what_a_command_leaves_running_is_not_waited_for() -> None:
    code = "import subprocess; subprocess.Popen(['sleep', '5']); print('playing')"
    start = time.monotonic()

    assert run(code, {}) == "playing"
    assert time.monotonic() - start < 4


def test_a_command_that_hangs_is_stopped_with_what_it_started(tmp_path: Path) -> None:
    late = f"sleep 1; touch {tmp_path}/late"
    code = f"import subprocess, time; subprocess.Popen(['sh', '-c', {late!r}]); time.sleep(60)"

    assert "no answer" in run(code, {}, 0.3)["error"]
    time.sleep(1.2)
    assert not (tmp_path / "late").exists()


def test_a_large_request_to_a_command_that_does_not_read_it_is_no_hang() -> None:
    assert run("print(7)", {"x": "y" * 1_000_000}) == 7


def test_a_command_that_is_not_there_is_named() -> None:
    with pytest.raises(RunError, match="/no/such cannot be started"):
        command(["/no/such"], 1)(Call("f", {}))


def test_arguments_are_no_shell() -> None:
    code = "import sys; print(sys.stdin.read())"

    assert json.dumps(run(code, {"x": "$(touch /tmp/never); `id`"})).count("touch") == 1
