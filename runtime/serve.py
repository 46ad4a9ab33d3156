"""Serves a bundle as OpenAI's API does: /v1/chat/completions, streamed or whole, with tools.

    tools/bazelw run //runtime:serve -- --bundle=FOLDER --port=8080

One model serves one request at a time; others wait. It listens on loopback unless told otherwise.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cached_property
from typing import Any

import uvicorn
from absl import flags
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from runtime import openai_api, options, show
from runtime.decoder import Decoder
from runtime.dialogue import Dialogue, Turn
from runtime.errors import RunError
from runtime.functions.constraint import CallConstraint, OnceCalled, Vocabulary
from runtime.functions.grammar import Bounds
from runtime.functions.markers import START_CALL
from runtime.functions.parse import Reply
from runtime.generate import Constraint, Limits
from runtime.prompting import Form
from runtime.sampling import Sampler, Sampling

_HOST = flags.DEFINE_string("host", "127.0.0.1", "The address to listen on.")
_PORT = flags.DEFINE_integer("port", 8080, "The port to listen on; 0 for a free one.")
_MAX_TOKENS = flags.DEFINE_integer("max_tokens", 256, "An answer's length at most, by default.")
_CUT = flags.DEFINE_bool("cut_prompt", False, "Drop the beginning of a prompt that is too long.")
flags.adopt_module_key_flags(options)

# Text, then how it ended.
_Item = str | Exception | Reply

_MAX_BODY = 4 << 20
_MAX_CALLS = 4


class Model:
    """What answers requests, one at a time.

    name: what /v1/models says. sampling, max_tokens: what a request leaves open.
    cut: whether a prompt that is too long loses its beginning.
    """

    def __init__(self, decoder: Decoder, sampling: Sampling, max_tokens: int, cut: bool) -> None:
        self.name = decoder.bundle.name
        self.sampling, self.max_tokens, self._cut = sampling, max_tokens, cut
        self._decoder, self._form = decoder, Form.of(decoder.bundle)
        self._busy = threading.Lock()

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return Vocabulary.of(self._decoder.bundle.tokenizer, self._form.stops)

    def answer(
        self,
        request: openai_api.Request,
        turn: Turn,
        gone: Callable[[], bool],
        said: Callable[[str], None],
    ) -> Reply:
        """Answers a request; `said` gets the text as it comes, where no call can be in it.

        gone: whether whoever asked has left. Raises RunError for what cannot be answered.
        """
        sampler = Sampler(request.sampling)
        dialogue = Dialogue(decoder=self._decoder, sampler=sampler, form=self._form, cut=self._cut)
        prompt = dialogue.prompt(request.messages, request.functions, request.max_tokens)
        constraint = self._constraint(request)
        limits = Limits(max_tokens=request.max_tokens, stops=self._form.stops, interrupted=gone)
        with self._busy:
            texts = []
            for piece in dialogue.pieces(prompt, limits, turn, constraint):
                texts.append(piece)
                if not request.functions:
                    said(piece)
        if not request.functions:
            return Reply("".join(texts), ())
        if turn.stats.finish in ("length", "context"):
            # Half a call is no call.
            return Reply(self._form.shown(turn.tokens), ())
        reply = dialogue.checked(turn, request.functions)
        said(reply.text)
        return reply

    def _constraint(self, request: openai_api.Request) -> Constraint | None:
        if not request.functions:
            return None
        bundle = self._decoder.bundle
        bounds = Bounds(calls=_MAX_CALLS if request.parallel else 1)
        constraint = CallConstraint(self._vocabulary, request.functions, bundle.vocabulary, bounds)
        if request.choice == "required" or START_CALL not in bundle.tokenizer.control:
            return constraint
        return OnceCalled(constraint, bundle.tokenizer)


def application(model: Model) -> Starlette:
    """The server's routes."""

    async def models(_request: HttpRequest) -> Response:
        data = [{"id": model.name, "object": "model", "created": 0, "owned_by": "local"}]
        return JSONResponse({"object": "list", "data": data})

    async def completions(http: HttpRequest) -> Response:
        try:
            request = openai_api.read(await _json(http), model.sampling, model.max_tokens)
            answer = openai_api.Answer(
                identity=uuid.uuid4().hex[:24], created=int(time.time()), model=model.name
            )
            if request.stream:
                return await _streamed(model, request, answer)
            return await _whole(model, request, answer, http)
        except RunError as error:
            return JSONResponse(
                openai_api.error(str(error), "invalid_request_error"), status_code=400
            )

    routes = [
        Route("/v1/models", models),
        Route("/v1/chat/completions", completions, methods=["POST"]),
    ]
    return Starlette(routes=routes, exception_handlers={404: _no_route, 405: _no_route})


