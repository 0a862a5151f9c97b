"""A run: a load, a fleet and one or several routers under a virtual clock.

          arrivals (of the load)  ─┐
          engine k has news at t  ─┼─> heap by time ──> choose, submit ──> engine
          happenings, retries     ─┘                    first token, end ──> policy, records, the next of its session

Time is where the heap says; nothing waits for anything else. Equal times go in the order in which they were put there,
so that the same seeds give the same run.

An engine that restarts drops what it had: a request that had no token yet is sent once more, elsewhere, as the gateway
would; one that had is cut, and counts as failed. So does one that comes while no endpoint is there to take it, and one
that is too long for the engine it was sent to.
"""

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from backends.simulated import Dropped, EngineEvent, Finished, FirstToken, Job, Role, SimulatedEngine
from gateway.sim.fleet import FleetPlan, FleetView, What, view_of
from gateway.sim.records import Records
from gateway.sim.split import DecodePool
from gateway.sim.types import Policy, SimRequest, Workload

Expects = Callable[[int], int | None]


@dataclass(slots=True)
class _Flying:
    """A request between its arrival and its end."""

    request: SimRequest
    row: int
    replica: int
    endpoint: int = -1
    began: bool = False
    decoder: int | None = None
    """Where the answer is written, once the prompt was computed elsewhere."""
    computed: tuple[int, int | None] = 0, None
    """Cached tokens that were reported there, and expected."""


