"""Conversations out of numbers: each turn's prompt is the one before, its answer, and something new.

    turn 0   [ head ][ new ]
    turn 1   [ head ][ new ][ answer ][ new ]
    turn 2   [ head ][ kept ][ new ]            where the client rewrote its history: `kept_tokens` of it are left

Whole blocks keep their names from turn to turn; the block that was not full when a turn was sent gets its name later.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from gateway.sim.loads.merging import Conversation, Draft
from gateway.sim.loads.names import Names
from prefix_index import HASH_BYTES, Chain

ANSWER_TOKEN_S = 0.02
"""Seconds an answer token is taken to last where times must be known beforehand: 50 tokens a second."""


class Head(NamedTuple):
    """What a prompt begins with and others do too: its tokens, and the names of their whole blocks."""

    names: bytes
    tokens: int


EMPTY = Head(b"", 0)


class Turn(NamedTuple):
    """One turn; lengths in tokens. `wait_s` after the answer before, or after the start; `kept_tokens`: see above."""

    new_tokens: int
    output_tokens: int
    wait_s: float = 0.0
    kept_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Room:
    """What conversations of one load have in common: where names come from, and how long answers take."""

    names: Names
    block_size: int
    answer_token_s: float = ANSWER_TOKEN_S

    def head(self, tokens: int, after: Head = EMPTY) -> Head:
        """A new head: `tokens` more behind another one."""
        total = after.tokens + tokens
        return Head(self.names.extend(after.names, total // self.block_size), total)

    def converse(
        self, session: str, start_s: float, head: Head, turns: Iterable[Turn], tenant: str = ""
    ) -> Conversation:
        """The turns as drafts; O(blocks) a turn, most of it copying."""
        names, tokens = head
        before: int | None = None
        end_s = start_s
        for turn in turns:
            if turn.kept_tokens is not None and turn.kept_tokens < tokens:
                tokens = turn.kept_tokens
                names = names[: tokens // self.block_size * HASH_BYTES]
            tokens += turn.new_tokens
            names = self.names.extend(names, tokens // self.block_size)
            at_s = end_s + turn.wait_s
            think_s = 0.0 if before is None else turn.wait_s
            chain = Chain(names, self.block_size, tokens)
            before = yield Draft(at_s, chain, turn.output_tokens, session, tenant, before, think_s)
            end_s = at_s + turn.output_tokens * self.answer_token_s
            tokens += turn.output_tokens


def starts(dice: Random, rate_per_s: float) -> Iterator[float]:
    """When sessions start, Poisson: seconds from 0, without end."""
    now_s = 0.0
    while True:
        yield now_s
        now_s += dice.expovariate(rate_per_s)
