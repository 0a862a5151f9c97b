"""Users with long histories who ask round after round: production-stack's multi-round test.

    [ 1,000 tokens of all ][ 20,000 of the user ][ question ][ answer ][ question ] ...

Users come one after another, so that `queries_per_s` are sent once all are there; each asks again after a full turn of
all the others.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat

from gateway.sim.loads.again import Again
from gateway.sim.loads.generators.conversing import Room, Turn
from gateway.sim.loads.merging import Conversation, in_order_of_time
from gateway.sim.loads.names import Names, require
from gateway.sim.types import SimRequest, Workload


@dataclass(frozen=True, slots=True)
class MultiRound:
    """Lengths in tokens. The question's length is ours: the published table leaves it open."""

    users: int = 320
    rounds: int = 10
    common_tokens: int = 1_000
    history_tokens: int = 20_000
    question_tokens: int = 20
    output_tokens: int = 100
    queries_per_s: float = 4.0
    block_size: int = 16


def multi_round(load: MultiRound = MultiRound()) -> Workload:
    """The users of `load`; nothing in it is drawn, so there is no seed."""
    require(load.queries_per_s > 0 and load.block_size > 0, "a rate and a block are more than 0")

    def conversations() -> Iterator[Conversation]:
        # Answers take no time here: rounds are a fixed time apart, however fast the fleet is.
        room = Room(Names(), load.block_size, answer_token_s=0.0)
        common = room.head(load.common_tokens)
        turn = Turn(load.question_tokens, load.output_tokens, load.users / load.queries_per_s)
        for user in range(load.users):
            start_s = (user - load.users) / load.queries_per_s
            head = room.head(load.history_tokens, common)
            yield room.converse(f"user-{user}", start_s, head, repeat(turn, load.rounds), f"user-{user}")

    def requests() -> Iterator[SimRequest]:
        return in_order_of_time(conversations())

    return Workload("multi-round", load.block_size, Again(requests))
