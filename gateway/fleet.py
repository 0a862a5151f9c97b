"""The fleet as the pipeline needs it: endpoints with their speeds, turned into candidates for a decision.

Translates between the rooms: an `EndpointSnapshot` (backends) and a `Match` (prefix_index) become `Candidate`s
(scheduling); work sent to an endpoint is reserved in the registry and told to the index, so that every replica sees it.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from backends import (
    EndpointConfig,
    EndpointFacts,
    EndpointId,
    EndpointSnapshot,
    InFlight,
    PerfModel,
    Registry,
    ServedModel,
    UpstreamError,
)
from gateway.adapters import Adapters
from gateway.candidates import Candidates, Standing
from gateway.known import cache_name
from gateway.log_lines import LOGGER
from gateway.ranks import RankLoads, ranked
from gateway.receipts import Receipts, Sent
from gateway.restraint import thinned
from gateway.roles import Roles
from gateway.scheduling import Candidate, Filtered, endpoint_at, place_name
from gateway.seats import Seat
from gateway.served_models import common_block_size, models_of, only_model, serving, sharing_models
from gateway.slot_books import SlotBooks
from gateway.slow_start import SlowStart
from gateway.types import InferenceRequest, Plan
from prefix_index import Chain, Claim, Load, Match, SharedIndex


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """What the configuration fixes for all endpoints."""

    speeds: Mapping[EndpointId, PerfModel]
    """What is believed of each endpoint until something is measured."""
    block_size: int | None
    capacity_blocks: int | None
    needs_salt: bool
    """Whether endpoints without a salt field must be left out."""
    slow_start_s: float = 0.0
    """How long an endpoint that joins gets less than its share of new work."""
    ranks: Mapping[str, int] = field(default_factory=dict)
    """Data-parallel ranks behind one address, each with a cache of its own, where the configuration says so."""
    ranks_left: set[str] = field(default_factory=set)
    """Endpoints among whose ranks their engines choose, by configuration."""


class Fleet:
    """Endpoints, their speeds and their loads. All methods are plain and make no I/O."""

    def __init__(self, registry: Registry, index: SharedIndex, receipts: Receipts, options: FleetOptions) -> None:
        self._standings: dict[str, Standing] = {}
        self._speeds: dict[str, PerfModel] = dict(options.speeds.items())
        self._ranks = dict(options.ranks)
        self._holders: dict[str, str] = {}
        self._seen: tuple[EndpointSnapshot, ...] | None = None
        self._serving: dict[str, list[EndpointSnapshot]] = {}
        """By model, of those last seen."""
        self._slots = SlotBooks()
        self.roles = Roles()
        """What each endpoint is there for."""
        self._registry = registry
        self._index = index
        self._receipts = receipts
        self._options = options
        self.is_followed: Callable[[str], bool] = lambda _: False
        """Whether what an endpoint of this id holds is told by KV events, so that receipts need not."""
        self._candidates = Candidates(receipts, self.is_followed)
        self.load_changed: Callable[[str, InFlight], None] | None = None
        """Told of what this process has in flight at an endpoint, each time that changes; None: nobody is."""
        self.adapters: Adapters | None = None
        """Who knows of LoRA adapters, once it is there."""
        self._rank_loads = RankLoads()
        self.ranks_found: Callable[[str, Sequence[str]], None] = lambda endpoint_id, places: None
        """Told of the places of an endpoint whose ranks are chosen by the gateway, whenever they may be new."""
        self.slow_start = SlowStart(options.slow_start_s, time.monotonic)

    def follow_events(self, is_followed: Callable[[str], bool]) -> None:
        """Say who tells of which endpoints KV events are in step."""
        self.is_followed = is_followed
        self._candidates = Candidates(self._receipts, is_followed)

    def keep_groups_apart(self, *, needed: bool) -> None:
        """Whether there are several share groups, from now on."""
        if needed != self._options.needs_salt:
            self._options = replace(self._options, needs_salt=needed)
            self._standings = {name: self._standing(name, one.facts) for name, one in self._standings.items()}

    def join(self, endpoint_id: str, speed: PerfModel, ranks: int, *, choose_rank: bool = True) -> None:
        """An endpoint that is new, or another one now, has so many caches and is believed to be so fast. To be called
        before the registry has it."""
        left = self._options.ranks_left
        (left.discard if choose_rank else left.add)(endpoint_id)
        self._ranks[endpoint_id], self._speeds[endpoint_id] = ranks, speed
        standing = self._standings.get(endpoint_id)
        if standing is not None:
            self._standings[endpoint_id] = self._standing(endpoint_id, standing.facts)

    def removed(self, endpoint_id: str) -> None:
        """An endpoint is none of the fleet any more, nor of the registry: what it held counts no more."""
        holder, standing = self.holder_of(endpoint_id), self._standings.pop(endpoint_id, None)
        for cache in [holder] if standing is None else standing.caches:
            self._index.clear(cache)
        self._index.set_load(endpoint_id, Load())
        self._receipts.removed(endpoint_id, holder)
        for rank in () if standing is None else standing.ranked:
            self._index.set_load(rank.place, Load())
            self._receipts.removed(rank.place, rank.holder)
            self._rank_loads.forget(rank.place)
            self._speeds.pop(rank.place, None)
        self._slots.forget(endpoint_id)
        self.slow_start.removed(endpoint_id)
        self._ranks.pop(endpoint_id, None)
        self.roles.removed(endpoint_id)
        self._options.ranks_left.discard(endpoint_id)
        self._speeds.pop(endpoint_id, None)
        self._holders.pop(endpoint_id, None)

    def config_of(self, endpoint_id: str) -> EndpointConfig:
        """The address of an endpoint."""
        return self._registry.config_of(EndpointId(endpoint_id))

    def snapshot(self) -> tuple[EndpointSnapshot, ...]:
        """All endpoints as last seen; new facts of one are told to the index on the way. O(1) while nothing changes."""
        endpoints = self._registry.snapshot()
        if endpoints is self._seen:
            return endpoints
        self._seen, self._serving = endpoints, {}
        for endpoint in endpoints:
            facts = endpoint.facts
            if facts is not None:
                standing = self._standings.get(endpoint.id)
                if standing is None or standing.facts is not facts:
                    self._standings[endpoint.id] = standing = self._standing(endpoint.id, facts)
                    self._publish_capacity(standing)
                    if standing.ranked:
                        self.ranks_found(endpoint.id, [rank.place for rank in standing.ranked])
        return endpoints

    def __contains__(self, endpoint_id: str) -> bool:
        """Whether there is an endpoint of that id."""
        return endpoint_id in self._registry

    def seen(self, endpoint_id: str) -> EndpointSnapshot:
        """One endpoint as last seen. O(endpoints). Raises `UnknownEndpoint`."""
        self.config_of(endpoint_id)
        return next(endpoint for endpoint in self._registry.snapshot() if endpoint.id == endpoint_id)

    def refused_by(self, endpoint_id: str) -> frozenset[str]:
        """Fields of OpenAI's API that the engine would refuse a request for."""
        standing = self._standings.get(endpoint_id)
        return frozenset() if standing is None else standing.facts.refuses

    def takes_salt(self, endpoint_id: str) -> bool:
        """Whether the engine keeps share groups apart by a salt."""
        standing = self._standings.get(endpoint_id)
        return standing is not None and standing.facts.supports_cache_salt

    def holder_of(self, endpoint_id: str) -> str:
        """The endpoint's name in the index: its id and its generation, since a restarted engine holds nothing."""
        return self._holders.get(endpoint_id) or f"{endpoint_id}@0"

    def caches_of(self, endpoint_id: str) -> list[str]:
        """The endpoint's holders in the index, one for each cache behind its address."""
        standing = self._standings.get(endpoint_id)
        return [self.holder_of(endpoint_id)] if standing is None else standing.caches

    def endpoint_of(self, holder: str) -> str | None:
        """The endpoint that is this holder now; None where it is another one since."""
        endpoint_id = holder.rpartition("@")[0]
        if endpoint_id not in self._registry:
            return None
        return endpoint_id if self._holders.get(endpoint_id, f"{endpoint_id}@0") == holder else None

    def new_generation(self, endpoint_id: EndpointId, generation: int) -> None:
        """An endpoint's cache is another one now, or was seen for the first time: it is another holder.

        The generation is the engine's own start time where it tells it, so that replicas agree on the name, and a
        gateway that starts anew finds what is in the index.
        """
        before, is_first = self.holder_of(endpoint_id), endpoint_id not in self._holders
        self._holders[endpoint_id] = f"{endpoint_id}@{generation}"
        standing = self._standings.pop(endpoint_id, None)
        self._seen = None
        for place in [endpoint_id] if standing is None else standing.places:
            self._receipts.recent_work.came_back(place)
        if standing is not None or not is_first:
            LOGGER.warning("endpoint restarted", extra={"fields": {"endpoint": endpoint_id, "generation": generation}})
            for cache in [before] if standing is None else standing.caches:
                self._index.clear(cache)
                self._receipts.cleared(cache)

    def set_speed(self, place: str, speed: PerfModel) -> None:
        """An endpoint, or a rank of it, is as fast as this, from the next decision on. O(ranks)."""
        self._speeds[place] = speed
        endpoint_id = endpoint_at(place)
        standing = self._standings.get(endpoint_id)
        if standing is not None:
            self._standings[endpoint_id] = self._standing(endpoint_id, standing.facts)

    def dispatch(self, endpoint_id: str, holder: str, chain: Chain) -> None:
        """A prompt is sent to an endpoint, whose `holder` has it from now on, as far as is known.

        What the prompt overwrites in an engine of slots is forgotten, where such engines have been seen to do that.
        """
        standing = self._standings.get(endpoint_id)
        if standing is not None and standing.facts.slots is not None:
            lost = self._slots.place(endpoint_id, holder, standing.facts.slots, chain)
            if lost is not None:
                self._index.forget(holder, *lost)
        self._index.observe(holder, chain, Claim.SPECULATIVE)

    def freed(self, endpoint_id: str, chain: Chain) -> None:
        """The work on a prompt has ended: in an engine of slots another may overwrite it."""
        self._slots.free(endpoint_id, chain)

    def contradicted(self, endpoint_id: str, holder: str) -> None:
        """An engine reported less than was expected. One of slots does overwrite them: only they are believed now."""
        chains = self._slots.contradicted(endpoint_id, holder)
        if chains is not None:
            self._index.clear(holder)
            self._receipts.cleared(holder)
            for chain in chains:
                self._index.observe(holder, chain, Claim.CONFIRMED)

    def failed(self, endpoint_id: str, error: UpstreamError, began_s: float | None = None) -> None:
        """A call to an endpoint failed, which was sent then."""
        self._registry.report_failure(EndpointId(endpoint_id), error, began_s)

    def succeeded(self, endpoint_id: str, *, reports_cached_tokens: bool) -> None:
        """An endpoint answered."""
        self._registry.report_success(EndpointId(endpoint_id), reports_cached_tokens)

    def serving(self, model: str) -> list[EndpointSnapshot]:
        """Endpoints known to serve `model`, up or down; not to be changed by the caller. O(1) until something changes.

        Raises `ModelNotFound` where endpoints are known and none serves it, `NoEndpoint` where none is known yet.
        """
        endpoints = self.snapshot()
        found = self._serving.get(model)
        if found is None:
            self._serving[model] = found = serving(endpoints, model)
        return found

    def only_model(self) -> str:
        """The model meant by a request that names none: the only one there is, adapters apart.

        Raises `BadRequest` where there are several, `NoEndpoint` where none is known yet.
        """
        return only_model(self.snapshot())

    def shut_out(self) -> list[str]:
        """Endpoints that take nothing because their engine cannot keep share groups apart, and there are several."""
        if not self._options.needs_salt:
            return []
        return [e.id for e in self.snapshot() if e.facts is not None and not e.facts.supports_cache_salt]

    def models(self) -> dict[str, ServedModel]:
        """Every model that an endpoint which takes requests serves, by name."""
        return models_of(self.snapshot())

    def block_size(self, endpoints: Iterable[EndpointSnapshot]) -> int:
        """Tokens a block for prompts of these endpoints: the configured size, else one that suits them all."""
        return self._options.block_size or common_block_size(endpoints)

    def candidates(
        self, request: InferenceRequest, plan: Plan, match: Match[str], failed: frozenset[str], owner: str | None = None
    ) -> tuple[list[Candidate], dict[str, Filtered]]:
        """Who may take a request, at their best, and who may not and why. O(endpoints).

        `owner` is the one endpoint that may, where it matters. Raises as `serving` does.
        """
        asked, prefill = self.roles.answering(self._allowed(request))
        pairs = ((endpoint, self._standings[endpoint.id]) for endpoint in asked)
        able, filtered = self._candidates.of(pairs, request, plan, match, failed, owner)
        if self.adapters is not None:
            able = self.adapters.weighed(request, able, asked)
        filtered.update(prefill)
        able = thinned(self._registry.restrained, able, filtered, request.routed)
        return self.slow_start.thinned(able, filtered), filtered

    def prefill_candidates(
        self, request: InferenceRequest, plan: Plan, match: Match[str], without: frozenset[str]
    ) -> list[Candidate]:
        """Who may compute a prompt for another endpoint, at their best. O(endpoints). Raises as `serving` does."""
        pairs = ((one, self._standings[one.id]) for one in self.roles.prefilling(self._allowed(request)))
        able, filtered = self._candidates.of(pairs, request, plan, match, without)
        return thinned(self._registry.restrained, able, filtered)

    def _allowed(self, request: InferenceRequest) -> Sequence[EndpointSnapshot]:
        asked, scopes = self.serving(request.model), request.tenant.scopes
        if request.routed is not None and request.routed.endpoints is not None:
            asked = [endpoint for endpoint in asked if request.routed.allow_endpoint(endpoint.id)]
        return asked if scopes is None else [endpoint for endpoint in asked if scopes.allow_endpoint(endpoint.id)]

    def facts_of(self, endpoint_id: str) -> EndpointFacts | None:
        """What an endpoint has said of itself; None where it has not. O(1)."""
        standing = self._standings.get(endpoint_id)
        return None if standing is None else standing.facts

    def is_up(self, endpoint_id: str) -> bool:
        """Whether an endpoint is one of the fleet, and answers."""
        return endpoint_id in self._registry and self._registry.is_healthy(EndpointId(endpoint_id))

    def received(self, at: Candidate, chain: Chain, tokens: int, now_s: float) -> None:
        """An endpoint has got a prompt from another one, so many tokens of it over the wire, and keeps it."""
        self._receipts.fills.note(at.place, tokens, now_s)
        if not self.is_followed(at.endpoint_id):
            self._index.observe(cache_name(self.holder_of(at.endpoint_id), at.rank or 0), chain, Claim.CONFIRMED)

    def refined(self, candidate: Candidate, plan: Plan, match: Match[str]) -> Candidate:
        """A candidate by how likely what it holds is still there."""
        return self._candidates.refined(candidate, self._standings[candidate.endpoint_id], plan, match)

    def expected_at(self, candidate: Candidate, plan: Plan, match: Match[str]) -> int:
        """What a candidate would most likely have reported as cached; 0 where it has restarted since."""
        standing = self._standings.get(candidate.endpoint_id)
        if standing is None:
            return 0
        return self._candidates.refined(candidate, standing, plan, match).expected_cached_tokens

    def sent(self, endpoint_id: str, plan: Plan, match: Match[str], sent_s: float, rank: int | None = None) -> Sent:
        """What is known of a prompt at the endpoint, or the rank of it, that it is sent to, for the receipt to be held
        against."""
        return self._candidates.sent(self._standings[endpoint_id], plan, match, sent_s, rank)

    def reserve(self, endpoint_id: str, uncached_tokens: int, decode_tokens: int, rank: int | None = None) -> Seat:
        """Count work from now on, before it is sent; at the rank too, where one was chosen."""
        name, place = EndpointId(endpoint_id), place_name(endpoint_id, rank)
        reserved = [self._registry.reserve(name, uncached_tokens, decode_tokens)]
        if rank is not None:
            reserved.append(self._rank_loads.reserve(place, uncached_tokens, decode_tokens))
        seat = Seat(self, name, place, *reserved)
        self.publish_load(name, place)
        return seat

    def rank_at(self, endpoint_id: str, turn: int) -> int | None:
        """One rank after the other as `turn` goes up; None where the engine chooses."""
        standing = self._standings.get(endpoint_id)
        return turn % len(standing.ranked) if standing is not None and standing.ranked else None

    def in_flight(self, endpoint_id: str) -> InFlight:
        """What this replica has outstanding at an endpoint."""
        return self._registry.load_of(EndpointId(endpoint_id))

    def publish_load(self, endpoint_id: EndpointId, place: str | None = None) -> None:
        """Tell the index what this replica has outstanding at an endpoint, and at that place of it."""
        if endpoint_id not in self._registry:
            return  # what was sent to its address has ended after it was forgotten
        load = self._registry.load_of(endpoint_id)
        self._index.set_load(endpoint_id, Load(load.requests, load.uncached_tokens, load.decode_tokens))
        if place not in (None, endpoint_id):
            self._index.set_load(place, self._rank_loads.read(place))
        if self.load_changed is not None:
            self.load_changed(endpoint_id, load)

    def block_size_of(self, facts: EndpointFacts) -> int:
        """Tokens a block for prompts of the models that an endpoint serves."""
        return self.block_size(self._same_models(facts))

    def _publish_capacity(self, standing: Standing) -> None:
        """Tell the index how many of its blocks an endpoint holds."""
        for place in standing.places:
            self._receipts.recent_work.set_capacity(place, standing.capacity_tokens)
        blocks = standing.capacity_blocks(self.block_size_of(standing.facts)) or self._options.capacity_blocks
        if blocks is not None:
            for cache in standing.caches:
                self._index.set_capacity(cache, blocks)

    def _same_models(self, facts: EndpointFacts) -> list[EndpointSnapshot]:
        return sharing_models(self._registry.snapshot(), facts)

    def speaks(self, endpoint_id: str, request: InferenceRequest) -> bool:
        """Whether the endpoint takes the request's own bytes, and keeps share groups apart in that dialect too."""
        standing = self._standings.get(endpoint_id)
        return standing is not None and standing.speaks(request)

    def _standing(self, endpoint_id: str, facts: EndpointFacts) -> Standing:
        options, holder, speed = self._options, self.holder_of(endpoint_id), self._speeds[endpoint_id]
        chosen = facts.ranks if facts.ranked_routes and endpoint_id not in options.ranks_left else 0
        return Standing(
            endpoint_id=endpoint_id,
            holder=holder,
            ranks=max(self._ranks.get(endpoint_id, 1), len(facts.event_sources), facts.ranks),
            ranked=ranked(endpoint_id, holder, chosen, self._speeds, speed),
            facts=facts,
            speed=speed,
            keeps_apart=facts.supports_cache_salt or not options.needs_salt,
            routes=facts.salted_routes if options.needs_salt else facts.routes,
        )
