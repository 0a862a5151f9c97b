"""The supervisor: what workers share is its, and it keeps them. See `gateway/workers/__init__.py` for the picture.

start    ledger, private Valkey, sockets --> a worker in each slot --> all ready --> its address is announced
SIGTERM  no more connections --> workers finish what they have begun --> ledger, Valkey --> end
         a second time: workers are killed
"""

import asyncio
import errno
import json
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from itertools import count

import uvloop

from billing.ledger_service import LedgerService
from billing.prices.live import LivePrices
from gateway.app import STARTUP_ERRORS
from gateway.config import Config
from gateway.exchange import Clocks
from gateway.index_setup import private_redis_url
from gateway.ledger_setup import owned_ledger
from gateway.log_lines import LOGGER
from gateway.price_pages import log_reload, watch_prices
from gateway.team.messages import Crew, Drained, Terms
from gateway.team_admin import PRICES_RELOAD
from gateway.workers.asking import Asking, SupervisorMetrics
from gateway.workers.child import Child, Keeper
from gateway.workers.listening import CannotListen, Listening
from gateway.workers.reloading import taken_over
from gateway.workers.slot import Slot, first_of

BIND_S = 5.0
"""How long the address may be taken: by the workers of a supervisor that was killed, until they have noticed."""
BEYOND_DRAIN_S = 30.0
"""What a worker may take beyond the limits of its drain: what was cut is counted and settled."""


def supervise(config: Config, environment: Mapping[str, str], read: Callable[[], Config]) -> bool:
    """Serve with workers until SIGTERM or Ctrl-C. False where it never started, or a part of it broke.

    `read` gives the configuration as it is now, and raises what is in `STARTUP_ERRORS` where that cannot be used.
    """
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(Supervisor(config, environment, read).run())
    except STARTUP_ERRORS as error:
        LOGGER.error("the gateway did not start: %s", error)
        return False


