"""A worker's side: what it has in common with the others, and how it asks them.

ledger line   to the process that owns the ledger          (`billing.ledger_client`)
line          to the supervisor, which passes questions on to the others
redis_url     the private Valkey of all workers, where there is one
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from gateway.team.line import Line
from gateway.team.messages import Call, Crew, Farewell, Note, Question, Ready, Reply, Terms

PATIENCE_S = 5.0
"""How long the others may take for an answer."""

ServeCall = Callable[[Call], Awaitable[Reply]]
MakeText = Callable[[], Awaitable[bytes]]


class Team:
    """One per worker. `on_gone` is called where the supervisor is gone: there is nothing more to serve for."""

    def __init__(
        self, line: socket.socket, ledger_line: socket.socket, terms: Terms, on_gone: Callable[[], None]
    ) -> None:
        self.ledger_line = ledger_line
        self.redis_url = terms.redis_url
        self.crew: Crew | None = None
        """As told last; None until then."""
        self._line = Line(line, self._answer, self._heard)
        self._on_gone = on_gone
        self._serve_call: ServeCall | None = None
        self._text: MakeText | None = None
        self._leaving = False

    def ready(self) -> None:
        """This worker takes connections."""
        self._line.say(Ready())

    def serve(self, call: ServeCall, text: MakeText) -> None:
        """From now on answer the others: calls, and the text of our metrics."""
        self._serve_call, self._text = call, text

    async def ask(self, question: Question) -> list[Reply]:
        """What the others answer, each that can; of `Metrics`, one answer for all of them and us."""
        return await self._line.ask(question, PATIENCE_S)

    @asynccontextmanager
    async def joined(self) -> AsyncIterator[None]:
        """On the line while inside; at the end the supervisor is told our metrics as they are then."""
        async with asyncio.TaskGroup() as group:
            listening = group.create_task(self._listen())
            try:
                yield
            finally:
                self._leaving = True
                if self._text is not None:
                    self._line.say(Farewell(await self._text()))
                    await self._line.close(PATIENCE_S)
                listening.cancel()

    async def _listen(self) -> None:
        await self._line.run()
        if not self._leaving:
            self._on_gone()

    def _heard(self, note: Note) -> None:
        if isinstance(note, Crew):
            self.crew = note

    async def _answer(self, question: Question) -> Sequence[Reply]:
        if isinstance(question, Call):
            return [] if self._serve_call is None else [await self._serve_call(question)]
        return [] if self._text is None else [Reply(200, b"text/plain", await self._text())]
