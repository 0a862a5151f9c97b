"""Who may take a request, and what each holds of its prompt: endpoints and a match become candidates of a decision.

    endpoint ── may it? ──no──> filtered, and why
                   └──yes──> candidate: what it holds at most         500 of them: half a millisecond
                                └── refined: how likely it still does    only those that may turn out best

What does not change from request to request (`Standing`) is kept by endpoint, since a decision may be among hundreds.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from backends import EndpointFacts, EndpointSnapshot, PerfModel
from gateway.known import NOTHING, Known, cache_name, known_at, reaches
from gateway.ranks import RankStanding, loads_of
from gateway.receipts import Receipts, Sent
from gateway.scheduling import Candidate, Coverage, Filtered, expectation, expected_cached_tokens, place_name
from gateway.types import InferenceRequest, Plan, Route
from prefix_index import Chain, Load, Match

_NO_LOAD = Load()


class Standing(msgspec.Struct, frozen=True, gc=False):
    """What is known of an endpoint between two changes of it. `keeps_apart` and `routes` are as the share groups need
    them; `ranks` counts the caches behind its address, `ranked` has those that requests are sent to one by one: all of
    them, or none where the engine chooses."""

    endpoint_id: str
    holder: str
    ranks: int
    facts: EndpointFacts
    speed: PerfModel
    keeps_apart: bool
    routes: frozenset[str]
    ranked: tuple[RankStanding, ...] = ()

    @property
    def capacity_tokens(self) -> int | None:
        """Tokens in one of its caches."""
        whole = self.facts.capacity_tokens
        return None if whole is None else max(whole // self.ranks, 1)

    def capacity_blocks(self, block_size: int) -> int | None:
        """The same in blocks of ours."""
        return None if self.capacity_tokens is None else max(self.capacity_tokens // block_size, 1)

    @property
    def places(self) -> list[str]:
        """Where requests queue for it: its ranks, or itself."""
        return [rank.place for rank in self.ranked] or [self.endpoint_id]

    @property
    def caches(self) -> list[str]:
        """Its holders in the index, one a rank."""
        return [cache_name(self.holder, rank) for rank in range(self.ranks)]

    def speaks(self, request: InferenceRequest) -> bool:
        """Whether it takes the request's own bytes, and keeps share groups apart in that dialect too."""
        if request.route is Route.OTHER:
            return f"POST {request.route_path}" in self.facts.open_paths
        return request.route.value in self.routes


