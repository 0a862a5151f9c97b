"""What a policy is asked, and the form of its answer."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from gateway.scheduling.types import Candidate, Decision, Demand, Filtered
from gateway.types import Reason
from prefix_index import Chain


class Question(msgspec.Struct, frozen=True):
    """What a decision is made from.

    `candidates`, at their best, is not empty. `chance` gives a new number, uniform in [0, 1), at each call. `refine`
    gives a candidate as it is rather than at its best. `no_affinity` names why prefixes are not known, where they are
    not. `chain` are the blocks of the prompt, by which hot prefixes are told apart; None: nothing is copied on purpose.
    """

    candidates: Sequence[Candidate]
    filtered: Mapping[str, Filtered]
    demand: Demand
    chance: Callable[[], float]
    refine: Callable[[Candidate], Candidate]
    no_affinity: Reason | None = None
    chain: Chain | None = None


Chooser = Callable[[Question], Decision]
