"""SGLang's bootstrap: the same body to both engines at the same time, which find each other by host, port and room.

Neither leg ends without the other: each waits for it, for as long as a lease is, and then fails. A room is used once.
"""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field

from backends.disaggregated import Role
from backends.simulated.serving.errors import Refused
from backends.simulated.serving.face import Site
from backends.simulated.serving.split.channel import ask
from backends.simulated.serving.split.leg import WHOLE, Ended, Leg, More, content_of
from backends.simulated.serving.types import Json, Prompt, Wanted

_LARGEST_ROOM = 2**63 - 1
_REMEMBERED = 100_000


@dataclass(slots=True)
class _Room:
    """Where two legs meet. `cached_tokens`: once the prompt is computed."""

    opened: asyncio.Event = field(default_factory=asyncio.Event)
    computed: asyncio.Event = field(default_factory=asyncio.Event)
    fetched: asyncio.Event = field(default_factory=asyncio.Event)
    content: Json = field(default_factory=dict)
    cached_tokens: int = 0
    is_over: bool = False


class Rooms:
    """The rooms of one prefill engine, by number. The oldest ones are forgotten."""

    def __init__(self) -> None:
        self._rooms: OrderedDict[int, _Room] = OrderedDict()

    def get(self, number: int) -> _Room:
        """A room, made where there is none."""
        room = self._rooms.setdefault(number, _Room())
        if len(self._rooms) > _REMEMBERED:
            self._rooms.popitem(last=False)
        return room


def leg(site: Site, wanted: Wanted, prompt: Prompt) -> Leg:
    """The leg of this engine's role. Raises `Refused`; an engine that does not split ignores the fields."""
    if site.spec.role is Role.BOTH:
        return WHOLE
    host, port, room = (wanted.fields.get(f"bootstrap_{name}") for name in ("host", "port", "room"))
    if room is None:
        raise Refused(
            400, "Invalid request: Disaggregated request received without bootstrap room id.", kind="BadRequest"
        )
    if isinstance(room, bool) or not isinstance(room, int) or not 0 <= room <= _LARGEST_ROOM:
        raise Refused(400, f"bootstrap_room must be an integer in [0, 2^63), got {room!r}", kind="BadRequest")
    if not isinstance(host, str) or not host:
        raise Refused(400, "bootstrap_host must name the prefill server", kind="BadRequest")
    content = content_of(wanted, prompt)
    if site.spec.role is Role.PREFILL:
        if port is not None and port != site.channel.port:
            raise Refused(400, f"bootstrap_port {port} is not this server's {site.channel.port}", kind="BadRequest")
        return _Prefill(site, room, content)
    return _Decode(site, (host, port if isinstance(port, int) else site.spec.bootstrap_port), room, content)


class _Prefill(Leg):
    def __init__(self, site: Site, number: int, content: Json) -> None:
        super().__init__(part="prefill", hold=True, one_token=True)
        self._site = site
        self._number = number
        self._content = content

    async def begin(self, rank: int) -> None:
        room = self._site.rooms.get(self._number)
        if room.opened.is_set():
            raise Refused(400, f"bootstrap_room {self._number} is in use, or was before", kind="BadRequest")
        room.content = self._content
        room.opened.set()

    async def end(self, number: int, ended: Ended) -> More:
        site, room = self._site, self._site.rooms.get(self._number)
        room.cached_tokens = ended.tally.cached_tokens
        room.computed.set()
        try:
            await _in_time(site, room.fetched, self._number)
        finally:
            room.is_over = True
        return More()


class _Decode(Leg):
    def __init__(self, site: Site, address: tuple[str, int], number: int, content: Json) -> None:
        # Nothing is found in a decode engine's own cache, which is off unless asked for.
        super().__init__(part="decode", transferred=True, namespace=f"room {number}")
        self._site = site
        self._address = address
        self._question: Json = {"ask": "room", "room": number, **content}

    async def begin(self, rank: int) -> None:
        told = await ask(*self._address, self._question)
        cached = told.get("cached_tokens")
        self.cached_tokens = cached if isinstance(cached, int) else 0


async def hand_over(site: Site, asked: Json) -> Json:
    """The answer of P's side channel: once the prompt is computed."""
    number = asked.get("room")
    if not isinstance(number, int):
        raise Refused(500, f"{number!r} is no bootstrap_room")
    room = site.rooms.get(number)
    await _in_time(site, room.opened, number)
    if any(room.content.get(name) != asked.get(name) for name in room.content):
        raise Refused(500, f"bootstrap_room {number} is of another request")
    await _in_time(site, room.computed, number)
    if room.fetched.is_set() or room.is_over:
        why = "was fetched before" if room.fetched.is_set() else "is given up"
        raise Refused(500, f"bootstrap_room {number} {why}")
    room.fetched.set()
    return {"cached_tokens": room.cached_tokens}


async def _in_time(site: Site, event: asyncio.Event, number: int) -> None:
    """Until the other leg is so far; raises `Refused` when a lease's time is over."""
    async with asyncio.TaskGroup() as group:
        patience = group.create_task(site.runner.clock.sleep_s(site.spec.lease_s))
        waiting = group.create_task(event.wait())
        await asyncio.wait((patience, waiting), return_when=asyncio.FIRST_COMPLETED)
        patience.cancel()
        waiting.cancel()
    if not event.is_set():
        raise Refused(
            500,
            f"KVTransferError(bootstrap_room={number}): Request timed out after {site.spec.lease_s} s",
            kind="InternalServerError",
        )
