"""The nouns of scheduling: what is known of each endpoint, and the decision with its reasons."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from backends import PerfModel
from gateway.types import Reason


class Filtered(StrEnum):
    """Why an endpoint was not considered."""

    UNHEALTHY = "unhealthy"
    DRAINING = "draining"
    FAILED = "failed"
    """It was tried for this request and failed."""
    NO_SALT = "no_salt"
    """Its engine cannot keep two share groups apart."""
    NOT_SPOKEN = "not_spoken"
    """Its engine does not speak the request's dialect, and it cannot be translated."""
    FULL = "full"
    """It has as much in flight as it takes, and another has room."""
    NOT_OWNER = "not_owner"
    """The request continues a response that another endpoint keeps."""
    STARTING = "starting"
    """It is new, and has had its share of the requests for now."""


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """One endpoint as the decision sees it. A struct, since a decision among 500 endpoints makes 500 of them.

    `cached_tokens` is what it will reuse of this prompt on average: what is known to lie there, times the probability
    that it still does. `expected_cached_tokens` is what it will most likely report. `queued_tokens` are the uncached
    prompt tokens that all replicas have sent there and that are not computed yet, by the time they take;
    `queued_requests` all requests that have not ended; `kv_use` a share from 0 to 1, None where unknown;
    `recent_tokens` the uncached tokens that it computed lately (`RecentWork`). `at_best`: both figures of cached tokens
    are what it reuses if all is there that is known of; nobody looked closer. Else `matched_tokens` is that figure, and
    `survival` the probability that what was confirmed is still there.
    """

    endpoint_id: str
    cached_tokens: float
    expected_cached_tokens: int
    queued_tokens: int
    speed: PerfModel
    kv_use: float | None = None
    recent_tokens: float = 0.0
    at_best: bool = True
    matched_tokens: int | None = None
    survival: float | None = None
    queued_requests: int = 0

    @property
    def known_tokens(self) -> int:
        """What it reuses if all is there that is known of."""
        return int(self.cached_tokens) if self.matched_tokens is None else self.matched_tokens


class Demand(msgspec.Struct, frozen=True):
    """What a request asks of whoever takes it. `behind`: how many requests on average come while this one is computed
    and wait for it, wherever it goes. `wanted_again`: how likely a token that is pushed out of a cache would have been
    used once more."""

    prompt_tokens: int
    expected_output_tokens: int
    behind: float = 0.0
    wanted_again: float = 0.0


class Terms(msgspec.Struct, frozen=True):
    """The summands of one endpoint's cost, in seconds."""

    wait_s: float
    prefill_s: float
    delays_s: float
    displacement_s: float
    decode_pressure_s: float
    crowding_s: float

    @property
    def cost_s(self) -> float:
        """Seconds until this endpoint would have computed the prompt, and what others then suffer."""
        waits_s = self.wait_s + self.prefill_s
        return waits_s + self.delays_s + self.displacement_s + self.decode_pressure_s + self.crowding_s


class Decision(msgspec.Struct, frozen=True):
    """The chosen endpoint with every reason: all that were considered, and why the others were not.

    The terms of each are a function of its candidate and the demand (`terms_of`).
    `costs_s` are their sums, in the order of the candidates, where the decision has computed them; else empty.
    `observed` is what another policy would have decided, where one is only watched; `candidates` and costs are as that
    one saw them, and not kept twice. `copy_cost_s` is what it pays for a copy of a hot prefix, made on purpose;
    `copy_saved_s` what it saves at such a copy against the cheapest of the holders that there were without.
    """

    chosen: Candidate
    reason: Reason
    candidates: Sequence[Candidate]
    filtered: Mapping[str, Filtered]
    demand: Demand
    costs_s: Sequence[float] = ()
    observed: "Decision | None" = None
    copy_cost_s: float = 0.0
    copy_saved_s: float = 0.0

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt that it is about."""
        return self.demand.prompt_tokens

    @property
    def endpoint_id(self) -> str:
        """The chosen endpoint."""
        return self.chosen.endpoint_id

    @property
    def agrees(self) -> bool:
        """Whether the policy that is only watched would have chosen the same."""
        return self.observed is None or self.observed.endpoint_id == self.endpoint_id

    @property
    def expected_cached_tokens(self) -> int:
        """What the chosen endpoint will most likely report as cached."""
        return self.chosen.expected_cached_tokens

    @property
    def uncached_tokens(self) -> int:
        """What the chosen endpoint will most likely have to compute of the prompt."""
        return max(self.prompt_tokens - self.chosen.expected_cached_tokens, 0)

    @property
    def work_tokens(self) -> int:
        """Tokens that it adds to the work of the chosen endpoint, on average.

        Of prompts that are computed there right now nothing is computed twice, though none of it may be expected of the
        endpoint's report yet.
        """
        return max(self.prompt_tokens - int(self.chosen.cached_tokens), 0)

    @property
    def queue_tokens(self) -> int:
        """The same as those see it who come behind: loads are sums of these (`PerfModel.queue_tokens`)."""
        return int(self.chosen.speed.queue_tokens(self.work_tokens, self.prompt_tokens))