@dataclass(slots=True)
class Run:
    """One run. `policies`: one for each gateway replica; requests go to a replica by chance (`seed`).

    `expects(number)` is what was expected to be cached where a request was sent, for policies that say so. `play` runs
    it to its end and returns the records.
    """

    workload: Workload
    plan: FleetPlan
    policies: Sequence[Policy]
    seed: int = 0
    expects: Expects = lambda _: None
    records: Records = field(init=False)
    engines: list[SimulatedEngine] = field(init=False)
    _views: list[FleetView] = field(init=False)
    _heap: list[tuple[float, int, Callable[[float], None]]] = field(default_factory=list)
    _order: Iterator[int] = field(default_factory=itertools.count)
    _flying: dict[int, _Flying] = field(default_factory=dict)
    _waiting: deque[SimRequest] = field(default_factory=deque)
    _followers: dict[int, list[SimRequest]] = field(default_factory=dict)
    _news: list[float] = field(init=False)
    _comes_s: dict[int, float] = field(default_factory=dict)
    _decoders: DecodePool = field(init=False)
    _rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.engines = [SimulatedEngine(spec, f"e{number}") for number, spec in enumerate(self.plan.specs)]
        self._decoders = DecodePool.of(self.plan.specs)
        self.records = Records(len(self.engines), len(self._decoders.in_flight))
        self._views = [view_of(self.engines, self.plan) for _ in self.policies]
        self._news = [float("inf")] * len(self.engines)
        self._rng = random.Random(self.seed)  # noqa: S311 - simulation

    def play(self) -> Records:
        """Everything, until the last request has ended."""
        for happening in self.plan.happenings:
            self.at(happening.at_s, lambda now_s, h=happening: self._happens(h.endpoint, h.what, now_s))  # type: ignore[misc]
        arrivals = iter(self._arrivals())
        coming = next(arrivals, None)
        heap = self._heap
        while coming is not None or heap:
            if coming is not None and (not heap or coming.at_s <= heap[0][0]):
                self._arrives(coming, coming.at_s)
                coming = next(arrivals, None)
            else:
                now_s, _, act = heapq.heappop(heap)
                act(now_s)
        return self.records

    def at(self, at_s: float, act: Callable[[float], None]) -> None:
        """Do something at a time, after what was put there before."""
        heapq.heappush(self._heap, (at_s, next(self._order), act))

    def _arrivals(self) -> Iterator[SimRequest]:
        """Those that come by themselves; in a closed loop the others wait for the end of theirs."""
        if not self.workload.closed_loop:
            yield from self.workload.requests
            return
        first = []
        for request in self.workload.requests:
            if request.after is None:
                first.append(request)
            else:
                self._followers.setdefault(request.after, []).append(request)
        yield from first

    def _arrives(self, request: SimRequest, now_s: float) -> None:
        most = self.workload.most_in_flight
        if most is not None and len(self._flying) >= most:
            self._waiting.append(request)
        else:
            self._begin(request, now_s)

    def _begin(self, request: SimRequest, now_s: float) -> None:
        replica = self._rng.randrange(len(self.policies)) if len(self.policies) > 1 else 0
        row = self.records.begin(now_s, request.prompt_tokens, request.output_tokens)
        flying = self._flying[request.number] = _Flying(request, row, replica)
        self._send(flying, now_s)

    def _send(self, flying: _Flying, now_s: float) -> None:
        request, view, policy = flying.request, self._views[flying.replica], self.policies[flying.replica]
        view.now_s = now_s
        if not any(endpoint.alive for endpoint in view.endpoints):
            # Not at once: whoever waits for its end would be sent, and fail, within this call.
            self.at(now_s, lambda at_s: self._over(flying, Dropped(request.number, at_s)))
            return
        flying.endpoint = number = policy.choose(request, view)
        policy.sent(request, number, now_s)
        view.counts(number, 1)
        self.records.sent(flying.row, number)
        self._submit(request, number, now_s)

    def _submit(self, request: SimRequest, number: int, now_s: float) -> None:
        answer = max(request.output_tokens, 1)  # recorded answers may be empty; an engine writes a token at least
        job = Job(request.number, request.chain.hashes, request.prompt_tokens, answer)
        self.engines[number].submit(job, now_s)
        self._look_again(number)

    def _decode(self, flying: _Flying, now_s: float) -> None:
        """The prompt is computed: somebody writes the answer."""
        flying.decoder = self._decoders.take()
        if flying.decoder is None:
            self._over(flying, Dropped(flying.request.number, now_s))
        else:
            self._submit(flying.request, flying.decoder, now_s)

    def _look_again(self, number: int) -> None:
        """Put an engine's next news on the heap, if they are earlier than what is there."""
        next_s = self.engines[number].next_s()
        if next_s < self._news[number]:
            self._news[number] = next_s
            self.at(next_s, lambda now_s: self._hear(number, now_s))

    def _hear(self, number: int, now_s: float) -> None:
        if now_s != self._news[number]:
            return  # earlier news had been promised since, and have been heard
        self._advance(number, now_s)

    def _advance(self, number: int, now_s: float) -> None:
        self._news[number] = float("inf")
        for event in self.engines[number].advance(now_s):
            self._tell(event)
        self._look_again(number)

    def _tell(self, event: EngineEvent) -> None:
        flying = self._flying.get(event.number)
        if flying is None:
            return
        if flying.decoder is not None:
            self._tell_decoding(flying, flying.decoder, event)
            return
        policy, view = self.policies[flying.replica], self._views[flying.replica]
        view.now_s = event.at_s
        is_split = self.plan.specs[flying.endpoint].role is Role.PREFILL
        if isinstance(event, FirstToken):
            if not flying.began:
                flying.computed = event.cached_tokens, self.expects(event.number)
                if not is_split:
                    self._begins(flying, event.at_s)
                policy.first_token(flying.request, flying.endpoint, event.at_s, event.cached_tokens)
            return
        policy.ended(flying.request, flying.endpoint, event.at_s)
        view.counts(flying.endpoint, -1)
        if isinstance(event, Dropped) and not flying.began and not event.too_long:
            self._send(flying, event.at_s)
        elif isinstance(event, Finished) and is_split:
            self._decode(flying, event.at_s)
        else:
            self._over(flying, event)

    def _tell_decoding(self, flying: _Flying, decoder: int, event: EngineEvent) -> None:
        if isinstance(event, FirstToken):
            if not flying.began:
                self._begins(flying, event.at_s)
            return
        self._decoders.ended(decoder)
        if isinstance(event, Dropped) and not flying.began and not event.too_long:
            self._decode(flying, event.at_s)
        else:
            self._over(flying, event)

    def _begins(self, flying: _Flying, now_s: float) -> None:
        """The client sees its first token."""
        flying.began = True
        self.records.first_token(flying.row, now_s, *flying.computed)

    def _over(self, flying: _Flying, event: Finished | Dropped) -> None:
        number, now_s = flying.request.number, event.at_s
        if isinstance(event, Finished):
            self.records.ended(flying.row, now_s)
        else:
            self.records.failed += 1
            self.records.too_long += event.too_long
        del self._flying[number]
        for follower in self._followers.pop(number, ()):
            self.at(now_s + follower.think_s, lambda at_s, request=follower: self._arrives(request, at_s))  # type: ignore[misc]
        if self._waiting:
            self._begin(self._waiting.popleft(), now_s)

    def _happens(self, number: int, what: What, now_s: float) -> None:
        engine = self.engines[number]
        alive = what is not What.LEAVE
        self._live(number, False)
        if what is not What.JOIN:
            engine.restart(now_s)
            self._advance(number, now_s)  # what it dropped goes elsewhere
        self._comes_s[number] = now_s + self.plan.specs[number].start_s if alive else float("inf")
        if alive:
            self.at(self._comes_s[number], lambda at_s: self._comes(number, at_s))

    def _comes(self, number: int, now_s: float) -> None:
        if now_s != self._comes_s[number]:
            return  # it was restarted once more while it started, or has left
        self._live(number, True)
        if number not in self._decoders:
            for policy in self.policies:
                policy.restarted(number, now_s)

    def _live(self, number: int, alive: bool) -> None:
        """Those who choose know at once: decode engines are nothing that a policy chooses."""
        if number in self._decoders:
            self._decoders.live(number, alive)
            return
        for view in self._views:
            view.live(number, alive)
