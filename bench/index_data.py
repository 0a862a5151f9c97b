"""Conversations for the index benchmark, as chains of random hashes: who was sent which, turn by turn.

    system prompt 3 | turn | turn | turn | turn        home: holder 5, from the third turn on: holder 2
    system prompt 3 | turn | turn'                     the second turn was asked again

32 system prompts of 16 to 64 blocks, a few of them popular (Zipf). A conversation begins with one and grows by turns of
16 to 60 blocks, up to one of the sizes less the turn that a query adds; each size has the same share of the blocks.
64 conversations go on at a time. Of the turns, 2 % move to another holder for good, 3 % ask the turn before again.

What a holder is sent it has from then on, all of the chain; nobody evicts. The hashes are random bytes, since what is
made of them does not matter to any index. Same shape, same turns. Needs nothing but the standard library: the peers'
interpreters run it too.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

HASH_BYTES = 8
SIZES = (128, 512, 2_048, 8_192)
"""Blocks in a query; 16 tokens each: 2k, 8k, 33k, 131k tokens."""

QUERY_TURN_BLOCKS = 32
"""What a query adds to a conversation that is known."""

MOST_QUERIES = 32
"""Kept of each size."""

MOVED, ASKED_AGAIN = 0.02, 0.03
_SYSTEM_PROMPTS, _SYSTEM_BLOCKS = 32, (16, 64)
_TURN_BLOCKS = (16, 60)
_AT_A_TIME = 64


@dataclass(frozen=True, slots=True)
class Shape:
    """How much of it: `blocks` are distinct ones, over all holders."""

    holders: int
    blocks: int
    sizes: tuple[int, ...] = SIZES
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Turn:
    """`holder` now has all of `chain`, packed hashes; its first `known` blocks it had before."""

    holder: str
    chain: bytes
    known: int

    def __len__(self) -> int:
        """Blocks in the chain."""
        return len(self.chain) // HASH_BYTES


class Workload:
    """The turns of one shape, and what can be asked when all of them are in the index."""

    def __init__(self, shape: Shape) -> None:
        """Goes through all turns once, to count them and to keep what is asked later."""
        self.shape = shape
        self.queries: dict[int, list[Turn]] = {size: [] for size in shape.sizes}
        """For each size, conversations with a next turn that nobody has yet; their holder is the one to be sent it."""
        self.turn_count = self.stored_blocks = self.held_blocks = 0
        """Turns; distinct blocks when all are in the index; the same, counted once for each holder that has them."""
        for turn in _Pass(shape, self):
            self.turn_count += 1
            self.held_blocks += len(turn) - turn.known

    def turns(self) -> Iterator[Turn]:
        """All turns, in order; the same ones each time."""
        return iter(_Pass(self.shape, None))


def holder_name(number: int) -> str:
    """An endpoint and its generation."""
    return f"10.0.{number // 256}.{number % 256}@1"


def stranger(blocks: int, seed: int) -> bytes:
    """A chain that shares nothing with any other."""
    return random.Random(f"stranger {seed}").randbytes(blocks * HASH_BYTES)


@dataclass(slots=True)
class _Conversation:
    prompt: bytes
    chain: bytes
    before_turn: bytes
    size: int
    home: str
    runs: dict[str, int]
    """Bytes of `chain` that each holder was sent."""


class _Pass:
    """One pass over the turns; writes down in `book`, if given, what it stored and what can be asked."""

    def __init__(self, shape: Shape, book: Workload | None) -> None:
        self._shape, self._book = shape, book
        self._rng = random.Random(shape.seed)
        self._names = [holder_name(number) for number in range(shape.holders)]
        self._prompts = [self._hashes(self._rng.randint(*_SYSTEM_BLOCKS)) for _ in range(_SYSTEM_PROMPTS)]
        self._popularity = [1 / rank for rank in range(1, _SYSTEM_PROMPTS + 1)]
        self._prompt_holders: set[tuple[bytes, str]] = set()
        self._planned_blocks = dict.fromkeys(shape.sizes, 0)

    def __iter__(self) -> Iterator[Turn]:
        going: list[_Conversation] = []
        while True:
            while len(going) < _AT_A_TIME and sum(self._planned_blocks.values()) < self._shape.blocks:
                going.append(self._begin())
            if not going:
                return
            at = self._rng.randrange(len(going))
            yield self._next_turn(going[at])
            if len(going[at].chain) == (going[at].size - QUERY_TURN_BLOCKS) * HASH_BYTES:
                self._end(going[at])
                going[at] = going[-1]
                going.pop()

    def _begin(self) -> _Conversation:
        size = min(self._planned_blocks, key=self._planned_blocks.__getitem__)
        (prompt,) = self._rng.choices(self._prompts, self._popularity)
        self._planned_blocks[size] += size - QUERY_TURN_BLOCKS - len(prompt) // HASH_BYTES
        return _Conversation(prompt, prompt, prompt, size, self._rng.choice(self._names), {})

    def _next_turn(self, now: _Conversation) -> Turn:
        luck = self._rng.random()
        if luck < MOVED:
            now.home = self._rng.choice(self._names)
        elif luck < MOVED + ASKED_AGAIN:
            now.chain = now.before_turn
            now.runs = {holder: min(run, len(now.chain)) for holder, run in now.runs.items()}
        known = max(now.runs.get(now.home, 0), self._prompt_run(now))
        room = now.size - QUERY_TURN_BLOCKS - len(now.chain) // HASH_BYTES
        now.before_turn = now.chain
        now.chain += self._hashes(min(self._rng.randint(*_TURN_BLOCKS), room))
        now.runs[now.home] = len(now.chain)
        if self._book is not None:
            self._book.stored_blocks += (len(now.chain) - len(now.before_turn)) // HASH_BYTES
        return Turn(now.home, now.chain, known // HASH_BYTES)

    def _prompt_run(self, now: _Conversation) -> int:
        if (now.prompt, now.home) in self._prompt_holders:
            return len(now.prompt)
        if self._book is not None and all(prompt != now.prompt for prompt, _ in self._prompt_holders):
            self._book.stored_blocks += len(now.prompt) // HASH_BYTES
        self._prompt_holders.add((now.prompt, now.home))
        return 0

    def _end(self, now: _Conversation) -> None:
        if self._book is not None and len(self._book.queries[now.size]) < MOST_QUERIES:
            query = now.chain + stranger(QUERY_TURN_BLOCKS, self._book.turn_count)
            self._book.queries[now.size].append(Turn(now.home, query, now.size - QUERY_TURN_BLOCKS))

    def _hashes(self, blocks: int) -> bytes:
        return self._rng.randbytes(blocks * HASH_BYTES)
