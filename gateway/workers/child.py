"""One worker process as the supervisor has it, from its start to its end.

start --> (lines, sockets inherited) --> ready --> ... --> line ends --> reaped, its open rows closed --> gone
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from billing.ledger_service import LedgerService
from gateway.log_lines import LOGGER
from gateway.team.line import Line
from gateway.team.messages import Crew, Drained, Farewell, Note, Question, Ready, Replaced, Reply, Terms

_LOOK_S = 0.01
_ENDS_S = 5.0
"""A process whose line has ended ends within this, or is killed."""


@dataclass(frozen=True, slots=True)
class Keeper:
    """What a child needs of its supervisor: the ledger, answers to what it asks, an ear for its coming and going."""

    ledger: LedgerService
    answer: Callable[["Child", Question], Awaitable[Sequence[Reply]]]
    changed: Callable[[], None]
    farewell: Callable[["Child", bytes], None]
    drained: Callable[[Drained], None]
    all_drained: Callable[[], Drained]


class Child:
    """Started when made; raises `OSError` where it cannot be. `run` ends with it."""

    def __init__(self, terms: Terms, listening: Sequence[socket.socket], keeper: Keeper) -> None:
        self.slot, self.number = terms.slot, terms.number
        self.is_ready = asyncio.Event()
        self.gone = asyncio.Event()
        self.stopping = False
        """Whether it was told to stop, so that its end is no failure."""
        self._keeper = keeper
        (line, its_line), (self._ledger_line, its_ledger) = socket.socketpair(), socket.socketpair()
        self.line = Line(line, lambda question: keeper.answer(self, question), self._heard)
        self.line.say(terms)
        inherited = [one.fileno() for one in (its_line, its_ledger, *listening)]
        try:
            # No process of asyncio's: see `prefix_index.embedded`. A session of its own, since Ctrl-C at the terminal
            # is for the supervisor, which tells the workers when to stop.
            self._process = subprocess.Popen(  # noqa: S603 - our own words
                [sys.executable, "-P", "-m", "gateway.workers.process", *map(str, inherited)],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path or "." for path in sys.path)},
                stdin=subprocess.DEVNULL,
                pass_fds=inherited,
                start_new_session=True,
            )
        finally:
            its_line.close()
            its_ledger.close()

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    @property
    def status(self) -> int | None:
        """How the process ended, below 0 by a signal; None while it runs."""
        return self._process.returncode

    def stop(self) -> None:
        """Have it finish what it has begun, and end."""
        self.stopping = True
        self._signal(signal.SIGTERM)

    def replaced(self) -> None:
        """As `stop`: another one takes connections from the same sockets already."""
        self.stopping = True
        self.line.say(Replaced())

    def kill(self) -> None:
        """End it now."""
        self.stopping = True
        self._signal(signal.SIGKILL)

    async def run(self) -> None:
        """Serve its lines until the process is gone, and what it left open in the ledger is closed."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._keeper.ledger.serve(self._ledger_line))
                await self.line.run()
                await self._reaped()
                self._is_gone()
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()  # it cannot refuse; a few milliseconds
            self._is_gone()

    def tell(self, crew: Crew) -> None:
        """How many workers there are."""
        self.line.say(crew)

    def _is_gone(self) -> None:
        if not self.gone.is_set():
            self.gone.set()
            self._keeper.changed()

    def _signal(self, number: signal.Signals) -> None:
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def _reaped(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_ENDS_S):
                while self._process.poll() is None:  # noqa: ASYNC110 - no event: see `prefix_index.embedded`
                    await asyncio.sleep(_LOOK_S)
            return
        self._process.kill()
        self._process.wait()

    def _heard(self, note: Note) -> None:
        if isinstance(note, Ready):
            self.is_ready.set()
            self.line.say(self._keeper.all_drained())
            LOGGER.info("worker ready", extra={"fields": {"slot": self.slot, "pid": self.pid}})
            self._keeper.changed()
        elif isinstance(note, Farewell):
            self._keeper.farewell(self, note.exposition)
        elif isinstance(note, Drained):
            self._keeper.drained(note)
