"""The gateway itself as a policy: the server's own index, candidates, choosers and receipts under the virtual clock.

    choose       RadixIndex.match -> Candidates.of -> Chooser           as steps 5 to 7 of a request
    sent         reservation, Receipts.dispatched, observe speculative  as step 8
    first_token  reservation, Receipts.first_token                      as step 9
    ended        release, Receipts.ended: what the engine reported goes to the index    as step 10
                 PerfBook.settled: how fast it is goes to the decisions

One of these is one gateway replica. Replicas share a `SharedView`, the index and the loads as Redis would give them:
what one writes the others see `delay_s` later, and its loads every `load_interval_s`.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import msgspec

from backends import EndpointFacts, EndpointId, EndpointSnapshot, LoadSample, PerfModel, Reservation
from backends.reservations import InFlightCounter
from backends.simulated import EngineSpec
from billing import Usage
from gateway.candidates import Candidates, Standing
from gateway.perf_book import PerfBook
from gateway.perf_lines import Prefill
from gateway.receipts import Receipt, Receipts, Sent
from gateway.scheduling import Candidate, Chooser, Decision, Demand, Question, behind
from gateway.sim.shared_view import ReplicaIndex
from gateway.sim.types import SimRequest, View
from gateway.telemetry import Telemetry
from gateway.types import InferenceRequest, KeyId, Plan, RequestId, Route, Tenant, TenantId, TokenSource
from prefix_index import Claim, Load, Match
from prefix_index.prompt import PromptView

EXPECTED_OUTPUT_TOKENS = 256
"""As the server expects where a request sets no limit."""


@dataclass(frozen=True, slots=True)
class OurOptions:
    """`speeds` are what the gateway believes of each endpoint, by number, at the start; the last is that of those that
    come later."""

    specs: Sequence[EngineSpec]
    chooser: Chooser
    speeds: Sequence[PerfModel]
    name: str = "prefixgate"


@dataclass(slots=True)
class _Flight:
    """One request that was sent."""

    decision: Decision
    sent: Sent
    reservation: Reservation
    prefill: Prefill
    reported_tokens: int | None = None
    first_token_s: float = 0.0


class OurPolicy:
    """One gateway replica."""

    def __init__(self, options: OurOptions, index: ReplicaIndex, seed: int) -> None:
        self._options = options
        self._index = index
        telemetry = Telemetry()
        self._receipts = Receipts(index, telemetry, lambda: index.now_s)
        self._candidates = Candidates(self._receipts, lambda _: False)
        self._rng = random.Random(seed)  # noqa: S311 - spreads near-ties
        self._standings: list[Standing] = []
        self._generations: list[int] = []
        self._counters: list[InFlightCounter] = []
        self._snapshots: list[EndpointSnapshot] = []
        self._seen_version = -1
        self._decided: tuple[SimRequest, Decision, Match[str], Plan] | None = None
        self._flights: dict[int, _Flight] = {}
        priors = {
            EndpointId(f"e{number}"): options.speeds[min(number, len(options.speeds) - 1)]
            for number in range(len(options.specs))
        }
        self._perf = PerfBook(priors, telemetry.speed, lambda: index.now_s, self._is_as_fast)
        for number in range(len(options.specs)):
            self._add(number)

    @property
    def name(self) -> str:
        """What it is called in tables."""
        return self._options.name

    def expects(self, number: int) -> int | None:
        """What was expected to be cached of a request that is on its way; None of one that is not."""
        flight = self._flights.get(number)
        return None if flight is None else flight.decision.expected_cached_tokens

    @property
    def outstanding(self) -> int:
        """Requests that were sent and have not ended."""
        return len(self._flights)

    def speed_of(self, endpoint: int) -> PerfModel:
        """How fast it has found an endpoint to be."""
        return self._perf.speed_of(f"e{endpoint}")

    def choose(self, request: SimRequest, view: View) -> int:
        """Match, decide."""
        self._index.now_s = view.now_s
        self._poll(view)
        plan = Plan(request.chain, TokenSource.LOCAL)
        match = self._index.match(request.chain, view.now_s)
        pairs = zip(self._snapshots, self._standings, strict=True)
        able, filtered = self._candidates.of(pairs, REQUEST, plan, match)
        decision = self._options.chooser(
            Question(
                candidates=able,
                filtered=filtered,
                demand=Demand(
                    request.prompt_tokens,
                    EXPECTED_OUTPUT_TOKENS,
                    behind(able, self._receipts.recent_work.usual_tokens),
                    self._receipts.recent_work.reused_share,
                ),
                chance=self._rng.random,
                refine=lambda candidate: self._refined(candidate, plan, match),
                chain=request.chain,
            )
        )
        self._decided = request, decision, match, plan
        return int(decision.endpoint_id[1:])

    def sent(self, request: SimRequest, endpoint: int, now_s: float) -> None:
        """Reserve, and tell the index."""
        assert self._decided is not None
        self._index.now_s = now_s
        _, decision, match, plan = self._decided
        sent = self._candidates.sent(self._standings[endpoint], plan, match, now_s)
        reservation = Reservation(self._counters[endpoint], decision.queue_tokens, EXPECTED_OUTPUT_TOKENS)
        self._receipts.dispatched(sent, decision.work_tokens, decision.queue_tokens)
        self._index.observe(sent.holder, request.chain, Claim.SPECULATIVE)
        prefill = self._perf.dispatched(decision, streams=True)
        # Of a thousand candidates each, memory would be full soon.
        alone = msgspec.structs.replace(decision, candidates=(), costs_s=())
        self._flights[request.number] = _Flight(alone, sent, reservation, prefill)

    def first_token(self, request: SimRequest, endpoint: int, now_s: float, cached_tokens: int) -> None:
        """The prompt is computed."""
        self._index.now_s = now_s
        flight = self._flights[request.number]
        flight.reported_tokens = cached_tokens
        flight.first_token_s = now_s
        flight.prefill.first_token(now_s)
        flight.reservation.first_token()
        self._receipts.first_token(flight.sent)

    def ended(self, request: SimRequest, endpoint: int, now_s: float) -> None:
        """The receipt."""
        self._index.now_s = now_s
        flight = self._flights.pop(request.number)
        flight.prefill.end()
        flight.reservation.release()
        began = flight.reported_tokens is not None
        expected, noted = flight.decision.expected_cached_tokens, flight.decision.work_tokens
        self._receipts.ended(Receipt(flight.sent, began, expected, flight.reported_tokens, noted))
        if flight.reported_tokens is not None:
            usage = Usage(request.prompt_tokens, flight.reported_tokens, request.output_tokens)
            self._perf.settled(flight.prefill, usage, now_s - flight.first_token_s)

    def restarted(self, endpoint: int, now_s: float) -> None:
        """Another generation: what was known of the old one no longer matches."""
        self._index.now_s = now_s
        holder = self._standings[endpoint].holder
        self._generations[endpoint] += 1
        self._index.clear(holder)
        self._receipts.cleared(holder)
        self._receipts.recent_work.came_back(f"e{endpoint}")
        self._perf.new_generation(f"e{endpoint}", self._generations[endpoint])
        self._standings[endpoint] = self._standing(endpoint)

    def _refined(self, candidate: Candidate, plan: Plan, match: Match[str]) -> Candidate:
        return self._candidates.refined(candidate, self._standings[int(candidate.endpoint_id[1:])], plan, match)

    def _is_as_fast(self, endpoint_id: str, speed: PerfModel) -> None:
        number = int(endpoint_id[1:])
        self._standings[number] = msgspec.structs.replace(self._standings[number], speed=speed)

    def _add(self, number: int) -> None:
        name = EndpointId(f"e{number}")
        self._generations.append(0)
        self._standings.append(self._standing(number))
        self._counters.append(InFlightCounter(lambda: self._publish(number)))
        self._snapshots.append(EndpointSnapshot(name, healthy=True, generation=0, facts=self._standings[number].facts))

    def _standing(self, number: int) -> Standing:
        spec = self._options.specs[number]
        facts = EndpointFacts(
            engine="simulated",
            block_size=spec.block_size,
            capacity_blocks=spec.capacity_blocks,
            capacity_tokens=spec.capacity_blocks * spec.block_size,
            reports_cached_tokens=True,
            routes=frozenset({Route.CHAT.value}),
        )
        holder = f"e{number}@{self._generations[number]}"
        self._index.set_capacity(holder, spec.capacity_blocks)
        self._receipts.recent_work.set_capacity(f"e{number}", facts.capacity_tokens)
        speed = self._perf.speed_of(f"e{number}")
        return Standing(f"e{number}", holder, 1, facts, speed, keeps_apart=True, routes=facts.routes)

    def _publish(self, number: int) -> None:
        load = self._counters[number].read()
        self._index.set_load(f"e{number}", Load(load.requests, load.uncached_tokens, load.decode_tokens))

    def _poll(self, view: View) -> None:
        """Take over what the view polled since, and who is alive."""
        endpoints = view.endpoints
        if view.version == self._seen_version:
            return
        self._seen_version = view.version
        for number, seen in enumerate(endpoints):
            snapshot = self._snapshots[number]
            known = snapshot.load
            if snapshot.healthy != seen.alive or known is None or known.kv_use != seen.kv_use:
                load = LoadSample(view.now_s, running=seen.running, waiting=seen.waiting, kv_use=seen.kv_use)
                self._snapshots[number] = replace(snapshot, healthy=seen.alive, load=load)


REQUEST = InferenceRequest(
    id=RequestId("simulated"),
    tenant=Tenant(TenantId("simulated"), KeyId("simulated"), "simulated", ""),
    route=Route.CHAT,
    path=Route.CHAT.value,
    model="simulated",
    stream=True,
    client_wants_usage=True,
    max_output_tokens=None,
    prompt=PromptView(messages=[]),
    body=b"",
    headers=(),
    started_s=0.0,
    opened_at=datetime(2026, 1, 1, tzinfo=UTC),
)
"""What candidates are filtered by; the prompt itself is in the plan."""