async def _json(http: HttpRequest) -> Any:
    body = bytearray()
    async for piece in http.stream():
        body += piece
        if len(body) > _MAX_BODY:
            raise RunError(f"the body has more than {_MAX_BODY} bytes")
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RunError(f"the body is no JSON: {error}") from None


async def _no_route(http: HttpRequest, _error: Exception) -> Response:
    message = (
        f"{http.method} {http.url.path}: there are GET /v1/models and POST /v1/chat/completions"
    )
    return JSONResponse(openai_api.error(message, "invalid_request_error"), status_code=404)


async def _whole(
    model: Model, request: openai_api.Request, answer: openai_api.Answer, http: HttpRequest
) -> Response:
    turn, gone = Turn(), threading.Event()
    async with _noticed(http, gone):
        reply = await run_in_threadpool(
            model.answer, request, turn, gone.is_set, lambda _piece: None
        )
    return JSONResponse(answer.whole(reply.text, reply.calls, turn.stats))


@asynccontextmanager
async def _noticed(http: HttpRequest, gone: threading.Event) -> AsyncIterator[None]:
    """Sets `gone` when the client leaves before the block ends."""

    async def wait() -> None:
        while not await http.is_disconnected():
            await asyncio.sleep(0.1)
        gone.set()

    task = asyncio.create_task(wait())
    try:
        yield
    finally:
        task.cancel()


async def _streamed(
    model: Model, request: openai_api.Request, answer: openai_api.Answer
) -> Response:
    """An event stream, or an error before it has begun."""
    loop, queue = asyncio.get_running_loop(), asyncio.Queue[_Item]()
    turn, gone = Turn(), threading.Event()

    def put(item: _Item) -> None:
        loop.call_soon_threadsafe(queue.put_nowait, item)

    def work() -> None:
        try:
            put(model.answer(request, turn, gone.is_set, put))
        except Exception as error:
            put(error)

    task = asyncio.create_task(run_in_threadpool(work))
    first: _Item = await queue.get()
    if isinstance(first, Exception):
        raise first

    async def events() -> AsyncIterator[str]:
        try:
            yield _event(answer.piece({"role": "assistant", "content": ""}))
            item: _Item = first
            while isinstance(item, str):
                if item:
                    yield _event(answer.piece({"content": item}))
                item = await queue.get()
            for last in _last(item, request, answer, turn):
                yield _event(last)
            yield "data: [DONE]\n\n"
        finally:
            gone.set()
            await task

    return StreamingResponse(events(), media_type="text/event-stream")


def _last(
    item: Exception | Reply, request: openai_api.Request, answer: openai_api.Answer, turn: Turn
) -> list[dict[str, Any]]:
    """What a stream ends with: its calls, why it ended and what it cost, or an error."""
    if isinstance(item, Exception):
        message = str(item) if isinstance(item, RunError) else "the server failed"
        return [openai_api.error(message, "server_error")]
    pieces = [answer.called(item.calls)] if item.calls else []
    pieces.append(answer.last(item.calls, turn.stats))
    return [*pieces, answer.cost(turn.stats)] if request.usage else pieces


def _event(content: Any) -> str:
    return f"data: {json.dumps(content, ensure_ascii=False)}\n\n"


def main(_arguments: list[str]) -> int:
    """Opens the bundle and serves until it is stopped."""
    sampling = options.sampling()
    bundle = options.open_bundle()
    show.note(f"loading {bundle.name}…")
    with options.open_decoder(bundle) as decoder:
        app = application(Model(decoder, sampling, _MAX_TOKENS.value, _CUT.value))
        uvicorn.run(app, host=_HOST.value, port=_PORT.value, log_level="info")
    return 0


if __name__ == "__main__":
    options.run("serve", main)
