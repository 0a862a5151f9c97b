"""A gateway in front that asks the endpoint picker, message by message, as Envoy does; without Envoy.

    async with Front(address) as front: answer = await front.ask("/v1/chat/completions", body)

The engine that is picked is called for real, unless the test says what it answers.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Self

import grpc
import httpx
from envoy.service.ext_proc.v3 import external_processor_pb2 as wire
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as service

from gateway.epp.types import DESTINATION, METADATA, SERVED, SUBSET, SUBSET_METADATA, BodyMode

DUPLEX, STREAMED, BUFFERED, NONE = (
    BodyMode.FULL_DUPLEX_STREAMED,
    BodyMode.STREAMED,
    BodyMode.BUFFERED,
    BodyMode.NONE,
)
Pieces = Sequence[bytes]
Fields = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Ask:
    """One request, and how it is shown. `answers`: what the engine says, None: it is called. `tells_modes`: Envoys that
    are older do not."""

    path: str
    body: bytes
    fields: Fields = field(default_factory=list)
    method: str = "POST"
    request: BodyMode = DUPLEX
    response: BodyMode = DUPLEX
    tells_modes: bool = True
    pieces: Pieces | None = None
    answers: "EngineAnswer | None" = None
    cut_answer: Callable[[bytes], Pieces] = lambda body: [body]
    offered: Sequence[str] | str | None = None
    served: str | None = None
    attributes: dict[str, str] = field(default_factory=dict)
    request_trailers: bool = False
    response_trailers: bool = False


@dataclass(frozen=True, slots=True)
class EngineAnswer:
    """What an engine says."""

    status: int
    fields: Fields
    pieces: Pieces


@dataclass(slots=True)
class Told:
    """What the picker has said: of the request, and of the answer. `immediate`: in place of all."""

    destination: str | None = None
    metadata: str | None = None
    request_set: dict[str, str] = field(default_factory=dict)
    request_removed: list[str] = field(default_factory=list)
    request_body: bytes = b""
    status: int = 0
    set: dict[str, str] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    body: bytes = b""
    immediate: bool = False
    replies: list[str] = field(default_factory=list)


class Broken(Exception):
    """The picker ended the stream."""

    def __init__(self, error: grpc.aio.AioRpcError) -> None:
        super().__init__(f"{error.code()}: {error.details()}")
        self.code = error.code()
        self.details = error.details()


class Call:
    """One stream, by hand. Replies are taken in as they come: what is shown too late breaks the stream here."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.told = Told()
        self._heard: asyncio.Queue[Any] = asyncio.Queue()
        self._hearing = asyncio.ensure_future(self._listen())

    async def _listen(self) -> None:
        try:
            while (reply := await self.stream.read()) is not grpc.aio.EOF:
                self._heard.put_nowait(reply)
            self._heard.put_nowait(None)
        except grpc.aio.AioRpcError as error:
            self._heard.put_nowait(Broken(error))

    async def show(self, message: Any) -> None:
        """Say this; nothing where the picker has said all it has to say."""
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await self.stream.write(message)

    async def close(self) -> None:
        """Show nothing more."""
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await self.stream.done_writing()

    async def leave(self) -> None:
        """Break it off, whatever was said."""
        self._hearing.cancel()
        self.stream.cancel()
        await asyncio.gather(self._hearing, return_exceptions=True)

    async def hear(self, within_s: float = 20) -> Any:
        """The next reply; None at the end."""
        async with asyncio.timeout(within_s):
            reply = await self._heard.get()
        if isinstance(reply, Broken):
            raise reply
        if reply is not None:
            self.told.replies.append(reply.WhichOneof("response"))
        return reply


