"""The routes that generate: chat and text completions, whole or streamed, and the client that leaves early."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from uuid import uuid4

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from backends.reference import answers
from backends.reference.apart import Transfers
from backends.reference.delta_queue import DeltaQueue, generating
from backends.reference.engine import Engine
from backends.reference.errors import EngineStopped
from backends.reference.service import Service
from backends.reference.tool_calls import ForcedCall, forced_call
from backends.reference.types import Delta, FinishReason, GenerationRequest, Receipt, RequestId
from backends.reference.wire import (
    ChatBody,
    CompletionBody,
    GenerationFields,
    KvTransferParams,
    StreamOptions,
    generation_request,
    parse_body,
    scores_prompt,
)

Keep = Callable[[Receipt], Awaitable[KvTransferParams]]
"""Keeps a prompt that was computed for another engine."""

INTERRUPTED = (FinishReason.ABORT, FinishReason.ERROR)


async def chat_completions(request: Request) -> Response:
    """`POST /v1/chat/completions`."""
    service: Service = request.app.state.service
    body = parse_body(await request.body(), ChatBody)
    service.check_model(body.model)
    call = forced_call(body.tools, body.tool_choice)
    prompt = await asyncio.to_thread(service.render, body)
    return await _answer(request, service, body, [prompt], call)


async def completions(request: Request) -> Response:
    """`POST /v1/completions`."""
    service: Service = request.app.state.service
    body = parse_body(await request.body(), CompletionBody)
    service.check_model(body.model)
    prompts = await asyncio.to_thread(service.prompts_of, body)
    return await _answer(request, service, body, prompts, None)


async def _answer(
    request: Request, service: Service, body: GenerationFields, prompts: list[list[int]], call: ForcedCall | None
) -> Response:
    chat = isinstance(body, ChatBody)
    unique = uuid4().hex
    wanted = [
        generation_request(body, prompt, RequestId(f"{unique}-{choice}"), service.engine.max_model_len)
        for choice, prompt in enumerate(prompts)
    ]
    if call is not None:
        wanted = [call.bounded(one) for one in wanted]
    answer = answers.Answer(
        id=f"{'chatcmpl' if chat else 'cmpl'}-{request.headers.get('x-request-id') or unique[:16]}",
        created=int(time.time()),
        model=service.model,
        chat=chat,
        prompts=[one.prompt_tokens for one in wanted] if body.return_token_ids else None,
        call=call,
    )
    if service.engine.ended is not None:
        raise EngineStopped(service.engine.ended)
    if scores_prompt(body):
        answer = replace(answer, scores=[await _scores(service.engine, one.prompt_tokens) for one in wanted])
    keep: Keep | None = None
    if service.transfers is not None and body.kv_transfer_params is not None and len(wanted) == 1:
        answer, keep = await _apart(request, service.transfers, body.kv_transfer_params, wanted[0], answer)
    if body.stream:
        return EventStream(service.engine, wanted, answer, body.stream_options or StreamOptions())
    with generating(service.engine, wanted) as deltas:
        return await _unless_disconnected(request.receive, lambda: _whole(deltas, answer, keep))


async def _scores(engine: Engine, tokens: tuple[int, ...]) -> list[tuple[int, float]]:
    told = await asyncio.wrap_future(engine.score(tokens))
    return list(zip(tokens[1:], told, strict=True))


async def _apart(
    request: Request,
    transfers: Transfers,
    params: KvTransferParams,
    wanted: GenerationRequest,
    answer: answers.Answer,
) -> tuple[answers.Answer, Keep | None]:
    """A request whose prompt another engine has computed, or whose answer another will write: the answer as it is told
    then, and what keeps the prompt."""
    if await transfers.fetch(wanted, params):
        return replace(answer, cached_tokens=params.remote_prefill_cached_tokens), None
    if not transfers.is_to_keep(params):
        return answer, None
    host, port = request.scope["server"]
    return answer, lambda receipt: transfers.keep(wanted, receipt.cached_tokens, (host, port))


async def _whole(deltas: DeltaQueue, answer: answers.Answer, keep: Keep | None) -> Response:
    choices = [answers.Choice() for _ in deltas.unfinished]
    while deltas.unfinished:
        index, delta = await deltas.get()
        if delta.finish in INTERRUPTED:
            return json_response(answers.interrupted_body(delta.finish), status=500)
        choices[index].deltas.append(delta)
    last = choices[0].deltas[-1]
    # An answer that is over with its first token leaves nothing to go on with.
    handed = await keep(last.receipt) if keep is not None and last.finish is FinishReason.LENGTH else None
    return json_response(answers.whole(answer, choices, handed))


class EventStream(Response):
    """A streamed answer. It watches for the client to leave, also while the prompt is computed and nothing is sent."""

    media_type = "text/event-stream"

    def __init__(
        self, engine: Engine, requests: list[GenerationRequest], answer: answers.Answer, options: StreamOptions
    ) -> None:
        self.status_code = 200
        self.init_headers({"cache-control": "no-cache"})
        self._engine = engine
        self._requests = requests
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

        with generating(self._engine, self._requests) as deltas:
            await _unless_disconnected(receive, pump)

    async def _events(self, deltas: DeltaQueue) -> AsyncIterator[bytes]:
        receipts: dict[int, Receipt] = {}
        while deltas.unfinished:
            index, delta = await deltas.get()
            if delta.finish in INTERRUPTED:
                yield answers.event(answers.interrupted_body(delta.finish))
                yield answers.DONE
                return
            if self._answer.chat and not receipts:
                for chunk in answers.first_chunks(self._answer, self._running_usage(delta, completion_tokens=0)):
                    yield chunk
            receipts[index] = delta.receipt
            yield answers.delta_chunk(self._answer, index, delta, self._running_usage(delta))
        if self._options.include_usage:
            yield answers.usage_chunk(self._answer, receipts.values())
        yield answers.DONE

    def _running_usage(self, delta: Delta, completion_tokens: int | None = None) -> answers.Json:
        if not (self._options.include_usage and self._options.continuous_usage_stats):
            return {}
        receipt = delta.receipt
        if completion_tokens is not None:
            receipt = replace(receipt, completion_tokens=completion_tokens)
        return {"usage": answers.usage([receipt], details=False)}


async def _unless_disconnected(receive: Receive, work: Callable[[], Awaitable[Response]]) -> Response:
    """The result of `work`, which is cancelled when the client leaves first; then the result is never read. Raises what
    `work` raises."""
    finished: list[Response] = []

    async def run() -> None:
        finished.append(await work())
        watcher.cancel()

    async def watch() -> None:
        await receive()  # the body has been read, so this can only be the client leaving
        worker.cancel()

    try:
        async with asyncio.TaskGroup() as group:
            worker = group.create_task(run())
            watcher = group.create_task(watch())
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return finished[0] if finished else Response(status_code=499)


def json_response(body: answers.Json, status: int = 200) -> Response:
    """A JSON body, encoded without spaces."""
    return Response(msgspec.json.encode(body), status_code=status, media_type="application/json")
