"""What a draft is, and who makes one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from backends.reference.generation import Generation
from backends.reference.scheduler import Slice


@dataclass(frozen=True, slots=True)
class Draft:
    """Tokens that may come next. `shares` [tokens, vocab]: the distributions they were drawn from, each sums to 1;
    None where each was the only one that could be drafted."""

    tokens: Sequence[int] = ()
    shares: Tensor | None = None


class Drafter(Protocol):
    """Makes the drafts of a step; used on the engine's thread."""

    def draft(
        self, slices: Sequence[Slice], complete: Sequence[Generation], room_tokens: Sequence[int]
    ) -> Sequence[Draft]:
        """A draft for each generation of `complete`, whose slices are those that are complete, of at most its
        `room_tokens` tokens. The block tables cover that many tokens behind the slices."""
