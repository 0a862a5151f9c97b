"""A cluster as far as the index needs one: who serves a key, and a plain client of that node.

    key ──slot──> home, if known ─────────────────────> client of that node
                  else CLUSTER SLOTS, asked around ──────┘      │ MOVED: the home is another
                                                                └ away: the home is forgotten, and asked for again

All keys of a pool share one slot, so that a pipeline goes to one node as it would go to a single server. A client that
hides the nodes would parse keys, retry and reconnect on its own, while our callers have deadlines.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from types import TracebackType
from typing import Final, Self, cast

from redis import exceptions as redis_errors
from redis.asyncio import Redis
from redis.crc import key_slot

from prefix_index.redis_address import Place

ASK_S: Final = 0.25
"""Patience with one node or sentinel that is asked where things are; then the next is."""

_REDIRECTIONS: Final = 3


class ClusterClient:
    """The nodes of a cluster by what they serve. Closing it closes its clients."""

    def __init__(self, seeds: Sequence[Place], client_of: Callable[[Place], Redis]) -> None:
        """`client_of` makes a client that connects on use."""
        self._seeds = tuple(seeds)
        self._client_of = client_of
        self._clients: dict[Place, Redis] = {}
        self._homes: dict[int, Place] = {}

    async def primary_of(self, key: bytes) -> Redis:
        """A client of the node that serves `key`, as far as is known.

        Raises redis-py's ConnectionError where no node says who does.
        """
        slot = key_slot(key)
        home = self._homes.get(slot)
        if home is None:
            home = self._homes[slot] = await self._ask_around(slot)
        return self._at(home)

    def known(self, key: bytes) -> Redis | None:
        """The same without asking anybody; None where it is not known."""
        home = self._homes.get(key_slot(key))
        return None if home is None else self._at(home)

    def moved(self, key: bytes, word: redis_errors.MovedError) -> None:
        """A node said that another one serves `key`."""
        slot = key_slot(key)
        teller = self._homes.get(slot, self._seeds[0])
        self._homes[slot] = Place(word.host or teller.host, word.port)

    def lost(self, key: bytes) -> None:
        """Whoever served `key` did not answer, or no longer serves; the next call asks around."""
        self._homes.pop(key_slot(key), None)

    async def get(self, key: bytes) -> object:
        """The value at `key`, None where there is none. Raises redis-py's errors."""
        return await self._redirected(key, lambda node: node.get(key))

    async def set(self, key: bytes, value: bytes, *, nx: bool = False, ex: int | None = None) -> object:
        """Set `key`: with `nx` only where there is none, `ex` seconds long. None where it was not set."""
        return await self._redirected(key, lambda node: node.set(key, value, nx=nx, ex=ex))

    async def aclose(self) -> None:
        """Close all connections."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _redirected(self, key: bytes, ask: Callable[[Redis], object]) -> object:
        for _ in range(_REDIRECTIONS):
            node = await self.primary_of(key)
            try:
                return await cast(Awaitable[object], ask(node))  # redis-py types both of its clients at once
            except redis_errors.MovedError as word:
                self.moved(key, word)
            except (redis_errors.ConnectionError, redis_errors.ClusterDownError, OSError):
                self.lost(key)
                raise
        raise redis_errors.ConnectionError("the nodes of the cluster point at each other")

    def _at(self, place: Place) -> Redis:
        if place not in self._clients:
            self._clients[place] = self._client_of(place)
        return self._clients[place]

    async def _ask_around(self, slot: int) -> Place:
        """Which node serves a slot: the first that answers says it, nodes known already before the first ones."""
        why = ""
        for place in dict.fromkeys((*self._clients, *self._seeds)):
            try:
                async with asyncio.timeout(ASK_S):
                    ask = cast(Callable[..., Awaitable[object]], self._at(place).execute_command)
                    answer = await ask("CLUSTER", "SLOTS")
            except redis_errors.ResponseError as refusal:
                why = f": {refusal}"
                continue
            except (redis_errors.RedisError, OSError):  # TimeoutError is one
                continue
            for first, last, home in _ranges(answer, place):
                if first <= slot <= last:
                    return home
        raise redis_errors.ConnectionError(f"no node of the cluster says who serves the index{why}")


def _ranges(answer: object, teller: Place) -> Iterator[tuple[int, int, Place]]:
    """First slot, last slot and primary of each range; a node without a host is the one that answered."""
    for entry in answer if isinstance(answer, list) else []:
        first, last, (host, port, *_) = entry[0], entry[1], entry[2]
        yield int(first), int(last), Place(host.decode() if host else teller.host, int(port))
