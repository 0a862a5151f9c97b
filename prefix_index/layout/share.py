"""What an order of a prompt is worth: the share of its tokens that an engine would find in its cache.

    call 1   |fixed|time 1|          nothing is known yet
    call 2   |fixed|time 2|          `fixed` is what calls 1 and 2 begin with: cached, in whole blocks
    call 3   |fixed|time 3|

The cache of the estimate is large enough and forgets nothing: each call is compared with the earlier one that it shares
most with. So the figure is of the order alone, an upper bound of what a fleet gives. At least one token of each prompt
is computed, as engines do.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

Count = Callable[[str], int]
"""Number of tokens of a text."""

_BYTES_PER_TOKEN: Final = 4


def by_bytes(text: str) -> int:
    """Tokens as a rough rule has it: one for four bytes of UTF-8."""
    return (len(text.encode()) + _BYTES_PER_TOKEN - 1) // _BYTES_PER_TOKEN


@dataclass(frozen=True, slots=True)
class ExpectedShare:
    """Tokens of the prompts of a sample, and those of them that would be found in a cache."""

    calls: int
    prompt_tokens: int
    cached_tokens: int

    @property
    def share(self) -> float:
        """Between 0 and 1; 0 of no tokens."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0


def expected_share(prompts: Iterable[str], count: Count = by_bytes, block_tokens: int = 16) -> ExpectedShare:
    """The share of `prompts`, in the order in which they are sent.

    `count` says how many tokens a text has; it is asked twice for each prompt. The prefix that two prompts share is
    counted as a text of its own, so a token across its end may be counted otherwise than an engine does: by one block
    at most. O(n log n) comparisons of texts.
    """
    known: list[str] = []
    calls = prompt_tokens = cached_tokens = 0
    for prompt in prompts:
        place = bisect_left(known, prompt)
        near = known[max(place - 1, 0) : place + 1]
        shared = max([_shared_chars(prompt, other) for other in near], default=0)
        tokens = count(prompt)
        reusable = min(count(prompt[:shared]), tokens - 1) if shared else 0
        cached_tokens += max(reusable, 0) // block_tokens * block_tokens
        prompt_tokens += tokens
        calls += 1
        if place == len(known) or known[place] != prompt:
            known.insert(place, prompt)
    return ExpectedShare(calls, prompt_tokens, cached_tokens)


def _shared_chars(text: str, other: str) -> int:
    """How many characters two texts begin with alike. O(length), by halves."""
    low, high = 0, min(len(text), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if text[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
