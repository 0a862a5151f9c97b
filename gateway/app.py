"""The composition root: a Config becomes objects, and the objects an ASGI application.

    Config --build--> Gateway --lifespan--> running: registry polls, index writes, settler, ledger

Everything that runs in the background lives in one TaskGroup that the lifespan holds: when one part fails, the server
stops; when the server stops, the parts end in the order in which they depend on each other.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from backends import BackendError
from billing import BillingError
from gateway.composition import Setting, composed
from gateway.config import Config, ConfigInvalid, Limits
from gateway.data_plane import Edge
from gateway.edge.auth import KeysFileInvalid
from gateway.exchange import Clocks
from gateway.limits_parts import admission_of
from gateway.planes import DataPlane, OwnPlane
from gateway.starting import say_what_runs
from gateway.team.catching_up import caught_up
from gateway.team.member import Team
from gateway.telemetry import Telemetry
from gateway.wire import Receive, Scope, Send
from prefix_index import PrefixIndexError

_DRAIN_S: Final = 2.0
"""How long settlements may still take to reach Redis at the end; the ledger has them."""
STARTUP_ERRORS: Final = (ConfigInvalid, KeysFileInvalid, BackendError, BillingError, PrefixIndexError, OSError)
"""What a wrong configuration or a missing file raises; each text says what would help."""


class Gateway:
    """The ASGI application: HTTP goes to the edge, the lifespan starts and stops the rest."""

    def __init__(
        self,
        config: Config,
        environment: Mapping[str, str],
        team: Team | None = None,
        plane: DataPlane | None = None,
    ) -> None:
        """`team` is of a gateway of several workers, of which this is one; `plane` carries its calls, None: itself."""
        self._config = config
        self._team = team
        self._edge: Edge | None = None
        self.telemetry = Telemetry()
        self.draining = False
        """Set by the server that is told to stop, where balancers are to hear of it."""
        self.stopping = False
        """Set by it once nothing more is accepted: what is under way has `limits.drain_s`."""
        self._setting = Setting(
            config=config,
            environment=environment,
            telemetry=self.telemetry,
            admission=admission_of(config, self.telemetry),
            clocks=Clocks(),
            plane=plane or OwnPlane(),
            team=team,
            draining=lambda: self.draining,
            stopping=lambda: self.stopping,
        )

    @property
    def limits(self) -> Limits:
        """What the server that runs this is to keep to."""
        return self._config.limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        if scope["type"] == "http":
            assert self._edge is not None, "the server runs the lifespan first"
            await self._edge(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            async with self.running():
                await send({"type": "lifespan.startup.complete"})
                await receive()
        except STARTUP_ERRORS as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.shutdown.complete"})

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Build everything, run it, and take it down again in order. Raises `ConfigInvalid` for what cannot work."""
        async with AsyncExitStack() as stack:
            if self._team is not None:
                await stack.enter_async_context(self._team.joined())
            parts = await composed(self._setting, stack)
            self._edge = parts.edge
            say_what_runs(self._config)
            async with asyncio.TaskGroup() as group:
                background = [group.create_task(parts.discovering.run())]
                await parts.discovering.looked(self._config.limits.connect_s)
                await parts.registry.begin(self._config.limits.connect_s)
                background += [group.create_task(work()) for work in parts.works]
                finishing = [group.create_task(part.run()) for part in (parts.settler, parts.next_turns)]
                if self._team is not None:
                    await caught_up(self._team, parts.registry, others_may_come=self._config.discovery.finds)
                yield
                parts.settler.close()
                parts.next_turns.close()
                await asyncio.gather(*finishing)
                await parts.quotas.drain(_DRAIN_S)
                for task in background:
                    task.cancel()
            await parts.index.drain()
