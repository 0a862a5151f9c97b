"""How much of the memory for KV caches is wasted without pages, played with requests of given lengths. Pure.

    contiguous   [prompt answer......................................]   reserved for the longest that could come
                                └─ reserved for later ─┴─ never used ─┘
    to a power   [prompt answer........]                                 reserved for the next power of two
    oracle       [prompt answer...]                                      reserved for what will come, if one knew
    pages        [page][page][pa  ]                                      half a page is empty on average

Reservations are made by a buddy allocator in the first three, as the systems did with which PagedAttention was compared
(arXiv 2309.06180): a block is halved until the next half would be too small. What is wasted is the part of the memory
that is not the state of a token: reserved and not yet used, reserved and never used, free but in too small pieces.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["Kept", "Lengths", "Played", "play"]

Kept = Literal["longest", "power", "oracle", "pages"]


@dataclass(frozen=True, slots=True)
class Lengths:
    """Of a request: tokens of its prompt and of its answer."""

    prompt_tokens: int
    output_tokens: int

    @property
    def tokens(self) -> int:
        """At its end."""
        return self.prompt_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class Played:
    """`used`: share of the memory that held states of tokens, over all steps in which requests waited. `sequences`: at
    once, on average."""

    used: float
    sequences: float


@dataclass(slots=True)
class _Running:
    request: Lengths
    address: int
    reserved_tokens: int
    made_tokens: int = 0

    @property
    def tokens(self) -> int:
        return self.request.prompt_tokens + self.made_tokens

    @property
    def is_full(self) -> bool:
        """Whether its next token has no place; never where all of the answer is reserved."""
        return self.tokens >= self.reserved_tokens and self.made_tokens < self.request.output_tokens


def play(
    requests: Sequence[Lengths], memory_tokens: int, kept: Kept, *, longest_tokens: int = 2048, page_tokens: int = 16
) -> Played:
    """Serve all requests in their order, as many at once as fit, one token each a step; measured while any waits.

    Pages are taken as they are needed; where none is left the youngest sequence is put out and begins anew later.
    Raises `ValueError` where a request is longer than `longest_tokens`, or does not fit alone. O(steps · running).
    """
    reserve = _reservation(kept, longest_tokens, page_tokens)
    memory = _Pages(memory_tokens) if kept == "pages" else _Buddies(memory_tokens)
    for one in requests:
        most = max(reserve(one), -(-one.tokens // page_tokens) * page_tokens if kept == "pages" else 0)
        if one.tokens > longest_tokens or (address := memory.take(most)) is None:
            raise ValueError(f"a request of {one.tokens} tokens does not fit")
        memory.give(address, most)
    waiting, running = deque(requests), list[_Running]()
    used, steps, sequences = 0, 0, 0
    while True:
        running += _admitted(waiting, memory, reserve)
        if not waiting:
            break
        steps, sequences, used = steps + 1, sequences + len(running), used + sum(one.tokens for one in running)
        running = [one for one in running if _goes_on(one, memory)]
        waiting.extendleft(_grown(running, memory, page_tokens))
    return Played(used / (steps * memory_tokens) if steps else 0.0, sequences / steps if steps else 0.0)


def _admitted(
    waiting: deque[Lengths], memory: "_Pages | _Buddies", reserve: Callable[[Lengths], int]
) -> list[_Running]:
    """Those that fit, in their order; they wait no longer."""
    found = []
    while waiting and (address := memory.take(reserve(waiting[0]))) is not None:
        taken = waiting.popleft()
        found.append(_Running(taken, address, reserve(taken)))
    return found


def _grown(running: list[_Running], memory: "_Pages | _Buddies", page_tokens: int) -> list[Lengths]:
    """Give a page to each that is full; who had to be put out for that, the youngest first, runs no longer."""
    out = []
    while sum(one.is_full for one in running) * page_tokens > memory.left:
        youngest = running.pop()
        memory.give(youngest.address, youngest.reserved_tokens)
        out.append(youngest.request)
    for one in running:
        if one.is_full:
            memory.take(page_tokens)
            one.reserved_tokens += page_tokens
    return out


def _goes_on(one: _Running, memory: "_Pages | _Buddies") -> bool:
    one.made_tokens += 1
    ended = one.made_tokens >= one.request.output_tokens
    if ended:
        memory.give(one.address, one.reserved_tokens)
    return not ended


def _reservation(kept: Kept, longest_tokens: int, page_tokens: int) -> Callable[[Lengths], int]:
    match kept:
        case "longest":
            return lambda _: longest_tokens
        case "power":
            return lambda one: min(longest_tokens, one.prompt_tokens + (1 << _order(one.output_tokens)))
        case "oracle":
            return lambda one: one.tokens
        case "pages":
            return lambda one: (one.prompt_tokens // page_tokens + 1) * page_tokens


def _order(tokens: int) -> int:
    """The least k with 2^k >= tokens."""
    return (tokens - 1).bit_length()


class _Pages:
    """Any page will do, so only their number counts."""

    def __init__(self, tokens: int) -> None:
        self.left = tokens

    def take(self, tokens: int) -> int | None:
        if tokens > self.left:
            return None
        self.left -= tokens
        return 0

    def give(self, _: int, tokens: int) -> None:
        self.left += tokens


class _Buddies:
    """Blocks of 2^k tokens at multiples of 2^k; `free[k]` has the addresses of those that are free. Two that make up a
    larger one are one again as soon as both are free."""

    def __init__(self, tokens: int) -> None:
        self._free: list[set[int]] = [set() for _ in range(tokens.bit_length())]
        at = 0
        for order in reversed(range(tokens.bit_length())):
            if tokens >> order & 1:
                self._free[order].add(at)
                at += 1 << order

    @property
    def left(self) -> int:
        return sum(len(free) << order for order, free in enumerate(self._free))

    def take(self, tokens: int) -> int | None:
        wanted = _order(tokens)
        found = next((order for order in range(wanted, len(self._free)) if self._free[order]), None)
        if found is None:
            return None
        at = min(self._free[found])
        self._free[found].remove(at)
        for order in range(wanted, found):
            self._free[order].add(at + (1 << order))
        return at

    def give(self, at: int, tokens: int) -> None:
        order = _order(tokens)
        while order < len(self._free) - 1 and (buddy := at ^ (1 << order)) in self._free[order]:
            self._free[order].remove(buddy)
            at, order = min(at, buddy), order + 1
        self._free[order].add(at)
