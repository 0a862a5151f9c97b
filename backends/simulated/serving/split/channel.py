"""The side channel between two engines: a line of JSON there, a line of JSON back, at a port of the prefill engine."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import msgspec

from backends.simulated.serving.errors import Refused
from backends.simulated.serving.types import Json

ANSWER_WITHIN_S = 120.0
_LINE_BYTES = 1 << 24


class Channel:
    """Questions by name, and who answers them. A `Refused` of theirs is raised again where it was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, Callable[[Json], Awaitable[Json]]] = {}
        self.host = ""
        self.port = 0

    async def serve(self, host: str, port: int) -> asyncio.Server:
        """Listen; port 0 takes any free one. The caller closes it."""
        server = await asyncio.start_server(self._answer, host, port, limit=_LINE_BYTES)
        self.host, self.port = server.sockets[0].getsockname()[:2]
        return server

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, ValueError):  # who asked has died, or sends no line of JSON
            asked = msgspec.json.decode(await reader.readline(), type=Json)
            try:
                said: Json = {"told": await self.answers.get(str(asked.get("ask")), _nobody)(asked)}
            except Refused as refused:
                said = {"refused": refused.message}
            writer.write(msgspec.json.encode(said) + b"\n")
            await writer.drain()
        writer.close()


async def _nobody(asked: Json) -> Json:
    raise Refused(500, f"nobody answers {asked.get('ask')!r} here")


async def ask(host: str, port: int, question: Json) -> Json:
    """What the engine at that port says. Raises `Refused` where it refuses, is not there, or says nothing."""
    try:
        async with asyncio.timeout(ANSWER_WITHIN_S):
            reader, writer = await asyncio.open_connection(host, port, limit=_LINE_BYTES)
            try:
                writer.write(msgspec.json.encode(question) + b"\n")
                said = msgspec.json.decode(await reader.readline(), type=Json)
            finally:
                writer.close()
    except (OSError, ValueError, TimeoutError) as error:
        raise Refused(
            500, f"KV transfer failed: no answer from {host}:{port}: {error}", kind="InternalServerError"
        ) from None
    told = said.get("told")
    if not isinstance(told, dict):
        raise Refused(500, f"KV transfer failed: {said.get('refused')}", kind="InternalServerError")
    return told
