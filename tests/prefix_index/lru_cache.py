"""An engine's cache as simple as can be, and clients that come back to it: what predictions are held against."""

import random
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

MOST_BLOCKS = 200
"""A prompt of so many blocks grows no more."""


class LruCache:
    """Blocks in order of use; of a prompt the last block goes first, as in vLLM."""

    def __init__(self, capacity_blocks: int) -> None:
        self._capacity = capacity_blocks
        self._blocks: OrderedDict[tuple[int, int], None] = OrderedDict()

    def compute(self, prompt: int, blocks: int) -> int:
        """Serve a prompt of so many blocks; returns how many leading blocks were there."""
        found = next((at for at in range(blocks) if (prompt, at) not in self._blocks), blocks)
        for at in reversed(range(blocks)):
            self._blocks[prompt, at] = None
            self._blocks.move_to_end((prompt, at))
        while len(self._blocks) > self._capacity:
            self._blocks.popitem(last=False)
        return found

    def wipe(self) -> None:
        """The engine was restarted, or told to empty its cache."""
        self._blocks.clear()


@dataclass(frozen=True, slots=True)
class Visit:
    """One answer: the run that was confirmed of this prompt, how long ago, and what was there. In blocks."""

    at_s: float
    prompt: int
    blocks: int
    confirmed: int
    reported: int
    age_s: float | None
    """None where the prompt was never sent before."""


@dataclass
class Clients:
    """Prompts that are asked again and again, some more often than others (Zipf), growing from time to time."""

    rng: random.Random
    prompts: int = 300
    rate_per_s: float = 4.0
    exponent: float = 0.8
    growing: bool = True
    now_s: float = 0.0
    _known: dict[int, tuple[int, float]] = field(default_factory=dict)

    def visits(self, cache: LruCache, count: int) -> Iterator[Visit]:
        """Requests one after the other, at random times. What was truncated by one is confirmed again by it."""
        weights = [1 / (rank + 1) ** self.exponent for rank in range(self.prompts)]
        for prompt in self.rng.choices(range(self.prompts), weights, k=count):
            self.now_s += self.rng.expovariate(self.rate_per_s)
            confirmed, used_s = self._known.get(prompt, (0, self.now_s))
            grown = confirmed + self.rng.choice((0, 0, 1, 4)) if self.growing and confirmed < MOST_BLOCKS else confirmed
            blocks = max(grown, 8 + prompt % 40)
            reported = cache.compute(prompt, blocks)
            self._known[prompt] = (blocks, self.now_s)
            age_s = self.now_s - used_s if confirmed else None
            yield Visit(self.now_s, prompt, blocks, confirmed, min(reported, confirmed), age_s)

    def forget_all(self) -> None:
        """What the index does when it clears the holder."""
        self._known.clear()