class Front:
    """One connection to a picker at this address."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.aio.insecure_channel(
            address.replace("0.0.0.0", "127.0.0.1"), options=[("grpc.use_local_subchannel_pool", 1)]
        )
        self._stub = service.ExternalProcessorStub(self._channel)
        self._engines = httpx.AsyncClient(timeout=30, verify=False, limits=httpx.Limits(max_connections=None))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._engines.aclose()
        await self._channel.close()

    @property
    def channel(self) -> Any:
        return self._channel

    @asynccontextmanager
    async def call(self) -> AsyncIterator[Call]:
        call = Call(self._stub.Process())
        try:
            yield call
        finally:
            await call.leave()

    async def ask(self, path: str, body: bytes = b"", **how: Any) -> Told:
        """The whole way of one request."""
        ask = Ask(path, body, **how)
        async with self.call() as call:
            told = call.told
            await self._request(call, ask)
            if told.immediate:
                return told
            answer = ask.answers or await _called(self._engines, told, ask)
            await self._answer(call, ask, answer)
            return told

    async def _request(self, call: Call, ask: Ask) -> None:
        await call.show(request_head(ask))
        told, pieces = call.told, ask.pieces if ask.pieces is not None else [ask.body]
        if ask.method == "GET":
            _note_request(told, await call.hear())
            return
        if ask.request is BUFFERED:
            _note_request(told, await call.hear())
            if told.immediate:
                return
            await call.show(body_message(ask.body, request=True, ends=not ask.request_trailers))
            _note_request(told, await call.hear())
            told.request_body = told.request_body or ask.body
            if ask.request_trailers:
                await call.show(wire.ProcessingRequest(request_trailers=wire.HttpTrailers()))
                assert (await call.hear()).WhichOneof("response") == "request_trailers"
            return
        for at, piece in enumerate(pieces):
            ends = at == len(pieces) - 1 and not ask.request_trailers
            await call.show(body_message(piece, request=True, ends=ends))
        if ask.request_trailers:
            await call.show(wire.ProcessingRequest(request_trailers=wire.HttpTrailers()))
        last = False
        while not last and not told.immediate:
            last = _note_request(told, await call.hear())

    async def _answer(self, call: Call, ask: Ask, answer: EngineAnswer) -> None:
        told = call.told
        told.status = answer.status
        pieces = answer.pieces
        await call.show(answer_head(answer, ask, ends=not pieces))
        if ask.response is NONE:
            _note_answer(told, await call.hear())
            return
        if ask.response is BUFFERED or not pieces:
            _note_answer(told, await call.hear())
            if pieces and not told.immediate:
                whole = b"".join(pieces)
                await call.show(body_message(whole, request=False, ends=not ask.response_trailers))
                _note_answer(told, await call.hear())
        elif ask.response is STREAMED:
            _note_answer(told, await call.hear())
            for at, piece in enumerate(pieces):
                if told.immediate:
                    return
                await call.show(body_message(piece, request=False, ends=at == len(pieces) - 1))
                _note_answer(told, await call.hear())
        else:
            for at, piece in enumerate(pieces):
                ends = at == len(pieces) - 1 and not ask.response_trailers
                await call.show(body_message(piece, request=False, ends=ends))
            if ask.response_trailers:
                await call.show(wire.ProcessingRequest(response_trailers=wire.HttpTrailers()))
            while not told.immediate and not _note_answer(told, await call.hear()):
                pass
            return
        if ask.response_trailers and not told.immediate:
            await call.show(wire.ProcessingRequest(response_trailers=wire.HttpTrailers()))
            _note_answer(told, await call.hear())


def request_head(ask: Ask) -> Any:
    """The first message."""
    message = wire.ProcessingRequest()
    fields = [(":method", ask.method), (":path", ask.path), (":scheme", "http"), (":authority", "front"), *ask.fields]
    if ask.body:
        fields.append(("content-length", str(len(ask.body))))
    for name, value in fields:
        message.request_headers.headers.headers.add(key=name, raw_value=value.encode("latin-1"))
    message.request_headers.end_of_stream = ask.method == "GET"
    if ask.tells_modes:
        message.protocol_config.request_body_mode = ask.request.value
        message.protocol_config.response_body_mode = ask.response.value
    if isinstance(ask.offered, str):
        message.metadata_context.filter_metadata[SUBSET_METADATA].update({SUBSET: ask.offered})
    elif ask.offered is not None:
        message.metadata_context.filter_metadata[SUBSET_METADATA].update({SUBSET: list(ask.offered)})
    return message


def body_message(data: bytes, *, request: bool, ends: bool) -> Any:
    """A part of a body."""
    body = wire.HttpBody(body=data, end_of_stream=ends)
    return wire.ProcessingRequest(request_body=body) if request else wire.ProcessingRequest(response_body=body)


def answer_head(answer: EngineAnswer, ask: Ask, *, ends: bool) -> Any:
    """The head of an answer."""
    message = wire.ProcessingRequest()
    for name, value in [(":status", str(answer.status)), *answer.fields]:
        message.response_headers.headers.headers.add(key=name, raw_value=value.encode("latin-1"))
    message.response_headers.end_of_stream = ends
    if ask.served is not None:
        message.metadata_context.filter_metadata[METADATA].update({SERVED: ask.served})
    if ask.attributes:
        message.attributes["envoy.filters.http.ext_proc"].update(ask.attributes)
    return message


def _note_request(told: Told, reply: Any) -> bool:
    """Whether this was the last of the request."""
    kind = reply.WhichOneof("response")
    if kind == "immediate_response":
        _note_immediate(told, reply.immediate_response)
        return True
    if kind == "request_trailers":
        return True
    common = (reply.request_headers if kind == "request_headers" else reply.request_body).response
    for option in common.header_mutation.set_headers:
        told.request_set[option.header.key] = option.header.raw_value.decode("latin-1")
    told.request_removed += common.header_mutation.remove_headers
    told.destination = told.request_set.get(DESTINATION, told.destination)
    if METADATA in reply.dynamic_metadata.fields:
        told.metadata = reply.dynamic_metadata.fields[METADATA].struct_value.fields[DESTINATION].string_value
    streamed = common.body_mutation.streamed_response
    told.request_body += streamed.body or common.body_mutation.body
    return bool(streamed.end_of_stream)


def _note_answer(told: Told, reply: Any) -> bool:
    """Whether this was the last of the answer."""
    if reply is None:
        return True
    kind = reply.WhichOneof("response")
    if kind == "immediate_response":
        _note_immediate(told, reply.immediate_response)
        return True
    if kind == "response_trailers":
        return True
    common = (reply.response_headers if kind == "response_headers" else reply.response_body).response
    for option in common.header_mutation.set_headers:
        told.set[option.header.key] = option.header.raw_value.decode("latin-1")
    told.removed += common.header_mutation.remove_headers
    told.status = int(told.set.get(":status", told.status))
    streamed = common.body_mutation.streamed_response
    told.body += streamed.body or common.body_mutation.body
    return bool(streamed.end_of_stream)


def _note_immediate(told: Told, answer: Any) -> None:
    told.immediate = True
    told.status = answer.status.code
    told.set = {option.header.key: option.header.raw_value.decode("latin-1") for option in answer.headers.set_headers}
    told.body = answer.body


async def _called(client: httpx.AsyncClient, told: Told, ask: Ask) -> EngineAnswer:
    """The engine that was picked, asked for real: with the head as it is to be, and the body."""
    assert told.destination is not None
    fields = {name: value for name, value in ask.fields if name not in told.request_removed}
    fields |= {name: value for name, value in told.request_set.items() if not name.startswith(":")}
    path = told.request_set.get(":path", ask.path)
    url = f"http://{told.destination.partition(',')[0]}{path}"
    answer = await client.request(ask.method, url, content=told.request_body, headers=fields)
    kept = [(name, value) for name, value in answer.headers.items() if name not in ("transfer-encoding", "connection")]
    return EngineAnswer(answer.status_code, kept, ask.cut_answer(answer.content))


def with_status(answer: EngineAnswer, status: int) -> EngineAnswer:
    """The same under another status."""
    return replace(answer, status=status)
