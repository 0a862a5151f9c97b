"""`chwbl`: KubeAI's PrefixHash, consistent hashing with bounded loads.

    the ring, 256 places an endpoint:   ..e2..e0..e1..e0..key -> e1 (full) -> e2 (has room)

An endpoint has room while its load with the new request is at most 1.25 times the mean with it. If nobody has room
(a mean below 1 in a large fleet) the first on the ring takes it whatever its load (KubeAI's default).

KubeAI hashes the first 100 characters of the first *user* message. A chain does not say where that begins, so there
are two readings: `chwbl` hashes the blocks of the prompt's first 100 characters, system prompt included;
`chwbl-session` hashes the session, as a conversation has one first user message: KubeAI at its best.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from math import inf

from xxhash import xxh64_intdigest

from gateway.sim.policies.parts import Composed, PolicyArgs
from gateway.sim.types import EndpointView, SimRequest, View
from prefix_index import HASH_BYTES

# Defaults of KubeAI's LoadBalancing.PrefixHash (Kubernetes API reference of substratusai/kubeai).
LOAD_FACTOR = 125 / 100
REPLICATION = 256
PREFIX_CHARACTERS = 100

CHARACTERS_PER_TOKEN = 4
"""English prose in the vocabularies of current models; only turns KubeAI's 100 characters into tokens."""


class _Ring:
    """Places of all endpoints that were ever seen, in order of their hashes."""

    def __init__(self) -> None:
        self._hashes: list[int] = []
        self._owners: list[int] = []
        self._known = 0

    def cover(self, endpoints: Sequence[EndpointView]) -> None:
        """Give places to those that joined."""
        if len(endpoints) <= self._known:
            return
        places = list(zip(self._hashes, self._owners, strict=True))
        for endpoint in endpoints[self._known :]:
            places += [
                (xxh64_intdigest(f"{endpoint.id}{copy}".encode()), endpoint.number) for copy in range(REPLICATION)
            ]
        places.sort()
        self._hashes = [place for place, _ in places]
        self._owners = [owner for _, owner in places]
        self._known = len(endpoints)

    def first(self, key: int, fits: Callable[[int], bool]) -> int:
        """The first owner after `key` that fits; one must. O(places passed)."""
        owners, at = self._owners, bisect_left(self._hashes, key)
        places = len(owners)
        return next(owner for step in range(places) if fits(owner := owners[(at + step) % places]))


class _BoundedLoadRule:
    def __init__(self, *, by_session: bool) -> None:
        self._by_session = by_session
        self._ring = _Ring()

    def choose(self, request: SimRequest, view: View) -> int:
        endpoints = view.endpoints
        self._ring.cover(endpoints)
        key = self._key(request)
        loads = [endpoint.in_flight for endpoint in endpoints if endpoint.alive]
        total = sum(loads)
        most = LOAD_FACTOR * (total + 1) / len(loads)
        if not total or min(loads) + 1 > most:
            most = inf  # with nothing in flight anybody has room; where nobody has, the first takes it

        def has_room(number: int) -> bool:
            return endpoints[number].alive and endpoints[number].in_flight + 1 <= most

        return self._ring.first(key, has_room)

    def _key(self, request: SimRequest) -> int:
        if self._by_session and request.session:
            return xxh64_intdigest(request.session.encode())
        chain = request.chain
        blocks = min(len(chain), -(-PREFIX_CHARACTERS // CHARACTERS_PER_TOKEN // chain.block_size))
        if not blocks:  # a prompt of less than a block has no name
            return xxh64_intdigest((request.session or str(request.number)).encode())
        return xxh64_intdigest(chain.hashes[(blocks - 1) * HASH_BYTES : blocks * HASH_BYTES])


def chwbl(_: PolicyArgs) -> Composed:
    """By the first blocks. O(endpoints)."""
    return Composed("chwbl", _BoundedLoadRule(by_session=False))


def chwbl_session(_: PolicyArgs) -> Composed:
    """By the session, where it is known. O(endpoints)."""
    return Composed("chwbl-session", _BoundedLoadRule(by_session=True))
