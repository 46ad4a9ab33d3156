"""OpenAI's chat completions as JSON: requests read and checked, answers written.

The form is that of platform.openai.com/docs/api-reference/chat; what this runtime does not have is
refused by name, where leaving it out would change the answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runtime.errors import RunError
from runtime.functions.parse import Call
from runtime.functions.schema import Function, load_functions
from runtime.generate import Stats
from runtime.sampling import Sampling

_IGNORED = frozenset(
    {"model", "user", "store", "metadata", "service_tier", "stream_options", "n"}
    | {"frequency_penalty", "presence_penalty", "parallel_tool_calls", "stream", "logprobs"}
)
_KNOWN = _IGNORED | {
    *("messages", "tools", "tool_choice", "max_tokens", "max_completion_tokens"),
    *("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed"),
}
_FINISH = {"stop": "stop", "length": "length", "context": "length", "interrupted": "stop"}


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request for a completion.

    choice: "none", "auto" (the model may call), or "required" (it must call one of `functions`).
    parallel: whether it may call several times in one reply.
    """

    messages: list[dict[str, Any]]
    functions: tuple[Function, ...]
    choice: str
    parallel: bool
    sampling: Sampling
    max_tokens: int
    stream: bool
    usage: bool


def read(body: Any, sampling: Sampling, max_tokens: int) -> Request:
    """The request in a body of JSON; sampling and max_tokens are what it leaves open.

    Raises RunError, naming the field, for what cannot be answered.
    """
    if not isinstance(body, Mapping):
        raise RunError("the body is no JSON object")
    if unknown := set(body) - _KNOWN:
        raise RunError(f"{', '.join(sorted(unknown))}: not supported here; leave it out")
    if _field(body, "n", int, 1) != 1:
        raise RunError("n: one choice is all that can be had")
    if _field(body, "logprobs", bool, False):
        raise RunError("logprobs: not supported here; leave it out")
    messages = _field(body, "messages", list, [])
    if not messages or not all(isinstance(message, dict) for message in messages):
        raise RunError("messages: a list of at least one message was expected")
    functions = load_functions(_field(body, "tools", list, []))
    choice = body.get("tool_choice") or ("auto" if functions else "none")
    if isinstance(choice, Mapping):
        name = (choice.get("function") or {}).get("name")
        functions = tuple(function for function in functions if function.name == name)
        if not functions:
            raise RunError(f"tool_choice: {name!r} is not among the tools")
        choice = "required"
    if choice not in ("none", "auto", "required") or (choice == "required" and not functions):
        raise RunError(f"tool_choice: {choice!r}; expected none, auto, required or a function")
    limit = _field(body, "max_completion_tokens", int, _field(body, "max_tokens", int, max_tokens))
    if limit < 1:
        raise RunError(f"max_tokens: {limit}; expected 1 or more")
    options = _field(body, "stream_options", dict, {})
    return Request(
        messages=messages,
        functions=functions if choice != "none" else (),
        choice=choice,
        parallel=_field(body, "parallel_tool_calls", bool, True),
        sampling=Sampling(
            temperature=_number(body, "temperature", sampling.temperature),
            top_k=_field(body, "top_k", int, sampling.top_k),
            top_p=_number(body, "top_p", sampling.top_p),
            min_p=_number(body, "min_p", sampling.min_p),
            repetition_penalty=_number(body, "repetition_penalty", sampling.repetition_penalty),
            seed=_field(body, "seed", int, sampling.seed),
        ),
        max_tokens=limit,
        stream=_field(body, "stream", bool, False),
        usage=bool(options.get("include_usage")),
    )


def _field(body: Mapping[str, Any], name: str, kind: type, default: Any) -> Any:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise RunError(f"{name}: {kind.__name__} was expected, {type(value).__name__} was found")
    return value


def _number(body: Mapping[str, Any], name: str, default: float) -> float:
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RunError(f"{name}: a number was expected, {type(value).__name__} was found")
    return float(value)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What every piece of one answer has: its id, time (Unix seconds) and model."""

    identity: str
    created: int
    model: str

    def whole(self, text: str, calls: tuple[Call, ...], stats: Stats) -> dict[str, Any]:
        """The answer in one piece."""
        message: dict[str, Any] = {"role": "assistant", "content": text or None}
        if calls:
            message["tool_calls"] = self._calls(calls)
        elif not text:
            message["content"] = ""
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": _finish(calls, stats),
        }
        return {**self._head("chat.completion"), "choices": [choice], "usage": usage(stats)}

    def piece(self, delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
        """A piece of a stream."""
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return {**self._head("chat.completion.chunk"), "choices": [choice]}

    def called(self, calls: tuple[Call, ...]) -> dict[str, Any]:
        """The piece of a stream that holds the calls."""
        numbered = [{"index": i, **call} for i, call in enumerate(self._calls(calls))]
        return self.piece({"tool_calls": numbered})

    def last(self, calls: tuple[Call, ...], stats: Stats) -> dict[str, Any]:
        """The piece that says why the answer ended."""
        return self.piece({}, _finish(calls, stats))

    def cost(self, stats: Stats) -> dict[str, Any]:
        """The piece that says what it cost."""
        return {**self._head("chat.completion.chunk"), "choices": [], "usage": usage(stats)}

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.identity,
            "object": kind,
            "created": self.created,
            "model": self.model,
        }

    def _calls(self, calls: tuple[Call, ...]) -> list[dict[str, Any]]:
        return [
            {
                "id": f"call_{self.identity}_{index}",
                "type": "function",
                "function": {
                    "name": call.name,
                    "arguments": json.dumps(call.arguments, ensure_ascii=False),
                },
            }
            for index, call in enumerate(calls)
        ]


def error(message: str, kind: str) -> dict[str, Any]:
    """An error's body."""
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


def usage(stats: Stats) -> dict[str, Any]:
    """Tokens of the prompt (and those the cache had), and of the answer."""
    return {
        "prompt_tokens": stats.prompt_tokens,
        "completion_tokens": stats.tokens,
        "total_tokens": stats.prompt_tokens + stats.tokens,
        "prompt_tokens_details": {"cached_tokens": stats.kept_tokens},
    }


def _finish(calls: tuple[Call, ...], stats: Stats) -> str:
    return "tool_calls" if calls else _FINISH[stats.finish]
