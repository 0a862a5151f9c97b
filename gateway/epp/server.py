"""The gateway as an endpoint picker: its pages over HTTP as always, and ext-proc over gRPC.

SIGTERM --> /ready 503, health NOT_SERVING --> limits.drain_notice_s --> no new streams, those open have
            limits.drain_s --> as `prefixgate serve`
"""

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

import grpc

from gateway.app import Gateway
from gateway.config import Config, ConfigInvalid
from gateway.edge.error_shapes import error_body
from gateway.epp.certificates import credentials_of
from gateway.epp.errors import EppError, ModeUnsupported
from gateway.epp.health import Health, add_to
from gateway.epp.messages import SERVICE, parse, read, serialize
from gateway.epp.picking import EnvoyPlane
from gateway.epp.replies import Replies
from gateway.epp.stream import CURRENT, Stream, StreamOptions
from gateway.epp.types import BodyMode, Modes
from gateway.epp_config import Epp
from gateway.epp_metrics import EppMetrics
from gateway.errors import NotFound
from gateway.log_lines import LOGGER
from gateway.serving import Server, server_config
from gateway.wire import Message

MiB: Final = 1 << 20
MOST_MESSAGE_BYTES: Final = 64 * MiB
"""Of one message at least: a gateway that buffers sends a body as a whole, and an answer too."""
_SPARE_BYTES: Final = MiB
_KEEPALIVE_MS: Final = 20_000
_OPERATORS: Final = ("/admin", "/metrics", "/health", "/ready")
"""Pages that are not for those who come through the gateway in front; the dashboard is another."""


class Processor:
    """`envoy.service.ext_proc.v3.ExternalProcessor`. `app` serves what comes, but for pages at or under `hidden`."""

    def __init__(
        self, app: Gateway, hidden: tuple[str, ...], plane: EnvoyPlane, options: StreamOptions, metrics: EppMetrics
    ) -> None:
        self._app = app
        self._hidden = tuple(f"{path}/" for path in hidden)
        self._plane = plane
        self._options = options
        self._metrics = metrics
        self._complained = False

    async def process(self, messages: AsyncIterator[object], context: Any) -> None:
        """One request, from its head to the end of its answer."""
        replies = Replies()
        stream = Stream(replies, self._options, self._plane.unseen)
        failure: EppError | None = None
        self._metrics.open.inc()
        try:
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(self._read(messages, stream, group))
                try:
                    await replies.drain(context.write)
                except EppError as error:
                    failure = error
                except asyncio.CancelledError:  # the gateway in front is done with us, or the client left
                    stream.ends()
                    replies.close()
                reading.cancel()
        finally:
            self._metrics.open.dec()
            self._metrics.streams(stream.outcome if failure is None else "broken").inc()
        if failure is not None:
            self._complain(failure)
            is_setting = isinstance(failure, ModeUnsupported)
            code = grpc.StatusCode.FAILED_PRECONDITION if is_setting else grpc.StatusCode.INVALID_ARGUMENT
            await context.abort(code, str(failure))

    async def _read(self, messages: AsyncIterator[object], stream: Stream, group: asyncio.TaskGroup) -> None:
        try:
            serving = False
            async for message in messages:
                stream.take(read(message))
                if not serving:
                    serving = True
                    group.create_task(self._serve(stream))
                await stream.room()
        except EppError as error:
            stream.leave()
            stream.replies.fail(error)
            return
        stream.ends()
        if not serving or stream.is_passing or stream.is_said:  # what is still waited for does not come
            stream.replies.close()

    async def _serve(self, stream: Stream) -> None:
        CURRENT.set(stream)
        scope = stream.scope()
        try:
            if f"{scope['path']}/".startswith(self._hidden):
                _refuse(stream, NotFound(f"there is nothing at {scope['path'][:200]}"), scope["path"])
            else:
                await self._app(scope, _nothing, _nowhere)
        finally:
            stream.application_ended()
            if stream.gone and not stream.is_passing:
                stream.replies.close()

    def _complain(self, error: EppError) -> None:
        """Of a filter that is configured wrongly all requests fail: one line is enough."""
        if not isinstance(error, ModeUnsupported):
            LOGGER.warning("a stream was broken off", extra={"fields": {"why": str(error)}})
        elif not self._complained:
            self._complained = True
            LOGGER.error("the filter of the gateway in front cannot be served", extra={"fields": {"why": str(error)}})


