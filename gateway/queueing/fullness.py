"""Whether an endpoint is full: what is in flight there, held against its bound. Pure.

    told      requests, uncached tokens, KV use: whichever is reached first
    learned   a sample of the engine says   n run, some wait   it takes n: the bound
                                            none wait          a little more than before may go there: an eighth
                                            nothing, or old    unknown, and unknown is not full

A bound that is learned is not dropped once nobody waits: what waits here would all be sent at once. It rises, sample by
sample, until requests wait in the engine again, so no more than an eighth of what it takes ever waits there for long.

*Several replicas* share a bound. Each knows what the others have in flight as of a moment ago, and each may have its
equal part of the bound whatever they have: else who has places would fill them again for ever, and who comes later
would never get one. So for a while, until the others' requests end, there may be up to that part too many.
"""

from dataclasses import dataclass

from backends import LoadSample

_GROWTH = 8
_FORGOTTEN = 1 << 16
"""A bound that has risen so far is none."""


@dataclass(frozen=True, slots=True)
class Bound:
    """What an endpoint takes at a time, each None where it does not matter: requests, or `learns` how many; uncached
    prompt tokens, counted as loads count them; the share of its KV cache, as its last sample has it."""

    requests: int | None = None
    learns: bool = False
    queued_tokens: int | None = None
    kv_use: float | None = None

    @property
    def is_none(self) -> bool:
        """Whether the endpoint is never full."""
        return self == Bound()


@dataclass(frozen=True, slots=True)
class Work:
    """What is in flight at an endpoint: `own` requests of this replica and of all, and their uncached tokens."""

    own_requests: int
    all_requests: int
    own_tokens: int
    all_tokens: int


def learned(before: int | None, sample: LoadSample | None) -> int | None:
    """The bound of an endpoint's requests after a new sample. A sample that says nothing of them: None, unknown."""
    if sample is None or sample.running is None or sample.waiting is None:
        return None
    if sample.waiting > 0:
        return max(sample.running, 1)
    if before is None:
        return None
    risen = before + max(before // _GROWTH, 1)
    return risen if risen < _FORGOTTEN else None


def is_full(bound: Bound, requests: int | None, work: Work, kv_use: float | None, replicas: int = 1) -> bool:
    """Whether nothing more is to be sent to an endpoint. `requests` is the bound of them, told or learned."""
    if requests is not None and _reached(work.own_requests, work.all_requests, requests, replicas):
        return True
    tokens = bound.queued_tokens
    if tokens is not None and _reached(work.own_tokens, work.all_tokens, tokens, replicas):
        return True
    # An engine that has nothing to do takes something, whatever is left in its cache.
    return bound.kv_use is not None and kv_use is not None and kv_use >= bound.kv_use and work.all_requests > 0


def _reached(own: int, everybodys: int, bound: int, replicas: int) -> bool:
    return everybodys >= bound and own >= max(bound // replicas, 1)
