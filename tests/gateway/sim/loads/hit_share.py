"""What one cache without a bound would spare of a load: the number that published loads are known by."""

from collections.abc import Iterable
from dataclasses import dataclass

from gateway.sim import SimRequest


@dataclass(frozen=True, slots=True)
class Seen:
    """A load, counted: lengths in tokens, shares of all input tokens."""

    requests: int
    input_tokens: int
    output_tokens: int
    hit_tokens: int

    @property
    def hit_share(self) -> float:
        """Leading blocks that an earlier request had, as a share of the input."""
        return self.hit_tokens / self.input_tokens

    @property
    def mean_input(self) -> float:
        """Tokens."""
        return self.input_tokens / self.requests

    @property
    def mean_output(self) -> float:
        """Tokens."""
        return self.output_tokens / self.requests


def leading(names: memoryview, known: set[int]) -> int:
    """How many leading names are known. Chained names are known up to some place and unknown after it: bisection."""
    low, high = 0, len(names)
    while low < high:
        middle = (low + high) // 2
        if names[middle] in known:
            low = middle + 1
        else:
            high = middle
    return low


def unlimited(requests: Iterable[SimRequest]) -> Seen:
    """Count a load, all blocks ever seen being cached."""
    known: set[int] = set()
    count = inputs = outputs = hits = 0
    for r in requests:
        names = memoryview(r.chain.hashes).cast("Q")
        blocks = leading(names, known)
        known.update(names[blocks:])
        count, inputs, outputs = count + 1, inputs + r.prompt_tokens, outputs + r.output_tokens
        hits += min(blocks * r.chain.block_size, r.prompt_tokens)
    return Seen(count, inputs, outputs, hits)
