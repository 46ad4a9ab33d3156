"""Talks with a bundle: one reply to the prompt on the command line, or a conversation.

    tools/bazelw run //runtime:chat -- --bundle=FOLDER "The capital of France is"

Without a prompt it reads one a line from stdin, to its end (Ctrl-D). Ctrl-C ends a reply. The reply
is streamed to stdout; all else goes to stderr. Paths are relative to where you are. A base model,
which has no form for turns, goes on with the text.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from absl import flags

from runtime import options, session, show
from runtime.dialogue import Dialogue, Turn
from runtime.errors import PromptError, RunError
from runtime.generate import Limits
from runtime.interrupt import Interrupt
from runtime.prompting import Form, user_message
from runtime.sampling import Sampler

flags.adopt_module_key_flags(options)
_MAX_TOKENS = flags.DEFINE_integer("max_tokens", 256, "The reply's length at most.", lower_bound=1)
_SYSTEM = flags.DEFINE_string("system", "", "A system message, before the first prompt.")
_RAW = flags.DEFINE_bool("raw", False, "Go on with the text; no turns, whatever the checkpoint.")
_CUT = flags.DEFINE_bool("cut_prompt", False, "Drop the beginning of a prompt that is too long.")
_SESSION = flags.DEFINE_string("session", "", "A file to go on from, and to save to.")
_STATS = flags.DEFINE_bool("stats", False, "Say what it cost, on stderr.")
_JSON = flags.DEFINE_bool("json", False, "Print one JSON object a reply instead of streaming.")


def main(arguments: list[str]) -> int:
    """Opens the bundle and answers each prompt."""
    sampler = Sampler(options.sampling())
    bundle = options.open_bundle()
    form = Form.of(bundle, _RAW.value)
    prompts = iter([" ".join(arguments)]) if arguments else _lines()
    file = options.path(_SESSION.value) if _SESSION.value else None
    if file and not file.parent.is_dir():
        raise RunError(f"{file}: the session cannot be saved there: {file.parent} is no folder")
    show.note(f"loading {bundle.name}…")
    with options.open_decoder(bundle) as decoder:
        dialogue = Dialogue(decoder=decoder, sampler=sampler, form=form, cut=_CUT.value)
        chat = _Chat(dialogue, file)
        for prompt in prompts:
            try:
                chat.reply(prompt)
            except PromptError as error:
                if arguments:
                    raise
                # The conversation is as it was; the next line may be shorter.
                print(f"chat: {error}", file=sys.stderr)
    return 130 if arguments and chat.interrupt.noted else 0


def _lines() -> Iterator[str]:
    """Prompts from stdin, empty lines left out."""
    while True:
        if sys.stdin.isatty():
            print("> ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            return
        if line.strip():
            yield line.rstrip("\n")


class _Chat:
    """A conversation on the terminal."""

    def __init__(self, dialogue: Dialogue, file: Path | None) -> None:
        self.interrupt = Interrupt()
        self._dialogue, self._file = dialogue, file
        self._conversation = session.Conversation()
        if file and file.exists():
            self._conversation = session.restore(file, dialogue.decoder)
            if self._conversation.random:
                dialogue.sampler.state = self._conversation.random
        elif _SYSTEM.value:
            self._conversation.messages.append({"role": "system", "content": _SYSTEM.value})

    def reply(self, text: str) -> None:
        """Answers one prompt, and saves the session, whatever happens meanwhile."""
        messages = self._conversation.messages
        asked = [*messages, user_message(text)]
        prompt = self._dialogue.prompt(asked, (), _MAX_TOKENS.value)
        messages[:] = asked
        turn = Turn()
        pieces: list[str] = []
        limits = Limits(
            max_tokens=_MAX_TOKENS.value,
            stops=self._dialogue.form.stops,
            interrupted=self.interrupt,
        )
        try:
            with self.interrupt:
                for piece in self._dialogue.pieces(prompt, limits, turn):
                    pieces.append(piece)
                    if not _JSON.value:
                        print(piece, end="", flush=True)
        finally:
            messages.append({"role": "assistant", "content": "".join(pieces)})
            self._save()
        reply = {"text": "".join(pieces), "stats": show.stats_json(turn.stats)}
        print(json.dumps(reply) if _JSON.value else "", flush=True)
        if _STATS.value:
            print(show.stats_line(turn.stats), file=sys.stderr)

    def _save(self) -> None:
        if self._file:
            self._conversation.random = self._dialogue.sampler.state
            try:
                session.save(self._file, self._dialogue.decoder, self._conversation)
            except RunError as error:
                # What is being said, or went wrong, matters more.
                print(f"chat: {error}", file=sys.stderr)


if __name__ == "__main__":
    options.run("chat", main)
