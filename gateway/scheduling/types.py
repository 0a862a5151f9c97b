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
    PREFILLS = "prefills"
    """It computes prompts for others, and answers nobody."""
    FULL = "full"
    """It has as much in flight as it takes, and another has room."""
    NOT_OWNER = "not_owner"
    """The request continues a response that another endpoint keeps."""
    STARTING = "starting"
    """It is new, and has had its share of the requests for now."""
    PROBING = "probing"
    """It failed lately, and as many requests as may try it are there."""
    STALLED = "stalled"
    """Requests wait there and nothing moves, and others can take this one."""
    EJECTED = "ejected"
    """It does worse than its peers by far, and others can take this one."""


def place_name(endpoint_id: str, rank: int | None) -> str:
    """What is one queue and one batch: an endpoint, or one data-parallel rank of it. No id has a slash."""
    return endpoint_id if rank is None else f"{endpoint_id}/{rank}"


def endpoint_at(place: str) -> str:
    """The endpoint that a place belongs to."""
    return place.partition("/")[0]


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """One endpoint as the decision sees it. A struct, since a decision among 500 endpoints makes 500 of them.

    `cached_tokens` is what it will reuse of this prompt on average: what is known to lie there, times the probability
    that it still does. `expected_cached_tokens` is what it will most likely report. `queued_tokens` are the uncached
    prompt tokens that all replicas have sent there and that are not computed yet, by the time they take;
    `queued_requests` all requests that have not ended; `kv_use` a share from 0 to 1, None where unknown;
    `recent_tokens` the uncached tokens that it computed lately (`RecentWork`). `at_best`: both figures of cached tokens
    are what it reuses if all is there that is known of; nobody looked closer. Else `matched_tokens` is that figure, and
    `survival` the probability that what was confirmed is still there. `rank` is the data-parallel rank that the request
    is sent to, None where there is one or the engine chooses; all figures are that rank's then. `adapter_load_s` is how
    long it loads the request's LoRA adapter first, `adapter_evicts_s` what it will take to load the one again that is
    pushed out by that.
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
    rank: int | None = None
    adapter_load_s: float = 0.0
    adapter_evicts_s: float = 0.0

    @property
    def place(self) -> str:
        """Its name, by endpoint and rank."""
        return self.endpoint_id if self.rank is None else place_name(self.endpoint_id, self.rank)

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
    adapter_load_s: float = 0.0
    adapter_evicts_s: float = 0.0

    @property
    def cost_s(self) -> float:
        """Seconds until this endpoint would have computed the prompt, and what others then suffer."""
        waits_s = self.wait_s + self.adapter_load_s + self.prefill_s + self.adapter_evicts_s
        return waits_s + self.delays_s + self.displacement_s + self.decode_pressure_s + self.crowding_s


class SplitReason(StrEnum):
    """Why a request was split, or was not. Each one that could be asked about has exactly one."""

    PAYS = "pays"
    NEEDED = "needed"
    """No endpoint that is free to take it can compute the prompt itself."""
    DEARER = "dearer"
    """One endpoint for both costs fewer seconds."""
    SHORT_PROMPT = "short_prompt"
    """It has no whole block to hand over."""
    NOT_SPLITTABLE = "not_splittable"
    """Several answers or prompts, tokens that are not known here, or another route than chat and completions."""
    NO_PREFILL_ENDPOINT = "no_prefill_endpoint"
    """None is up and free for it."""
    NO_DECODE_ENDPOINT = "no_decode_endpoint"
    """None is up, free for it, and of the engine and version of one that prefills."""
    PREFILL_FAILED = "prefill_failed"
    """It was to be, but those who could compute the prompt failed, or handed nothing over."""
    DECODE_FAILED = "decode_failed"
    """It was, and who answers could not go on with what it was handed, so it does all by itself now."""


class SplitTerms(msgspec.Struct, frozen=True):
    """Seconds on both sides. `unsplit_s` is None where nobody can take the request alone."""

    prefill_s: float
    """Wait, prefill and what others suffer, where the prompt is computed."""
    transfer_s: float
    decode_wait_s: float
    """Of prompts that are computed where the answer is made, and of a cache that is nearly full."""
    answers_s: float
    unsplit_s: float | None = None
    unsplit_stall_s: float = 0.0
    unsplit_answers_s: float = 0.0

    @property
    def split_cost_s(self) -> float:
        """What it costs at two endpoints."""
        return self.prefill_s + self.transfer_s + self.decode_wait_s + self.answers_s

    @property
    def unsplit_cost_s(self) -> float | None:
        """What it costs at one."""
        return None if self.unsplit_s is None else self.unsplit_s + self.unsplit_stall_s + self.unsplit_answers_s

    @property
    def pays(self) -> bool:
        """Whether two are cheaper than one."""
        unsplit_s = self.unsplit_cost_s
        return unsplit_s is None or self.split_cost_s < unsplit_s


class SplitPart(msgspec.Struct, frozen=True):
    """What of a decision is about the split: who computes the prompt, and the seconds. `carried_tokens` are those of
    the prompt that are not in the cache of who answers."""

    prefill: Candidate
    terms: SplitTerms
    carried_tokens: int
    reason: SplitReason


class Decision(msgspec.Struct, frozen=True):
    """The chosen endpoint with every reason: all that were considered, and why the others were not.

    The terms of each are a function of its candidate and the demand (`terms_of`).
    `costs_s` are their sums, in the order of the candidates, where the decision has computed them; else empty.
    `observed` is what another policy would have decided, where one is only watched; `candidates` and costs are as that
    one saw them, and not kept twice. `copy_cost_s` is what it pays for a copy of a hot prefix, made on purpose;
    `copy_saved_s` what it saves at such a copy against the cheapest of the holders that there were without. `split` is
    set where another endpoint computes the prompt: `chosen` is who answers, as it is once it was handed the prompt.
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
    split: SplitPart | None = None

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt that it is about."""
        return self.demand.prompt_tokens

    @property
    def endpoint_id(self) -> str:
        """The chosen endpoint."""
        return self.chosen.endpoint_id

    @property
    def place(self) -> str:
        """The chosen endpoint, or the rank of it."""
        return self.chosen.place

    @property
    def agrees(self) -> bool:
        """Whether the policy that is only watched would have chosen the same."""
        return self.observed is None or self.observed.place == self.place

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
        """The same as those see it who come behind: loads are sums of these (`PerfModel.queue_tokens`). An adapter that
        is loaded first makes them wait too."""
        speed = self.chosen.speed
        loading = self.chosen.adapter_load_s * speed.prefill_tokens_per_s
        return int(speed.queue_tokens(self.work_tokens, self.prompt_tokens) + loading)