class EppServer(Server):
    """The server of `prefixgate epp`. `address` says where it speaks gRPC once it does, `health_address` where health
    alone."""

    def __init__(self, config: Config, environment: Mapping[str, str], plane: EnvoyPlane) -> None:
        self._gateway = Gateway(config, environment, plane=plane)
        super().__init__(server_config(config, environment, self._gateway))
        plane.counts_with(self._gateway.telemetry.epp)
        self._settings, self._drain_s = config.epp, config.limits.drain_s
        self._most_bytes = max(config.limits.max_body_bytes, MOST_MESSAGE_BYTES) + _SPARE_BYTES
        options = StreamOptions(_assumed(config.epp), config.limits.max_body_bytes)
        hidden = (*_OPERATORS, config.ui.path)
        self._processor = Processor(self._gateway, hidden, plane, options, self._gateway.telemetry.epp)
        self._servers: list[grpc.aio.Server] = []
        self.announces = True
        self.address: str | None = None
        self.health_address: str | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As `Server`, then gRPC. Where that cannot be, nothing stays up."""
        await super().startup(sockets)
        if not self.started:
            return
        try:
            self.address = await self._listen(self._settings.port, secure=True)
            if self._settings.health_port is not None:
                self.health_address = await self._listen(self._settings.health_port, secure=False)
        except (ConfigInvalid, RuntimeError, OSError) as error:
            LOGGER.error("gRPC cannot be served", extra={"fields": {"why": str(error)}})
            self.should_exit, self.started = True, False
            await self.shutdown(sockets)
            return
        if self.announces:
            told = {"url": self.url, "grpc": self.address, "tls": self._settings.tls, "health": self.health_address}
            print(json.dumps(told), file=sys.stdout, flush=True)  # noqa: T201 - the product of the command

    async def _listen(self, port: int, *, secure: bool) -> str:
        """A gRPC server at this port; its address. Only the secured one picks."""
        limits = [
            ("grpc.max_receive_message_length", self._most_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),
            ("grpc.keepalive_time_ms", _KEEPALIVE_MS),  # a gateway whose machine is gone says nothing
            ("grpc.keepalive_timeout_ms", _KEEPALIVE_MS),
            ("grpc.http2.max_pings_without_data", 0),
        ]
        server = grpc.aio.server(options=limits)
        add_to(server, Health(self._is_ready, lambda: self._gateway.stopping))
        if secure:
            method = grpc.stream_stream_rpc_method_handler(self._processor.process, parse, serialize)
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"Process": method}),))
        host = f"[{self._settings.host}]" if ":" in self._settings.host else self._settings.host
        credentials = credentials_of(self._settings) if secure else None
        place = f"{host}:{port}"
        bound = server.add_insecure_port(place) if credentials is None else server.add_secure_port(place, credentials)
        if not bound:
            raise OSError(f"cannot listen at {place}")
        await server.start()
        self._servers.append(server)
        return f"{host}:{bound}"

    async def _stop_accepting(self, sockets: Sequence[socket.socket]) -> None:
        """Streams first: while they end, the pages still tell of them."""
        for server in self._servers:
            await server.stop(self._drain_s)
        await super()._stop_accepting(sockets)

    async def _is_ready(self) -> bool:
        """As `/ready` says."""
        status = 0

        async def send(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)

        await self._gateway({"type": "http", "method": "GET", "path": "/ready", "headers": []}, _nothing, send)
        return status == 200


def _refuse(stream: Stream, error: NotFound, path: str) -> None:
    stream.start(error.status, ((b"content-type", b"application/json"),))
    stream.write(error_body(error, path), more=False)


def _assumed(settings: Epp) -> Modes:
    return Modes(BodyMode[settings.request_body.upper()], BodyMode[settings.response_body.upper()])


async def _nothing() -> Message:
    """All that the application is told goes through the stream."""
    await asyncio.get_running_loop().create_future()
    return {"type": "http.disconnect"}


async def _nowhere(message: Message) -> None:
    """The same of what it says."""
    raise RuntimeError(f"an answer past the stream: {message['type']}")
