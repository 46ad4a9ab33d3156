"""Makes a model call functions: a request in, calls out as JSON, one a line.

    tools/bazelw run //runtime:call -- --bundle=FOLDER --tools=tools.json "Set an alarm for 7"

Calls are constrained while they are generated: only declared functions, declared arguments, values
of their types. With --run or --command they are executed, the responses go back to the model, and
what it then says comes last, as {"text": …}.
"""

from __future__ import annotations

import json
import shlex
import sys
from typing import Any

from absl import flags

from runtime import options, show
from runtime.dialogue import Dialogue, Turn
from runtime.errors import RunError
from runtime.functions import execute
from runtime.functions.constraint import CallConstraint, OnceCalled, Vocabulary
from runtime.functions.execute import Execute
from runtime.functions.grammar import Bounds
from runtime.functions.markers import START_CALL
from runtime.functions.parse import Reply
from runtime.functions.schema import Function, load_functions
from runtime.generate import Constraint, Limits
from runtime.interrupt import Interrupt
from runtime.prompting import Form, user_message
from runtime.sampling import Sampler

flags.adopt_module_key_flags(options)
_TOOLS = flags.DEFINE_string("tools", "", "JSON: a list of functions, as OpenAI's API takes them.")
_CONSTRAINED = flags.DEFINE_bool("constrained", True, "Let nothing but valid calls through.")
_RUN = flags.DEFINE_string("run", "", "A Python file that defines the functions, to run them.")
_COMMAND = flags.DEFINE_string(
    "command", "", "A command to run a call: NAME is its last argument, JSON comes on stdin."
)
_TIMEOUT = flags.DEFINE_float("timeout", 30, "Seconds that --command may take.")
_ROUNDS = flags.DEFINE_integer("max_rounds", 4, "Rounds of calls at most.", lower_bound=1)
_CALLS = flags.DEFINE_integer("max_calls", 4, "Calls in one round at most.", lower_bound=1)
_MAX_TOKENS = flags.DEFINE_integer("max_tokens", 256, "A reply's length at most.", lower_bound=1)
_CUT = flags.DEFINE_bool("cut_prompt", False, "Drop the beginning of a prompt that is too long.")
_STATS = flags.DEFINE_bool("stats", False, "Say what it cost, on stderr.")
_JSON = flags.DEFINE_bool("json", True, "One JSON object a line; --nojson indents them.")


def main(arguments: list[str]) -> int:
    """Opens the bundle and answers the request."""
    if not _TOOLS.value:
        raise RunError("--tools is missing: a file of JSON, a list of functions")
    if not arguments:
        raise RunError('no request; write it after the flags: "Set an alarm for 7"')
    functions = load_functions(_tools())
    sampler = Sampler(options.sampling())
    executor = _executor(functions)
    bundle = options.open_bundle()
    form = Form.of(bundle)
    vocabulary = Vocabulary.of(bundle.tokenizer, form.stops) if _CONSTRAINED.value else None
    show.note(f"loading {bundle.name}…")
    with options.open_decoder(bundle) as decoder:
        dialogue = Dialogue(decoder=decoder, sampler=sampler, form=form, cut=_CUT.value)
        rounds = _Rounds(dialogue, functions, vocabulary, executor)
        rounds.answer(" ".join(arguments))
    return 130 if rounds.interrupt.noted else 0


def _tools() -> Any:
    path = options.path(_TOOLS.value)
    try:
        return json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise RunError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise RunError(f"{path}: no JSON: {error}") from None


def _executor(functions: tuple[Function, ...]) -> Execute | None:
    if _RUN.value and _COMMAND.value:
        raise RunError("--run and --command exclude each other")
    if _RUN.value:
        names = [function.name for function in functions]
        return execute.python_file(options.path(_RUN.value), names)
    if _COMMAND.value:
        return execute.command(shlex.split(_COMMAND.value), _TIMEOUT.value)
    return None


class _Rounds:
    """Calls, their responses, further calls, and the last word."""

    def __init__(
        self,
        dialogue: Dialogue,
        functions: tuple[Function, ...],
        vocabulary: Vocabulary | None,
        executor: Execute | None,
    ) -> None:
        self.interrupt = Interrupt()
        self._dialogue, self._vocabulary, self._executor = dialogue, vocabulary, executor
        self._functions = functions

    def answer(self, request: str) -> None:
        """Prints the calls that a request leads to, and what is said at the end."""
        messages: list[dict[str, Any]] = [user_message(request)]
        for number in range(_ROUNDS.value + 1):
            reply = self._reply(messages, number)
            if not reply.calls or self._executor is None:
                for call in reply.calls:
                    _print({"name": call.name, "arguments": call.arguments})
                if reply.text.strip():
                    _print({"text": reply.text.strip()})
                return
            if number == _ROUNDS.value:
                raise RunError(
                    f"the model still calls functions after {_ROUNDS.value} rounds; raise "
                    "--max_rounds if that is what it should do"
                )
            called, responses = [], []
            for index, call in enumerate(reply.calls):
                response = self._executor(call)
                _print({"name": call.name, "arguments": call.arguments, "response": response})
                identity = f"call_{number}_{index}"
                function = {"name": call.name, "arguments": dict(call.arguments)}
                called.append({"id": identity, "type": "function", "function": function})
                content = {"name": call.name, "response": _members(response)}
                responses.append({"role": "tool", "tool_call_id": identity, "content": content})
            messages.append({"role": "assistant", "tool_calls": called})
            messages += responses

    def _reply(self, messages: list[dict[str, Any]], number: int) -> Reply:
        """The model's next reply, its calls checked."""
        prompt = self._dialogue.prompt(messages, self._functions, _MAX_TOKENS.value)
        limits = Limits(
            max_tokens=_MAX_TOKENS.value,
            stops=self._dialogue.form.stops,
            interrupted=self.interrupt,
        )
        turn = Turn()
        with self.interrupt:
            for _ in self._dialogue.pieces(prompt, limits, turn, self._constraint(number)):
                pass
        if _STATS.value:
            print(show.stats_line(turn.stats), file=sys.stderr)
        if number and turn.stats.finish == "length" and START_CALL not in self._shown(turn):
            # The calls are made: a last word that is cut off is no reason to call it all failed.
            print("call: the last word was cut off; raise --max_tokens", file=sys.stderr)
            return Reply(self._shown(turn), ())
        if turn.stats.finish in ("length", "context"):
            raise RunError(
                f"the reply was not finished after {turn.stats.tokens} tokens "
                f"({turn.stats.finish}); so far: {self._shown(turn)!r}; "
                "raise --max_tokens"
            )
        if turn.stats.finish == "interrupted":
            raise KeyboardInterrupt
        return self._dialogue.checked(turn, self._functions)

    def _shown(self, turn: Turn) -> str:
        return self._dialogue.form.shown(turn.tokens)

    def _constraint(self, number: int) -> Constraint | None:
        """The first reply must be calls; after responses the model may say what it likes."""
        if self._vocabulary is None:
            return None
        tokenizer = self._dialogue.decoder.bundle.tokenizer
        constraint = CallConstraint(
            self._vocabulary,
            self._functions,
            self._dialogue.decoder.bundle.vocabulary,
            Bounds(calls=_CALLS.value),
        )
        if number == 0:
            return constraint
        return OnceCalled(constraint, tokenizer) if START_CALL in tokenizer.control else None


def _members(response: Any) -> dict[str, Any]:
    return response if isinstance(response, dict) else {"value": response}


def _print(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=None if _JSON.value else 2), flush=True)


if __name__ == "__main__":
    options.run("call", main)
