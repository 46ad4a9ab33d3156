"""Renders a checkpoint's own chat template, in a sandbox."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2.exceptions import SecurityError
from jinja2.ext import loopcontrols
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from runtime.errors import RunError
from runtime.segments import Segment, merged

# Characters that no text may hold (Unicode, section 23.7): they mark what is not the template's.
_MARKS = [chr(code) for code in range(0xFDD0, 0xFDF0)]
_MAX_CHARACTERS = 4_000_000
_MAX_BASE, _MAX_EXPONENT = 10**6, 64


class _Sandbox(ImmutableSandboxedEnvironment):
    """jinja2's sandbox, which keeps a template from the interpreter, but not from the memory."""

    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Numbers multiply; texts and lists are not repeated without end."""
        sizes = [len(value) for value in (left, right) if isinstance(value, str | list | tuple)]
        times = [value for value in (left, right) if isinstance(value, int)]
        if operator == "*" and sizes and times and sizes[0] * times[0] > _MAX_CHARACTERS:
            raise SecurityError(f"{times[0]} repetitions")
        if operator == "**" and not (abs(left) <= _MAX_BASE and abs(right) <= _MAX_EXPONENT):
            raise SecurityError(f"{left} ** {right}")
        return super().call_binop(context, operator, left, right)


class ChatTemplate:
    """A template as `tokenizer.chat_template` holds it, with what Hugging Face gives to one."""

    def __init__(self, source: str, control: Iterable[str]) -> None:
        """control: texts of control tokens, which messages must not smuggle in.

        Raises RunError where the template does not compile.
        """
        environment = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        self._control = sorted(control, key=len, reverse=True)
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise RunError(f"the checkpoint's chat template does not compile: {error}") from None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        bos: str = "",
        eos: str = "",
        add_generation_prompt: bool = True,
    ) -> tuple[Segment, ...]:
        """The prompt of a conversation; what messages and tools say is not trusted.

        Raises RunError with the template's own words where it refuses the conversation.
        """
        start, end = self._marks([messages, tools])
        pattern = re.compile("|".join(map(re.escape, self._control)) or r"(?!)")
        mark = _Marking(pattern, start, end)
        try:
            rendered = self._template.render(
                messages=mark(messages),
                tools=mark(tools),
                bos_token=bos,
                eos_token=eos,
                add_generation_prompt=add_generation_prompt,
            )
        except jinja2.TemplateError as error:
            raise RunError(f"the chat template refuses this conversation: {error}") from None
        except Exception as error:
            # A template is a program of somebody else's: it can fail in any way.
            raise RunError(f"the chat template fails on this conversation: {error!r}") from None
        if len(rendered) > _MAX_CHARACTERS:
            raise RunError(f"the chat template made {len(rendered)} characters of a conversation")
        return merged(_split(rendered, start, end))

    @staticmethod
    def _marks(values: Any) -> tuple[str, str]:
        used = set(json.dumps(values, ensure_ascii=False, default=str))
        free = [mark for mark in _MARKS if mark not in used]
        if len(free) < len(_MARKS):
            raise RunError("the conversation holds a character that is no character (U+FDD0…)")
        return free[0], free[1]


class _Marking:
    """Puts marks around control tokens in every string of a value."""

    def __init__(self, pattern: re.Pattern[str], start: str, end: str) -> None:
        self._pattern, self._replacement = pattern, f"{start}\\g<0>{end}"

    def __call__(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._pattern.sub(self._replacement, value)
        if isinstance(value, Mapping):
            return {self(key): self(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self(item) for item in value]
        return value


def _split(rendered: str, start: str, end: str) -> Iterator[Segment]:
    """The text between marks is not trusted."""
    for part in re.split(f"({start}[^{end}]*{end})", rendered):
        if part.startswith(start):
            yield Segment(part[1:-1], trusted=False)
        else:
            yield Segment(part, trusted=True)


def _tojson(value: Any, indent: int | None = None, **options: Any) -> str:
    """JSON as it is, where jinja2's own filter escapes for HTML."""
    return json.dumps(value, ensure_ascii=False, indent=indent, **options)


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
