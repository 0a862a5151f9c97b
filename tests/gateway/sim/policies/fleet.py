"""A fleet as a policy sees it, set by hand; and requests made of letters."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from gateway.sim.types import EndpointView, Policy, SimRequest
from prefix_index import Chain

BLOCK_SIZE = 16


@dataclass
class FakeView:
    """`caches[endpoint]`: the chains that it holds, whole."""

    endpoints: list[EndpointView]
    now_s: float = 0.0
    version: int = 0
    caches: dict[int, list[Chain]] = field(default_factory=dict)

    def cached_blocks(self, endpoint: int, chain: Chain) -> int:
        return max((_common(held, chain) for held in self.caches.get(endpoint, ())), default=0)

    def join(self) -> int:
        """One more endpoint; returns its number."""
        number = len(self.endpoints)
        self.endpoints.append(EndpointView(number, f"e{number}", 1 << 20, BLOCK_SIZE))
        return number


def fleet(endpoints: int, *, dead: Iterable[int] = ()) -> FakeView:
    """So many endpoints with nothing to do."""
    view = FakeView([])
    for _ in range(endpoints):
        view.join()
    for number in dead:
        view.endpoints[number].alive = False
    return view


def chain(names: str, tail_tokens: int = 0) -> Chain:
    """A chain of a block a letter; each hash holds the letters so far, so equal hash means equal prefix."""
    hashes = b"".join(hash_of(names[: end + 1]) for end in range(len(names)))
    return Chain(hashes, BLOCK_SIZE, len(names) * BLOCK_SIZE + tail_tokens)


def hash_of(prefix: str) -> bytes:
    value = 0
    for letter in prefix:
        value = (value * 1_000_003 + ord(letter)) & 0xFFFF_FFFF_FFFF_FFFF
    return value.to_bytes(8, "little")


def request(number: int, names: str = "", *, session: str = "", tail_tokens: int = 0, output: int = 16) -> SimRequest:
    return SimRequest(number, 0.0, chain(names, tail_tokens), output, session)


def send(policy: Policy, sent: SimRequest, view: FakeView) -> int:
    """Choose, send, and count it in the view; returns where."""
    number = policy.choose(sent, view)
    view.endpoints[number].in_flight += 1
    policy.sent(sent, number, view.now_s)
    return number


def compute(policy: Policy, sent: SimRequest, endpoint: int, view: FakeView, cached_tokens: int = 0) -> None:
    policy.first_token(sent, endpoint, view.now_s, cached_tokens)


def end(policy: Policy, sent: SimRequest, endpoint: int, view: FakeView) -> None:
    view.endpoints[endpoint].in_flight -= 1
    policy.ended(sent, endpoint, view.now_s)


def serve(policy: Policy, sent: SimRequest, view: FakeView, cached_tokens: int = 0) -> int:
    """A request from beginning to end, alone; returns where."""
    number = send(policy, sent, view)
    compute(policy, sent, number, view, cached_tokens)
    end(policy, sent, number, view)
    return number


def _common(held: Chain, wanted: Chain) -> int:
    blocks = 0
    for at in range(min(len(held), len(wanted))):
        if held.hashes[at * 8 : at * 8 + 8] != wanted.hashes[at * 8 : at * 8 + 8]:
            break
        blocks += 1
    return blocks
