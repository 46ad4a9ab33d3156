"""The server, asked by OpenAI's own client."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.runtime.toy_bundle import toy_file

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "Sets it.",
            "parameters": {
                "type": "object",
                "properties": {"hour": {"type": "integer", "minimum": 0, "maximum": 23}},
                "required": ["hour"],
            },
        },
    }
    for name in ("set_alarm", "set_timer")
]
USER: list[Any] = [{"role": "user", "content": "w1 w2"}]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    root = Path(__file__).parents[2]
    paths = ":".join(path for path in sys.path if path)
    process = subprocess.Popen(
        [
            *(sys.executable, str(root / "runtime" / "serve.py"), "--port=0", "--max_tokens=20"),
            *(f"--bundle={toy_file('toy_chat_torq')}", "--temperature=1"),
        ],
        env={**os.environ, "PYTHONPATH": paths},
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stderr
    for line in process.stderr:
        if found := re.search(r"running on (http://127\.0\.0\.1:\d+)", line):
            break
    # Nobody else reads what it says, and a full pipe would stop it.
    threading.Thread(target=process.stderr.read, daemon=True).start()
    assert found
    yield found[1]
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) in (0, 130, -signal.SIGINT)


@pytest.fixture
def client(address: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)


def test_the_model_is_listed(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["toy_chat_torq"]


def test_an_answer_in_one_piece(client: openai.OpenAI) -> None:
    found = client.chat.completions.create(model="x", messages=USER, max_tokens=7, seed=3)

    assert found.choices[0].message.content
    assert found.choices[0].finish_reason in ("length", "stop")
    assert found.usage
    assert found.usage.total_tokens == found.usage.prompt_tokens + found.usage.completion_tokens
    assert 0 < found.usage.completion_tokens <= 7


def test_a_stream_says_what_an_answer_in_one_piece_says(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model="x", messages=USER, seed=5)
    pieces = list(
        client.chat.completions.create(
            model="x", messages=USER, seed=5, stream=True, stream_options={"include_usage": True}
        )
    )

    text = "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)
    assert text == whole.choices[0].message.content
    assert [p.choices[0].finish_reason for p in pieces if p.choices][-1] == (
        whole.choices[0].finish_reason
    )
    assert pieces[-1].usage
    assert whole.usage
    assert pieces[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert len({piece.id for piece in pieces}) == 1


def test_the_seed_decides(client: openai.OpenAI) -> None:
    def text(seed: int) -> str | None:
        found = client.chat.completions.create(model="x", messages=USER, seed=seed)
        return found.choices[0].message.content

    assert text(1) == text(1)
    assert len({text(seed) for seed in range(4)}) > 1


@pytest.mark.parametrize("stream", [False, True])
def test_a_required_call_is_a_call(stream: bool, client: openai.OpenAI) -> None:
    options: dict[str, Any] = {
        "model": "x",
        "messages": USER,
        "tools": TOOLS,
        "tool_choice": "required",
        "max_tokens": 400,
        "parallel_tool_calls": False,
        "seed": 2,
    }
    if stream:
        pieces = list(client.chat.completions.create(**options, stream=True))
        calls = [call for piece in pieces for call in piece.choices[0].delta.tool_calls or []]
        finish = pieces[-1].choices[0].finish_reason
    else:
        found = client.chat.completions.create(**options)
        calls, finish = found.choices[0].message.tool_calls, found.choices[0].finish_reason

    assert finish == "tool_calls"
    assert len(calls) == 1
    assert calls[0].function.name in ("set_alarm", "set_timer")
    assert 0 <= json.loads(calls[0].function.arguments)["hour"] <= 23


def test_a_named_function_is_the_one_that_is_called(client: openai.OpenAI) -> None:
    for seed in range(5):
        found = client.chat.completions.create(
            model="x",
            messages=USER,
            tools=TOOLS,
            tool_choice={"type": "function", "function": {"name": "set_timer"}},
            max_tokens=400,
            seed=seed,
        )
        calls: Any = found.choices[0].message.tool_calls
        assert {call.function.name for call in calls} == {"set_timer"}


def test_a_response_goes_back_and_the_model_goes_on(client: openai.OpenAI) -> None:
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "set_alarm", "arguments": '{"hour": 7}'},
    }
    messages: list[Any] = [
        *USER,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
    ]

    found = client.chat.completions.create(model="x", messages=messages, max_tokens=5)

    assert found.choices[0].finish_reason in ("stop", "length")


def test_many_at_once_are_all_answered_as_they_are_alone(client: openai.OpenAI) -> None:
    def text(seed: int) -> str | None:
        messages: list[Any] = [{"role": "user", "content": f"w{seed % 9}"}]
        found = client.chat.completions.create(model="x", messages=messages, seed=seed)
        return found.choices[0].message.content

    alone = [text(seed) for seed in range(12)]
    with ThreadPoolExecutor(12) as pool:
        assert list(pool.map(text, range(12))) == alone


def test_a_client_that_leaves_does_not_stop_the_next(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(model="x", messages=USER, max_tokens=900, stream=True)
    next(iter(stream))
    stream.close()

    assert client.chat.completions.create(model="x", messages=USER).choices


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no messages": ({"messages": []}, "messages: a list of at least one"),
    "a message that is none": ({"messages": ["hi"]}, "messages: a list"),
    "another role": ({"messages": [{"role": "robot", "content": "x"}]}, r"role: 'robot'"),
    "two choices": ({"n": 2}, "n: one choice"),
    "top_p of text": ({"top_p": "1"}, "top_p: a number was expected, str was found"),
    "top_p too large": ({"top_p": 1.5}, "top_p=1.5: expected above 0, at most 1"),
    "no tokens": ({"max_tokens": 0}, "max_tokens: 0; expected 1 or more"),
    "an unknown tool": (
        {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "g"}}},
        "tool_choice: 'g' is not among the tools",
    ),
    "a choice without tools": ({"tool_choice": "required"}, "tool_choice: 'required'"),
    "a tool that is none": ({"tools": [{"type": "function", "function": {}}]}, r"name: None"),
    "a field that would be ignored": ({"stop": ["x"]}, "stop: not supported here"),
    "too long": ({"messages": [{"role": "user", "content": "w1 " * 2000}]}, "the context 1024"),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_answered_is_named(case: str, stream: bool, client: openai.OpenAI) -> None:
    fields, words = WRONG[case]

    with pytest.raises(openai.BadRequestError, match=words):
        client.chat.completions.create(
            **{"model": "x", "messages": USER, "stream": stream, **fields}
        )


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"3", b"\xff", b"[" * 100_000])
def test_a_body_that_is_no_request_is_refused(body: bytes, address: str) -> None:
    request = urllib.request.Request(f"{address}/v1/chat/completions", body, method="POST")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request)
    assert caught.value.code == 400
    assert "message" in json.loads(caught.value.read())["error"]


def test_another_path_says_which_there_are(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="POST /v1/chat/completions"):
        client.embeddings.create(model="x", input="x")
