"""What each endpoint computed lately: sums of uncached tokens that fade with the work of the whole fleet. Pure.

    note(a, 30,000 tokens)     a  ████████████▏         fades as anybody works: a window is so many times
    note(b, 10,000 tokens)     b  ███████▊              the cache of an average endpoint, for each endpoint
                               c  (joins)  ████████▍    starts at the average of the others

Waiting alone does not keep a fleet even: where nobody waits, every conversation stays where it once began, and who
began with the long ones evicts what the others would have kept. So the cost of an endpoint has a small share of what
it computed lately. Work is the clock, not time: a night without requests neither forgets who has the long conversations
nor makes all endpoints look alike, and a replica that sees a tenth of the traffic weighs what it sees as all do.

A newcomer that started at nothing, or one that comes back after its work has faded, would look cheaper than every
endpoint that holds a prefix until it had caught up: four times its share of the work goes to it then.

Costs: three floats an endpoint; `note` and `tokens_of` O(1). Sums are kept multiplied by a common factor that grows
(forward decay), so fading touches nobody; before the factor grows too large, all are written anew.
"""

import math
from collections.abc import Mapping
from typing import Final

WINDOW_TURNOVERS: Final = 5.0
"""How many times an average cache is filled before what was computed then has faded to 1/e. Over traces of chat and of
coding agents, 3 to 8 make no difference to the hit share; at 0.3 the largest part of the work is 10 % larger."""
UNKNOWN_CAPACITY_TOKENS: Final = 1_000_000
"""The cache of an endpoint that does not tell its size: 70 billion parameters leave about that on four GPUs of
80 GB."""
USUAL_REQUESTS: Final = 256
"""Over how many requests the usual one is averaged."""
_LARGEST_EXPONENT: Final = 60.0


class RecentWork:
    """Plain calls, no clock: what fades it is work."""

    def __init__(self) -> None:
        self._raised: dict[str, float] = {}
        self._capacities: dict[str, int] = {}
        self._capacity_sum = 0.0
        self._exponent = 0.0
        self._requests = 0
        self._usual_tokens = 0.0
        self._usual_prompt_tokens = 0.0
        self._usual_reused_tokens = 0.0

    @property
    def usual_tokens(self) -> float:
        """Tokens that a request queues as, on average over about the last `USUAL_REQUESTS`; 0 before the first."""
        return self._usual_tokens

    @property
    def reused_share(self) -> float:
        """What of a prompt was cached, on average by tokens over about as many requests; 0 before the first."""
        return self._usual_reused_tokens / self._usual_prompt_tokens if self._usual_prompt_tokens else 0.0

    def set_capacity(self, endpoint_id: str, tokens: int | None) -> None:
        """An endpoint is there, with a cache of so many tokens (None: unknown)."""
        self._capacity_sum += (tokens or UNKNOWN_CAPACITY_TOKENS) - self._capacities.get(endpoint_id, 0)
        self._capacities[endpoint_id] = tokens or UNKNOWN_CAPACITY_TOKENS
        if endpoint_id not in self._raised:
            self._raised[endpoint_id] = self._average_raised()

    def came_back(self, endpoint_id: str) -> None:
        """It has started anew: at the average of the others at least, as its own has faded meanwhile. O(n)."""
        if endpoint_id in self._raised:
            self._raised[endpoint_id] = max(self._raised[endpoint_id], self._average_raised(but=endpoint_id))

    def asked(self, prompt_tokens: int, uncached_tokens: float, queue_tokens: float) -> None:
        """A request is sent, whose prompt has so many tokens that are not cached, and queues as so many."""
        self._requests = min(self._requests + 1, USUAL_REQUESTS)
        part = 1 / self._requests
        self._usual_tokens += (queue_tokens - self._usual_tokens) * part
        self._usual_prompt_tokens += (prompt_tokens - self._usual_prompt_tokens) * part
        self._usual_reused_tokens += (prompt_tokens - uncached_tokens - self._usual_reused_tokens) * part

    def note(self, endpoint_id: str, tokens: float) -> None:
        """A request is sent there that has so many uncached tokens."""
        self.correct(endpoint_id, tokens)

    def correct(self, endpoint_id: str, tokens: float) -> None:
        """So many more are computed there than had been noted; negative where it was less."""
        if endpoint_id not in self._capacities:
            self.set_capacity(endpoint_id, None)
        faded = max(tokens, 0.0) / (WINDOW_TURNOVERS * self._capacity_sum)
        self._exponent += min(
            faded, _LARGEST_EXPONENT
        )  # of a prompt that fills all caches often, nothing is left anyway
        self._raised[endpoint_id] = max(self._raised[endpoint_id] + tokens * math.exp(self._exponent), 0.0)
        if self._exponent > _LARGEST_EXPONENT:
            self._write_anew()

    def tokens_of(self, endpoint_id: str) -> float:
        """Uncached tokens that were computed there lately."""
        return self._raised.get(endpoint_id, 0.0) * math.exp(-self._exponent)

    def faded(self) -> tuple[Mapping[str, float], float]:
        """`tokens_of` for many: the product of what each has here, if anything, and of the one factor."""
        return self._raised, math.exp(-self._exponent)

    def forget(self, endpoint_id: str) -> None:
        """The endpoint is none of the fleet any more."""
        self._capacity_sum -= self._capacities.pop(endpoint_id, 0)
        self._raised.pop(endpoint_id, None)

    def _average_raised(self, but: str | None = None) -> float:
        others = [raised for name, raised in self._raised.items() if name != but]
        return sum(others) / len(others) if others else 0.0

    def _write_anew(self) -> None:
        fading = math.exp(-self._exponent)
        self._raised = {name: raised * fading for name, raised in self._raised.items()}
        self._exponent = 0.0