class Candidates:
    """Plain calls, no I/O. `is_followed` tells of which endpoints KV events are in step."""

    def __init__(self, receipts: Receipts, is_followed: Callable[[str], bool]) -> None:
        self._receipts = receipts
        self._is_followed = is_followed

    def of(
        self,
        endpoints: Iterable[tuple[EndpointSnapshot, Standing]],
        request: InferenceRequest,
        plan: Plan,
        match: Match[str],
        failed: frozenset[str] = frozenset(),
        owner: str | None = None,
    ) -> tuple[list[Candidate], dict[str, Filtered]]:
        """Who may take a request, at their best, and who may not and why; `owner` is the only one who may."""
        able: list[Candidate] = []
        filtered: dict[str, Filtered] = {}
        chain, load_of, reach = plan.chain, match.loads.get, reaches(match)
        recent, faded = self._receipts.recent_work.faded()
        # What is the same for all is asked once: the loop is most of a decision among hundreds.
        is_anybodys = request.translatable
        spoken = None if is_anybodys or request.route is Route.OTHER else request.route.value
        for endpoint, standing in endpoints:
            endpoint_id, seen = endpoint.id, endpoint.load
            if (
                not (endpoint.healthy or endpoint.last_resort)
                or endpoint.draining
                or not standing.keeps_apart
                or (failed and endpoint_id in failed)
                or (owner is not None and endpoint_id != owner)
                or not (spoken in standing.routes if spoken else is_anybodys or standing.speaks(request))
            ):
                filtered[endpoint_id] = _why(endpoint, standing, failed, owner)
                continue
            if standing.ranked and _lets_choose(standing, request):
                able += self._of_ranks(endpoint, standing, plan, match, reach)
                continue
            blocks = reach.get(standing.holder, 0)
            if standing.ranks > 1:
                blocks = max(reach.get(cache, 0) for cache in standing.caches)
            tokens = _at_best(blocks, standing.facts.block_size, chain) if blocks else 0
            load = load_of(endpoint_id, _NO_LOAD)
            able.append(
                Candidate(
                    endpoint_id,
                    tokens,
                    tokens,
                    load.uncached_tokens,
                    standing.speed,
                    None if seen is None else seen.kv_use,
                    recent.get(endpoint_id, 0.0) * faded,
                    True,  # at its best; names would take twice as long
                    None,
                    None,
                    load.requests,
                )
            )
        return able, filtered

    def refined(self, candidate: Candidate, standing: Standing, plan: Plan, match: Match[str]) -> Candidate:
        """A candidate by how likely what it holds is still there. O(ranks)."""
        known = _known(standing, candidate.rank, match)
        if known is NOTHING:
            return candidate
        receipts, chain, engine_block = self._receipts, plan.chain, standing.facts.block_size
        told = self._is_told(standing, plan)
        age_s, turnovers = (None, None) if told else (known.age_s, self._turnovers(standing, candidate.place, known))
        survival = receipts.probability(standing.endpoint_id, age_s, turnovers)
        expected_tokens, cached_tokens = expectation(
            Coverage(
                confirmed_blocks=known.confirmed_blocks,
                speculative_blocks=known.speculative_blocks,
                survival=survival,
                withheld_tokens=receipts.habit_tokens(standing.endpoint_id, engine_block or chain.block_size),
                host_blocks=known.host_blocks,
                disk_blocks=known.disk_blocks,
            ),
            block_size=chain.block_size,
            prompt_tokens=chain.prompt_tokens,
            engine_block_tokens=engine_block,
        )
        return msgspec.structs.replace(
            candidate,
            cached_tokens=cached_tokens,
            expected_cached_tokens=expected_tokens,
            at_best=False,
            matched_tokens=candidate.known_tokens,
            survival=survival if known.confirmed_blocks else None,
        )

    def sent(self, standing: Standing, plan: Plan, match: Match[str], sent_s: float, rank: int | None = None) -> Sent:
        """What is known of a prompt at the endpoint that it is sent to, for the receipt to be held against; `rank` is
        the one that it goes to, where that was chosen."""
        known, place = _known(standing, rank, match), place_name(standing.endpoint_id, rank)
        return Sent(
            endpoint_id=standing.endpoint_id,
            holder=known.holder or cache_name(standing.holder, rank or 0),
            place=place,
            chain=plan.chain,
            sent_s=sent_s,
            confirmed_blocks=known.confirmed_blocks,
            speculative_blocks=known.speculative_blocks,
            age_s=known.age_s,
            turnovers=self._turnovers(standing, place, known),
            engine_block_tokens=standing.facts.block_size,
            followed=self._is_told(standing, plan),
            exact=plan.prompt_tokens is not None,
        )

    def _is_told(self, standing: Standing, plan: Plan) -> bool:
        """Whether KV events tell of this prompt: they name token ids, not of bytes, nor of what follows a picture."""
        return plan.exact and self._is_followed(standing.endpoint_id)

    def _of_ranks(
        self, endpoint: EndpointSnapshot, standing: Standing, plan: Plan, match: Match[str], reach: Mapping[str, int]
    ) -> Iterator[Candidate]:
        """A candidate a rank, at its best. O(ranks)."""
        recent_of, seen = self._receipts.recent_work.tokens_of, endpoint.load
        uses = () if seen is None or len(seen.rank_kv_use) != len(standing.ranked) else seen.rank_kv_use
        loads = loads_of(standing.endpoint_id, standing.ranked, match.loads)
        for rank, load in zip(standing.ranked, loads, strict=True):
            blocks = reach.get(rank.holder, 0)
            tokens = _at_best(blocks, standing.facts.block_size, plan.chain) if blocks else 0
            yield Candidate(
                endpoint_id=standing.endpoint_id,
                cached_tokens=tokens,
                expected_cached_tokens=tokens,
                queued_tokens=load.uncached_tokens,
                speed=rank.speed,
                kv_use=uses[rank.number] if uses else None if seen is None else seen.kv_use,
                recent_tokens=recent_of(rank.place),
                queued_requests=load.requests,
                rank=rank.number,
            )

    def _turnovers(self, standing: Standing, place: str, known: Known) -> float | None:
        return self._receipts.turnovers(place, known.age_s, standing.capacity_tokens)


def _why(endpoint: EndpointSnapshot, standing: Standing, failed: frozenset[str], owner: str | None) -> Filtered:
    """The weightiest reason why an endpoint may not take a request."""
    if owner is not None and endpoint.id != owner:
        return Filtered.NOT_OWNER
    if endpoint.id in failed:
        return Filtered.FAILED
    if not (endpoint.healthy or endpoint.last_resort):
        return Filtered.UNHEALTHY
    if endpoint.draining:
        return Filtered.DRAINING
    return Filtered.NOT_SPOKEN if standing.keeps_apart else Filtered.NO_SALT


def _lets_choose(standing: Standing, request: InferenceRequest) -> bool:
    """Whether the engine heeds a rank on the route by which the request reaches it."""
    route = request.route.value if standing.speaks(request) else Route.CHAT.value
    return route in standing.facts.ranked_routes


def _known(standing: Standing, rank: int | None, match: Match[str]) -> Known:
    """What is known of one rank's cache, or of the one that reaches furthest where the engine chooses."""
    if rank is None:
        return known_at(standing.holder, standing.ranks, match)
    return known_at(cache_name(standing.holder, rank), 1, match)


def _at_best(reach_blocks: int, engine_block: int | None, chain: Chain) -> int:
    """Tokens that are reused if all that is known of is there."""
    tokens = reach_blocks * chain.block_size
    return expected_cached_tokens(tokens, chain.prompt_tokens, engine_block or chain.block_size)
