"""Looking a name up: by the system's own resolver, or by a DNS server's records.

                   who answers                                  what it knows
    of the system  getaddrinfo: hosts file, search domains,     addresses, no time to live
                   whatever this machine is set up with
    of records     dnspython (extra `dns`): SRV; A and AAAA     ports, priorities, time to live
                   where a `server` is to be asked

The system's resolver cannot say SRV records or a time to live, and no other knows what this machine is set up with; so
each does what it is for. `getaddrinfo` blocks for as long as it likes: it has a thread of its own here, one at a time,
which nobody waits for at the end.
"""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from dns.asyncresolver import Resolver

Family = Literal["any", "ipv4", "ipv6"]
LOOKUP_S: Final = 5.0
"""Patience with one look-up."""
_FAMILIES: Final = {"any": socket.AF_UNSPEC, "ipv4": socket.AF_INET, "ipv6": socket.AF_INET6}
_RECORDS: Final = {"any": ("A", "AAAA"), "ipv4": ("A",), "ipv6": ("AAAA",)}
_NOTHING: Final = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})


@dataclass(frozen=True, slots=True)
class Looked:
    """What a name stands for: hosts (addresses or names) with their ports, none where it stands for nothing; and how
    long that holds, where that was said."""

    places: Sequence[tuple[str, int]]
    ttl_s: float | None = None


class LookupFailed(Exception):
    """Nobody could say what a name stands for, which is not to say that it stands for nothing."""


LookUp = Callable[[], Awaitable[Looked]]
"""Looks one name up. Raises `LookupFailed`."""


class SystemLookup:
    """The addresses of a name by the system's resolver."""

    def __init__(self, name: str, port: int, family: Family = "any") -> None:
        self._name = name
        self._port = port
        self._family = _FAMILIES[family]
        self._asking: asyncio.Future[Looked] | None = None

    async def __call__(self) -> Looked:
        """Look it up, once more only when the look-up before has ended."""
        if self._asking is None:
            loop = asyncio.get_running_loop()
            self._asking = loop.create_future()
            threading.Thread(target=self._ask, args=(loop, self._asking), daemon=True).start()
        try:
            async with asyncio.timeout(LOOKUP_S):
                looked = await asyncio.shield(self._asking)
        except TimeoutError:
            raise LookupFailed(f"no answer within {LOOKUP_S:g} s") from None
        except LookupFailed:
            self._asking = None
            raise
        self._asking = None
        return looked

    def _ask(self, loop: asyncio.AbstractEventLoop, future: "asyncio.Future[Looked]") -> None:
        try:
            looked: Looked | LookupFailed = self._looked()
        except LookupFailed as failure:
            looked = failure
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(_settle, future, looked)

    def _looked(self) -> Looked:
        try:
            found = socket.getaddrinfo(self._name, self._port, family=self._family, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            if error.errno in _NOTHING:
                return Looked(())
            raise LookupFailed(error.strerror or "the resolver failed") from None
        except (OSError, UnicodeError) as error:
            raise LookupFailed(f"the resolver failed ({type(error).__name__})") from None
        return Looked(sorted({(str(where[0]), self._port) for *_, where in found}))


def _settle(future: "asyncio.Future[Looked]", looked: Looked | LookupFailed) -> None:
    if future.done():
        return
    if isinstance(looked, LookupFailed):
        future.set_exception(looked)
    else:
        future.set_result(looked)


@dataclass(frozen=True, slots=True)
class RecordLookup:
    """Records of a name, of `server` (host or address, port), else of the servers that this machine is set up with.

    With `port` None SRV: the places of the lowest priority, all of them. Otherwise A and AAAA, with this port.
    """

    name: str
    port: int | None
    family: Family = "any"
    server: tuple[str, int] | None = None

    async def __call__(self) -> Looked:
        """Look it up."""
        from dns.exception import DNSException  # noqa: PLC0415 - an extra, needed where it is configured

        try:
            return await (self._services() if self.port is None else self._addresses(self.port))
        except DNSException as error:
            raise LookupFailed(_in_words(error)) from None
        except OSError as error:
            raise LookupFailed(error.strerror or type(error).__name__) from None

    async def _services(self) -> Looked:
        found = await self._records("SRV")
        if found is None:
            return Looked(())
        records, ttl_s = found
        best = min(record.priority for record in records)
        places = {
            (record.target.to_text(omit_final_dot=True), record.port) for record in records if record.priority == best
        }
        return Looked(sorted(place for place in places if place[0] not in ("", ".", "@")), ttl_s)

    async def _addresses(self, port: int) -> Looked:
        answers = [await self._records(kind) for kind in _RECORDS[self.family]]
        found = [answer for answer in answers if answer is not None]
        places = sorted({(str(record.address), port) for records, _ in found for record in records})
        return Looked(places, min((ttl_s for _, ttl_s in found), default=None))

    async def _records(self, kind: str) -> tuple[list[Any], float] | None:
        """Records and their time to live; None where there are none of this kind."""
        from dns.resolver import NXDOMAIN, NoAnswer  # noqa: PLC0415 - as above

        resolver = await self._resolver()
        try:
            answer = await resolver.resolve(self.name, kind, lifetime=LOOKUP_S, search=self.server is None)
        except (NXDOMAIN, NoAnswer):
            return None
        return list(answer), float(answer.rrset.ttl if answer.rrset is not None else 0)

    async def _resolver(self) -> "Resolver":
        from dns.asyncresolver import Resolver  # noqa: PLC0415 - as above
        from dns.nameserver import Do53Nameserver  # noqa: PLC0415 - as above

        if self.server is None:
            return Resolver()  # reads what this machine is set up with, which may change
        host, port = self.server
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        resolver = Resolver(configure=False)
        resolver.nameservers = [Do53Nameserver(str(found[0][4][0]), port)]
        return resolver


def _in_words(error: Exception) -> str:
    """Shorter than what the library says, which lists every attempt."""
    from dns.resolver import LifetimeTimeout, NoNameservers  # noqa: PLC0415 - as above

    if isinstance(error, LifetimeTimeout):
        return f"no answer within {LOOKUP_S:g} s"
    if isinstance(error, NoNameservers):
        return "no server could answer"
    return f"the resolver failed ({type(error).__name__})"
