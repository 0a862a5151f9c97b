"""A worker's side: what it has in common with the others, and how it asks them.

ledger line   to the process that owns the ledger          (`billing.ledger_client`)
line          to the supervisor, which passes questions on to the others
redis_url     the private Valkey of all workers, where there is one
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from gateway.team.line import Line
from gateway.team.messages import Call, Crew, Drained, Farewell, Healthy, Note, Question, Ready, Replaced, Reply, Terms

PATIENCE_S = 5.0
"""How long the others may take for an answer."""


@dataclass(frozen=True, slots=True)
class Served:
    """What others have of a worker: answers to calls, the text of its metrics, the endpoints that it finds healthy, and
    that it drains one."""

    call: Callable[[Call], Awaitable[Reply]] | None
    text: Callable[[], Awaitable[bytes]]
    healthy: Callable[[], Reply]
    drain: Callable[[str], None]


def leads(team: "Team | None") -> bool:
    """Whether this process does what a gateway does once: it is the only one, or has the first slot.

    While a worker is replaced there may be two of them for a while.
    """
    return team is None or team.leads


class Team:
    """One per worker. `stop` ends it in order: another has its slot, or the supervisor is gone."""

    def __init__(self, line: socket.socket, ledger_line: socket.socket, terms: Terms, stop: Callable[[], None]) -> None:
        self.ledger_line = ledger_line
        self.redis_url = terms.redis_url
        self.leads = terms.slot == 0
        self.crew: Crew | None = None
        """As told last; None until then."""
        self._line = Line(line, self._answer, self._heard)
        self._stop = stop
        self.goes_unannounced = False
        """Whether there is no reason to serve on for a while: another has the slot, or the supervisor is gone."""
        self._served: Served | None = None
        self._leaving = False

    def ready(self) -> None:
        """This worker takes connections."""
        self._line.say(Ready())

    def serve(self, served: Served) -> None:
        """From now on answer the others."""
        self._served = served

    def drained(self, endpoint_id: str, *, draining: bool) -> None:
        """An endpoint gets no new requests, or again: so it is for workers that come later."""
        self._line.say(Drained([endpoint_id], draining))

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
                if self._served is not None:
                    self._line.say(Farewell(await self._served.text()))
                    await self._line.close(PATIENCE_S)
                listening.cancel()

    async def _listen(self) -> None:
        await self._line.run()
        if not self._leaving:
            self.goes_unannounced = True
            self._stop()

    def _heard(self, note: Note) -> None:
        if isinstance(note, Crew):
            self.crew = note
        elif isinstance(note, Drained) and self._served is not None:
            for endpoint_id in note.endpoint_ids:
                self._served.drain(endpoint_id)
        elif isinstance(note, Replaced):
            self.goes_unannounced = True
            self._stop()

    async def _answer(self, question: Question) -> Sequence[Reply]:
        served = self._served
        if served is None:
            return []
        if isinstance(question, Call):
            return [] if served.call is None else [await served.call(question)]
        if isinstance(question, Healthy):
            return [served.healthy()]
        return [Reply(200, b"text/plain", await served.text())]
