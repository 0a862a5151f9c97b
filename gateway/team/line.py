"""One end of the line between a worker and its supervisor: notes and questions, both ways, on one socket.

    say   --> note                      --> the other end's `heard`
    ask   --> Asked 7  --> `answer`, in a task of its own --> Answered 7 --> the future

The line ends when either process does, however it ends. Frames are those of `billing.ledger_frames`.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import count

from billing.ledger_frames import FrameReader, framed
from gateway.log_lines import LOGGER
from gateway.team.messages import Answered, Asked, Note, Question, Reply, decode, encode

_READ_BYTES = 1 << 18


class Line:
    """`answer` is asked what the other end asks, `heard` is told what it says. Raises nothing but what `run` does."""

    def __init__(
        self,
        end: socket.socket,
        answer: Callable[[Question], Awaitable[Sequence[Reply]]],
        heard: Callable[[Note], None],
    ) -> None:
        self._end = end
        self._answer = answer
        self._heard = heard
        self._unsent: list[bytes] = []
        self._writer: asyncio.StreamWriter | None = None
        self._numbers = count(1)
        self._asked: dict[int, asyncio.Future[list[Reply]]] = {}
        self._is_down = False

    def say(self, note: Note) -> None:
        """Tell the other end, if it is there."""
        self._send(encode(note))

    async def ask(self, question: Question, within_s: float) -> list[Reply]:
        """What the other end answers; nothing where it is gone, or is not done in time."""
        if self._is_down:
            return []
        number = next(self._numbers)
        future: asyncio.Future[list[Reply]] = asyncio.get_running_loop().create_future()
        self._asked[number] = future
        self._send(encode(Asked(number, question)))
        try:
            async with asyncio.timeout(within_s):
                return await future
        except TimeoutError:
            return []
        finally:
            del self._asked[number]

    async def run(self) -> None:
        """Hear and answer until the other end is gone."""
        reader, self._writer = await asyncio.open_unix_connection(sock=self._end)
        for payload in self._unsent:
            self._writer.write(payload)
        frames = FrameReader()
        try:
            async with asyncio.TaskGroup() as group:
                while data := await _read(reader):
                    for payload in frames.feed(data):
                        self._take(payload, group)
        finally:
            self._is_down = True
            self._writer.close()
            for future in self._asked.values():
                if not future.done():
                    future.set_result([])

    async def close(self, within_s: float) -> None:
        """End the line once what was said has been sent, or cannot be."""
        if self._writer is not None:
            self._writer.close()
            with suppress(ConnectionError, TimeoutError):
                async with asyncio.timeout(within_s):
                    await self._writer.wait_closed()

    def _take(self, payload: bytes, group: asyncio.TaskGroup) -> None:
        message = decode(payload)
        if isinstance(message, Asked):
            group.create_task(self._serve(message))
        elif isinstance(message, Answered):
            future = self._asked.get(message.number)
            if future is not None and not future.done():
                future.set_result(message.replies)
        else:
            self._heard(message)

    async def _serve(self, asked: Asked) -> None:
        replies: list[Reply] = []
        try:
            replies = list(await self._answer(asked.question))
        except Exception:  # noqa: BLE001 - the guard of the line: who asks is told that there is no answer
            LOGGER.exception("a question of another worker was not answered")
        self._send(encode(Answered(asked.number, replies)))

    def _send(self, payload: bytes) -> None:
        if self._writer is None:
            self._unsent.append(framed(payload))
        elif not self._is_down:
            self._writer.write(framed(payload))


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(_READ_BYTES)
    except ConnectionError:
        return b""
