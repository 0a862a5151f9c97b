"""Data-parallel ranks of one server: places of their own in every decision, behind one address.

    e   address, process, generation, health          one, as every endpoint
    |-- e/0   holder e@7     queue, speed, cache use  )
    `-- e/1   holder e@7/1   queue, speed, cache use  )  a candidate each; a header of the request says which

Each rank has a cache, a queue and a batch of its own, so a decision for "the server" would be one for a rank that
nobody chose. Where the engine heeds a header, the gateway chooses. Where it does not, or on routes on which it does
not, the server is one candidate with several caches (`known.py`), and what it was sent counts for all its ranks alike.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from backends import InFlight, PerfModel, Reservation
from backends.reservations import InFlightCounter
from gateway.known import cache_name
from gateway.scheduling import place_name
from prefix_index import Load

RANK_HEADER: Final = b"x-data-parallel-rank"
"""By which vLLM and SGLang let a rank be chosen; the client's own never passes (`edge/control_fields.py`)."""
_NO_LOAD: Final = Load()


class RankStanding(msgspec.Struct, frozen=True, gc=False):
    """One rank between two changes of its endpoint."""

    number: int
    place: str
    holder: str
    speed: PerfModel


def ranked(
    endpoint_id: str, holder: str, ranks: int, speeds: Mapping[str, PerfModel], speed: PerfModel
) -> tuple[RankStanding, ...]:
    """So many ranks of an endpoint; `speed` is that of those whose own is not known yet."""
    places = [place_name(endpoint_id, rank) for rank in range(ranks)]
    return tuple(
        RankStanding(rank, place, cache_name(holder, rank), speeds.get(place, speed))
        for rank, place in enumerate(places)
    )


def loads_of(endpoint_id: str, ranks: Sequence[RankStanding], loads: Mapping[str, Load]) -> Iterator[Load]:
    """What all replicas have outstanding at each rank. O(ranks).

    What counts for the endpoint and for none of its ranks went where the engine chose: a part of it to each, rounded
    up.
    """
    own = [loads.get(rank.place, _NO_LOAD) for rank in ranks]
    whole, count = loads.get(endpoint_id, _NO_LOAD), len(ranks)
    more_requests = max(whole.requests - sum(load.requests for load in own), 0)
    more_tokens = max(whole.uncached_tokens - sum(load.uncached_tokens for load in own), 0)
    if not (more_requests or more_tokens):
        yield from own
        return
    for load in own:
        requests, tokens = load.requests - -more_requests // count, load.uncached_tokens - -more_tokens // count
        yield Load(requests, tokens, load.decode_tokens)


def rank_headers(rank: int | None) -> tuple[tuple[bytes, bytes], ...]:
    """What the engine must be told of the rank that was chosen, beside the request."""
    return () if rank is None else ((RANK_HEADER, b"%d" % rank),)


class RankLoads:
    """What this replica has outstanding at each rank, by place. Plain calls, O(1). Bounded by the ranks there are, and
    those whose endpoint has left with requests under way."""

    def __init__(self) -> None:
        self._counters: dict[str, InFlightCounter] = {}

    def reserve(self, place: str, uncached_tokens: int, decode_tokens: int) -> Reservation:
        """Count a request at a rank; to be released as that of its endpoint."""
        counter = self._counters.get(place)
        if counter is None:
            counter = self._counters[place] = InFlightCounter()
        return Reservation(counter, uncached_tokens, decode_tokens)

    def read(self, place: str) -> Load:
        """What is outstanding there."""
        counter = self._counters.get(place)
        load = InFlight() if counter is None else counter.read()
        return Load(load.requests, load.uncached_tokens, load.decode_tokens)

    def forget(self, place: str) -> None:
        """The rank is none of the fleet any more."""
        self._counters.pop(place, None)
