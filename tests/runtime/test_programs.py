"""chat and call as people start them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.runtime.toy_bundle import toy_file

BUNDLE = f"--bundle={toy_file('toy_chat_torq')}"
TOOLS = [
    {
        "name": "set_alarm",
        "description": "Sets an alarm.",
        "parameters": {
            "type": "object",
            "properties": {"hour": {"type": "integer", "minimum": 0, "maximum": 23}},
            "required": ["hour"],
        },
    }
]
MINE = "def set_alarm(hour):\n    return {'set': hour}\n"


def start(program: str, arguments: Sequence[str], folder: Path) -> subprocess.Popen[str]:
    root = Path(__file__).parents[2]
    paths = ":".join(path for path in sys.path if path)
    return subprocess.Popen(
        [sys.executable, str(root / "runtime" / f"{program}.py"), *arguments],
        env={**os.environ, "PYTHONPATH": paths, "BUILD_WORKING_DIRECTORY": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
        # Bazel starts tests with Ctrl-C ignored, which programs would inherit.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def run(
    program: str, arguments: Sequence[str], folder: Path, stdin: str = ""
) -> tuple[int, str, str]:
    process = start(program, arguments, folder)
    out, err = process.communicate(stdin, timeout=120)
    return process.returncode, out, err


def test_the_same_seed_gives_the_same_text_and_another_another(tmp_path: Path) -> None:
    def text(seed: int) -> str:
        flags = [BUNDLE, "--temperature=1", f"--seed={seed}", "--max_tokens=30"]
        status, out, err = run("chat", [*flags, "w1 w2"], tmp_path)
        assert (status, err) == (0, "")
        return out

    assert text(1) == text(1)
    assert text(1) != text(2)


def test_iree_and_jax_say_the_same(tmp_path: Path) -> None:
    flags = [BUNDLE, "--max_tokens=64", "--json"]
    texts = [
        json.loads(run("chat", [*flags, f"--backend={backend}", "w1 w2"], tmp_path)[1])["text"]
        for backend in ("iree", "jax")
    ]

    assert texts[0] == texts[1]
    assert texts[0]


def test_stats_and_json_say_what_it_cost(tmp_path: Path) -> None:
    flags = [BUNDLE, "--max_tokens=5", "--json", "--stats", "--temperature=1"]
    status, out, err = run("chat", [*flags, "w1"], tmp_path)

    stats = json.loads(out)["stats"]
    assert status == 0
    assert stats["tokens"] == 5
    assert stats["finish"] == "length"
    assert stats["prompt_tokens"] > 0
    assert stats["ms_per_token"] > 0
    assert "5 tokens" in err


def test_a_session_goes_on_where_it_was(tmp_path: Path) -> None:
    flags = [BUNDLE, "--max_tokens=6", "--session=my.npz", "--json", "--temperature=0.8"]
    one = [json.loads(run("chat", [*flags, text], tmp_path)[1]) for text in ("w1", "w2")]
    (tmp_path / "my.npz").unlink()
    status, out, _ = run("chat", flags, tmp_path, "w1\n\nw2\n")
    two = [json.loads(line) for line in out.splitlines()]

    assert status == 0
    assert [reply["text"] for reply in one] == [reply["text"] for reply in two]
    # The whole conversation is the second prompt, and most of it is in the cache.
    assert one[1]["stats"]["prompt_tokens"] > one[0]["stats"]["prompt_tokens"]
    assert (tmp_path / "my.npz").exists()


def test_ctrl_c_ends_it_cleanly_and_saves_the_session(tmp_path: Path) -> None:
    flags = [BUNDLE, "--max_tokens=100000", "--session=my.npz", "--temperature=1"]
    process = start("chat", [*flags, "w1"], tmp_path)
    assert process.stdout
    process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)

    # A toy that is faster than this test ends at its context.
    assert process.returncode in (0, 130)
    assert "Traceback" not in err
    assert (tmp_path / "my.npz").exists()


def test_ctrl_c_while_waiting_for_a_prompt_is_quiet(tmp_path: Path) -> None:
    process = start("chat", [BUNDLE, "--max_tokens=2", "--json"], tmp_path)
    assert process.stdin
    assert process.stdout
    process.stdin.write("w1\n")
    process.stdin.flush()
    process.stdout.readline()
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    process.wait(timeout=60)
    assert process.stderr

    assert process.returncode == 130
    assert "Traceback" not in process.stderr.read()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--bundle=none", "x"], "none: no bundle"),
        (["x"], "--bundle is missing"),
        ([BUNDLE, "--device=ssh://board", "x"], "is for --backend=torq, not iree"),
        ([BUNDLE, "--backend=torq", "x"], "--backend=torq wants --device="),
        ([BUNDLE, "--top_p=3", "x"], "top_p=3.0: expected above 0, at most 1"),
        ([BUNDLE, "w1 " * 600], "the context 1024; shorten it"),
        ([BUNDLE, "--backend=torq", "--device=usb:1", "x"], "--device=usb:1: expected ssh://"),
        ([BUNDLE, "--session=/dev/null/s", "w1"], "/dev/null is no folder"),
    ],
)
def test_what_cannot_be_used_is_one_line(arguments: list[str], words: str, tmp_path: Path) -> None:
    status, _, err = run("chat", arguments, tmp_path)

    assert status == 1
    assert words in err
    assert "Traceback" not in err


def test_a_line_that_is_too_long_does_not_end_a_conversation(tmp_path: Path) -> None:
    flags = [BUNDLE, "--max_tokens=2", "--json"]
    status, out, err = run("chat", flags, tmp_path, f"w1\n{'w1 ' * 600}\nw2\n")

    assert status == 0
    assert len(out.splitlines()) == 2
    assert "the context 1024" in err


def test_a_long_prompt_is_cut_where_that_is_asked_for(tmp_path: Path) -> None:
    flags = [BUNDLE, "--cut_prompt", "--max_tokens=3", "--json"]
    status, out, err = run("chat", [*flags, "w1 " * 600], tmp_path)

    assert (status, err) == (0, "")
    assert json.loads(out)["stats"]["prompt_tokens"] == 1021


@pytest.fixture
def tools(tmp_path: Path) -> str:
    (tmp_path / "tools.json").write_text(json.dumps(TOOLS))
    (tmp_path / "mine.py").write_text(MINE)
    return "--tools=tools.json"


def test_a_call_is_json_on_stdout(tools: str, tmp_path: Path) -> None:
    status, out, err = run("call", [BUNDLE, tools, "--temperature=1", "Set it"], tmp_path)

    assert (status, err) == (0, "")
    for line in out.splitlines():
        call = json.loads(line)
        assert call["name"] == "set_alarm"
        assert 0 <= call["arguments"]["hour"] <= 23
    assert out


def test_calls_are_run_and_their_responses_go_back(tools: str, tmp_path: Path) -> None:
    flags = [BUNDLE, tools, "--run=mine.py", "--temperature=1", "--max_tokens=200", "--max_calls=1"]
    status, out, err = run("call", [*flags, "Set it"], tmp_path)

    call = json.loads(out.splitlines()[0])
    assert call["response"] == {"set": call["arguments"]["hour"]}
    # What random weights say to a response is anything, and mostly without an end.
    assert status == 0 or "call:" in err


def test_a_command_runs_calls_too(tools: str, tmp_path: Path) -> None:
    command = f"{sys.executable} -c 'import sys; print(sys.argv[1])'"
    flags = [BUNDLE, tools, f"--command={command}", "--max_tokens=200", "--max_calls=1"]
    _, out, _ = run("call", [*flags, "--temperature=1", "Set it"], tmp_path)

    assert json.loads(out.splitlines()[0])["response"] == "set_alarm"


def test_a_call_that_does_not_fit_is_said_to_be_unfinished(tools: str, tmp_path: Path) -> None:
    status, out, err = run("call", [BUNDLE, tools, "--max_tokens=3", "Set it"], tmp_path)

    assert (status, out) == (1, "")
    assert "the reply was not finished after 3 tokens (length)" in err


def test_unconstrained_the_model_may_say_what_it_likes(tools: str, tmp_path: Path) -> None:
    flags = [BUNDLE, tools, "--noconstrained", "--max_tokens=20"]
    _, out, err = run("call", [*flags, "Set it"], tmp_path)

    assert "set_alarm" not in out
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[", "no JSON"),
        ("{}", "tools: dict was found"),
        ('[{"name": "a b"}]', "tools[0].name: 'a b'"),
    ],
)
def test_tools_that_are_none_are_named(content: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "tools.json").write_text(content)

    status, _, err = run("call", [BUNDLE, "--tools=tools.json", "x"], tmp_path)

    assert status == 1
    assert words in err
    assert "Traceback" not in err
