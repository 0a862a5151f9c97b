"""Conversations that run side by side, as one load in order of time.

    conversation 0   x----x--------x
    conversation 1      x---x--x
    the load         0--1-2-3--4---5     numbers are given here, and told to the conversation: its next request is
                                         `after` this one

A conversation is a generator that yields drafts and is sent the number that each one got. Conversations come in order
of their first request and are read only when their time has come, so no more live in memory than run at once.
"""

from collections.abc import Generator, Iterable, Iterator
from heapq import heappop, heappush
from typing import NamedTuple, TypeAlias

from gateway.sim.types import SimRequest
from prefix_index import Chain


class Draft(NamedTuple):
    """A request that has no number yet; fields as in SimRequest."""

    at_s: float
    chain: Chain
    output_tokens: int
    session: str = ""
    tenant: str = ""
    after: int | None = None
    think_s: float = 0.0


Conversation: TypeAlias = Generator[Draft, int, None]


def in_order_of_time(conversations: Iterable[Conversation]) -> Iterator[SimRequest]:
    """The requests of all conversations by `at_s`, those of one moment in the order of their conversations.

    The first drafts must not go back in time from one conversation to the next, nor the drafts of one conversation.
    O(log n) a request, n conversations running at once.
    """
    live: list[tuple[float, int, Draft, Conversation]] = []
    number = 0
    for order, conversation in enumerate(conversations):
        first = next(conversation, None)
        if first is None:
            continue
        while live and live[0][0] < first.at_s:
            yield SimRequest(number, *live[0][2])
            _advance(live, number)
            number += 1
        heappush(live, (first.at_s, order, first, conversation))
    while live:
        yield SimRequest(number, *live[0][2])
        _advance(live, number)
        number += 1


def _advance(live: list[tuple[float, int, Draft, Conversation]], number: int) -> None:
    """Replace the foremost draft, which got `number`, by the next one of its conversation."""
    _, order, _, conversation = heappop(live)
    try:
        draft = conversation.send(number)
    except StopIteration:
        return
    heappush(live, (draft.at_s, order, draft, conversation))