class Supervisor:
    """One per gateway of several workers."""

    def __init__(self, config: Config, environment: Mapping[str, str], read: Callable[[], Config]) -> None:
        self._config = config
        self._environment = environment
        self._read = read
        self._numbers = count(1)
        self._redis_url: str | None = None
        self._listening: Listening | None = None
        self._slots: list[Slot] = []
        self._children: set[Child] = set()
        self._drained: set[str] = set()
        self._stop = asyncio.Event()
        self._kill = asyncio.Event()
        self._reload = asyncio.Event()
        self._metrics = SupervisorMetrics(self._crew)
        self._asking = Asking(self._children, self._metrics, {PRICES_RELOAD: self._reload_prices})
        self._prices: LivePrices | None = None

    async def run(self) -> bool:
        """Until it is told to stop. Raises what is in `STARTUP_ERRORS`."""
        config = self._config
        self._heed_signals()
        async with AsyncExitStack() as stack:
            listening = self._listening = await _bound(config)
            stack.callback(listening.close)
            self._redis_url = await private_redis_url(config, stack)
            prices = self._prices = LivePrices(config.prices_file, Clocks().wall)
            ledger = await stack.enter_async_context(owned_ledger(config, self._environment, prices))
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(watch_prices(prices, config.poll_interval_s))
                keeper = Keeper(
                    LedgerService(ledger),
                    self._asking.answer,
                    changed=self._tell_crew,
                    farewell=self._farewell,
                    drained=self._note_drained,
                    all_drained=lambda: Drained(sorted(self._drained), draining=True),
                )
                self._slots = [
                    Slot(number, self._starter(number, keeper, group), partial(listening.let_go, number))
                    for number in range(config.workers)
                ]
                served = await self._serve(group)
                watching.cancel()
        return served

    async def _serve(self, group: asyncio.TaskGroup) -> bool:
        """Start all workers, keep them until told to stop, and until they have."""
        stopping = group.create_task(self._stop_when_told())
        begun = await asyncio.gather(*(slot.begin() for slot in self._slots))
        told = self._stop.is_set()
        if all(begun) and not told:
            print(json.dumps({"url": self._sockets.url}), file=sys.stdout, flush=True)  # noqa: T201 - the product
            reloading = group.create_task(self._reload_when_told())
            await asyncio.gather(*(slot.keep() for slot in self._slots))
            reloading.cancel()
        self._stop.set()
        await asyncio.gather(*(child.gone.wait() for child in self._children))
        stopping.cancel()
        statuses = [slot.child.status if slot.child is not None else None for slot in self._slots]
        LOGGER.info("stopped", extra={"fields": {"workers": statuses}})
        return all(begun) or told

    async def _stop_when_told(self) -> None:
        """Have workers finish; end those that take too long, or all once told again."""
        await self._stop.wait()
        self._sockets.close()
        for slot in self._slots:
            slot.stop()
        await first_of(self._kill, timeout_s=self._drained_within_s)
        for child in self._children:
            child.kill()

    @property
    def _drained_within_s(self) -> float:
        limits = self._config.limits
        return limits.drain_notice_s + limits.close_idle_s + limits.drain_s + BEYOND_DRAIN_S

    async def _reload_when_told(self) -> None:
        """Take over the configuration as it is now, each time we are told to, until cancelled."""
        while True:
            await self._reload.wait()
            self._reload.clear()
            try:
                config, kept = taken_over(self._config, await asyncio.to_thread(self._read))
            except (*STARTUP_ERRORS, ValueError) as error:
                fields = {"why": str(error)}
                LOGGER.error(
                    "the configuration cannot be used, the one before stays in force", extra={"fields": fields}
                )
                continue
            if kept:
                LOGGER.warning("only a restart takes over what was changed", extra={"fields": {"keys": kept}})
            await self._replace_all(config)

    async def _replace_all(self, config: Config) -> None:
        """Replace the workers one after the other, until one of the new ones cannot serve; returns once the old ones
        are gone."""
        before, self._config = self._config, config
        old = set(self._children)
        for slot in self._slots:
            if not await slot.replace():
                if slot is self._slots[0]:
                    self._config = before
                fields = {"slot": slot.number}
                LOGGER.error("a worker with the new configuration did not start", extra={"fields": fields})
                return
        LOGGER.setLevel(config.log_level.upper())
        LOGGER.info("the configuration was taken over", extra={"fields": {"workers": len(self._slots)}})
        await asyncio.gather(*(self._ended(child) for child in old))

    async def _ended(self, child: Child) -> None:
        """Wait until a worker that finishes is gone; one that takes too long is killed."""
        if await first_of(child.gone, timeout_s=self._drained_within_s) is None:
            child.kill()
            await child.gone.wait()

    def _starter(self, number: int, keeper: Keeper, group: asyncio.TaskGroup) -> Callable[[], Child]:
        def start() -> Child:
            config = self._config.model_dump_json().encode()
            terms = Terms(config, number, next(self._numbers), self._redis_url)
            child = Child(terms, self._sockets.of(number), keeper)
            self._children.add(child)
            group.create_task(self._run(child))
            return child

        return start

    async def _run(self, child: Child) -> None:
        try:
            await child.run()
        finally:
            self._children.discard(child)
        if not child.stopping:
            self._metrics.deaths.inc()
        await self._asking.expositions.gone(child.number)

    def _heed_signals(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stop.set)
        loop.add_signal_handler(signal.SIGINT, self._interrupted)
        loop.add_signal_handler(signal.SIGHUP, self._reload.set)

    def _interrupted(self) -> None:
        if self._stop.is_set():
            self._kill.set()
        self._stop.set()

    @property
    def _sockets(self) -> Listening:
        assert self._listening is not None, "bound first of all"
        return self._listening

    def _crew(self) -> Crew:
        return Crew(sum(slot.is_alive for slot in self._slots), len(self._slots))

    def _tell_crew(self) -> None:
        crew = self._crew()
        for child in self._children:
            child.tell(crew)

    def _farewell(self, child: Child, text: bytes) -> None:
        self._asking.expositions.farewell(child.number, text)

    async def _reload_prices(self) -> None:
        """The ledger prices with the supervisor's book, so this one is read before the workers'."""
        assert self._prices is not None, "a worker asks"
        log_reload(await asyncio.to_thread(self._prices.reload))

    def _note_drained(self, note: Drained) -> None:
        change = self._drained.update if note.draining else self._drained.difference_update
        change(note.endpoint_ids)


async def _bound(config: Config) -> Listening:
    """The address, as soon as it is free. Raises `CannotListen`."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + BIND_S
    while True:
        try:
            return Listening(config.listen.host, config.listen.port, config.workers)
        except CannotListen as taken:
            if taken.errno != errno.EADDRINUSE or loop.time() > until_s:
                raise
        await asyncio.sleep(0.1)
