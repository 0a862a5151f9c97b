"""A load of lengths that are given: it never ends, and repeats only what is shared. Pure.

prompt  │ shared: one of so many texts │ own, new each time │     answer │ as long as asked │
         <────── `shared` of it ───────>                     <─ lengths vary by `cv` ─>
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Final

from gateway.measuring.errors import LoadUnusable
from gateway.sim.loads.again import Again, dice_of
from gateway.sim.loads.lengths import Draw, Fixed, by_mean
from gateway.sim.loads.names import names_from
from gateway.sim.types import SimRequest, Workload
from prefix_index import Chain

BLOCK_TOKENS: Final = 16
"""As most engines have; whatever is shared is shared in whole blocks."""
_OWN_FROM: Final = 1 << 40
"""Names of what is not shared; of what is, they are smaller."""
_OWN_BLOCKS: Final = 1 << 24
"""Names that a request has for itself."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Requests in tokens. `shared` of a prompt, from 0 to 1, is one of `groups` texts; `cv` is the standard deviation
    of lengths over their mean (0: all alike). Raises `LoadUnusable` for what no load can have."""

    prompt_tokens: int = 512
    output_tokens: int = 128
    cv: float = 0.0
    shared: float = 0.0
    groups: int = 8

    def __post_init__(self) -> None:
        if self.prompt_tokens < 1 or self.output_tokens < 1 or self.groups < 1:
            raise LoadUnusable("prompts, answers and groups are 1 or more")
        if not 0 <= self.shared <= 1 or self.cv < 0:
            raise LoadUnusable("what is shared lies between 0 and 1, and variation is not negative")


def shaped(shape: Shape, seed: int = 0) -> Workload:
    """An endless load of that shape, all at 0 s: give it arrivals."""
    return Workload("as asked", BLOCK_TOKENS, Again(lambda: _requests(shape, seed)))


def _requests(shape: Shape, seed: int) -> Iterator[SimRequest]:
    dice = dice_of(seed)
    prompts, outputs = _lengths(shape.prompt_tokens, shape.cv), _lengths(shape.output_tokens, shape.cv)
    shared_blocks = round(shape.prompt_tokens * shape.shared) // BLOCK_TOKENS
    for number in count():
        tokens = prompts(dice)
        blocks = tokens // BLOCK_TOKENS
        head = min(shared_blocks, blocks)
        names = names_from(dice.randrange(shape.groups) * shared_blocks, head) if head else b""
        names += names_from(_OWN_FROM + number * _OWN_BLOCKS, blocks - head)
        yield SimRequest(number, 0.0, Chain(names, BLOCK_TOKENS, tokens), outputs(dice))


def _lengths(mean: int, cv: float) -> Draw:
    return by_mean(mean, cv * mean) if cv else Fixed(mean)
