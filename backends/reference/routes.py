"""The routes that generate: chat and text completions, whole or streamed, and the client that leaves early."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from uuid import uuid4

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from backends.reference import answers
from backends.reference.chat_template import ChatTemplate
from backends.reference.delta_queue import DeltaQueue, generating
from backends.reference.engine import Engine
from backends.reference.errors import EngineStopped, RequestRefused
from backends.reference.tokenizer import ModelTokenizer
from backends.reference.types import Delta, FinishReason, GenerationRequest, RequestId
from backends.reference.wire import (
    ChatBody,
    CompletionBody,
    GenerationFields,
    StreamOptions,
    check_messages,
    generation_request,
    parse_body,
)

INTERRUPTED = (FinishReason.ABORT, FinishReason.ERROR)


@dataclass(frozen=True, slots=True)
class Service:
    """What the routes need: an engine, and the tokenizer and template of its model."""

    engine: Engine
    tokenizer: ModelTokenizer
    template: ChatTemplate

    @property
    def model(self) -> str:
        """The name clients use."""
        return self.engine.config.served_name

    def check_model(self, model: str | None) -> None:
        """Raises `RequestRefused` (404) for another model than ours; none given means ours."""
        if model is not None and model != self.model:
            message = f"The model `{model}` does not exist. Valid aliases: {self.model}."
            raise RequestRefused(message, param="model", status=404)

    def render(self, body: ChatBody) -> list[int]:
        """Token ids of a chat prompt."""
        check_messages(body.messages)
        text = self.template.render(
            body.messages,
            tools=body.tools,
            add_generation_prompt=body.add_generation_prompt,
            extra=body.chat_template_kwargs,
        )
        return self.tokenizer.encode(text, add_special_tokens=body.add_special_tokens)

    def prompt_of(self, body: CompletionBody) -> list[int]:
        """Token ids of a text prompt: a string, a list of ids, or a list with one of either."""
        prompt: object = body.prompt
        if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
            prompt = prompt[0]
        if isinstance(prompt, str):
            return self.tokenizer.encode(prompt, add_special_tokens=body.add_special_tokens)
        return self.check_token_ids(prompt, "prompt")

    def check_token_ids(self, ids: object, param: str) -> list[int]:
        """`ids` if it is a list of token ids of this model, else `RequestRefused` (400)."""
        vocab = self.engine.shape.vocab
        if not isinstance(ids, list) or not all(type(one) is int and 0 <= one < vocab for one in ids):
            message = f"{param} must be one string or one list of token ids below {vocab}"
            raise RequestRefused(message, param=param)
        return ids


async def chat_completions(request: Request) -> Response:
    """`POST /v1/chat/completions`."""
    service: Service = request.app.state.service
    body = parse_body(await request.body(), ChatBody)
    service.check_model(body.model)
    prompt = await asyncio.to_thread(service.render, body)
    return await _answer(request, service, body, prompt)


async def completions(request: Request) -> Response:
    """`POST /v1/completions`."""
    service: Service = request.app.state.service
    body = parse_body(await request.body(), CompletionBody)
    service.check_model(body.model)
    prompt = await asyncio.to_thread(service.prompt_of, body)
    return await _answer(request, service, body, prompt)


async def _answer(request: Request, service: Service, body: GenerationFields, prompt: list[int]) -> Response:
    chat = isinstance(body, ChatBody)
    unique = uuid4().hex
    wanted = generation_request(body, prompt, RequestId(unique), service.engine.max_model_len)
    answer = answers.Answer(
        id=f"{'chatcmpl' if chat else 'cmpl'}-{request.headers.get('x-request-id') or unique[:16]}",
        created=int(time.time()),
        model=service.model,
        chat=chat,
        prompt_tokens=wanted.prompt_tokens if body.return_token_ids else None,
    )
    if service.engine.ended is not None:
        raise EngineStopped(service.engine.ended)
    if body.stream:
        return EventStream(service.engine, wanted, answer, body.stream_options or StreamOptions())
    with generating(service.engine, wanted) as deltas:
        return await _unless_disconnected(request.receive, lambda: _whole(deltas, answer))


async def _whole(deltas: DeltaQueue, answer: answers.Answer) -> Response:
    texts: list[str] = []
    token_ids: list[int] = []
    while True:
        delta = await deltas.get()
        texts.append(delta.text)
        token_ids.extend(delta.token_ids)
        if delta.finish in INTERRUPTED:
            return json_response(answers.interrupted_body(delta.finish), status=500)
        if delta.finish is not None:
            return json_response(answers.whole(answer, "".join(texts), token_ids, delta))


class EventStream(Response):
    """A streamed answer. It watches for the client to leave, also while the prompt is computed and nothing is sent."""

    media_type = "text/event-stream"

    def __init__(
        self, engine: Engine, request: GenerationRequest, answer: answers.Answer, options: StreamOptions
    ) -> None:
        self.status_code = 200
        self.init_headers({"cache-control": "no-cache"})
        self._engine = engine
        self._request = request
        self._answer = answer
        self._options = options

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream; returns early, with the request aborted, when the client leaves."""

        async def pump() -> Response:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async for event in self._events(deltas):
                await send({"type": "http.response.body", "body": event, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return self

        with generating(self._engine, self._request) as deltas:
            await _unless_disconnected(receive, pump)

    async def _events(self, deltas: DeltaQueue) -> AsyncIterator[bytes]:
        delta = await deltas.get()
        if self._answer.chat:
            yield answers.role_chunk(self._answer, self._running_usage(delta, completion_tokens=0))
        while True:
            if delta.finish in INTERRUPTED:
                yield answers.event(answers.interrupted_body(delta.finish))
                break
            yield answers.delta_chunk(self._answer, delta, self._running_usage(delta))
            if delta.finish is not None:
                break
            delta = await deltas.get()
        if self._options.include_usage and delta.finish not in INTERRUPTED:
            yield answers.usage_chunk(self._answer, delta.receipt)
        yield answers.DONE

    def _running_usage(self, delta: Delta, completion_tokens: int | None = None) -> answers.Json:
        if not (self._options.include_usage and self._options.continuous_usage_stats):
            return {}
        receipt = delta.receipt
        if completion_tokens is not None:
            receipt = replace(receipt, completion_tokens=completion_tokens)
        return {"usage": answers.usage(receipt, details=False)}


async def _unless_disconnected(receive: Receive, work: Callable[[], Awaitable[Response]]) -> Response:
    """The result of `work`, which is cancelled when the client leaves first; then the result is never read."""
    finished: list[Response] = []

    async def run() -> None:
        finished.append(await work())
        watcher.cancel()

    async def watch() -> None:
        await receive()  # the body has been read, so this can only be the client leaving
        worker.cancel()

    async with asyncio.TaskGroup() as group:
        worker = group.create_task(run())
        watcher = group.create_task(watch())
    return finished[0] if finished else Response(status_code=499)


def json_response(body: answers.Json, status: int = 200) -> Response:
    """A JSON body, encoded without spaces."""
    return Response(msgspec.json.encode(body), status_code=status, media_type="application/json")
