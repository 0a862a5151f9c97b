"""One endpoint under a clock of its own, whose polls are answered and whose attempts are the tests': its silence."""

from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from backends import EndpointConfig, EndpointId, EndpointState, LoadSample, PerfModel, Registry
from gateway.attempts import Attempts, UnderWay
from gateway.health_config import Health
from gateway.health_metrics import HealthMetrics
from gateway.scheduling import Candidate, Decision, Demand
from gateway.types import Reason

SPEED = PerfModel(base_s=0.1, prefill_tokens_per_s=1000.0, quad_s_per_token2=0.0, itl_s=0.01)
A = EndpointId("a")
TOKENS = 1900
EXPECTED_S = 2.0
"""Of such a prompt, alone."""


@dataclass
class Answer:
    """What a client has got."""

    last_token_s: float | None = None


class World:
    """One endpoint whose polls are answered, its attempts, and the time."""

    def __init__(self, registry: Registry, clock: "Clock", health: Health) -> None:
        self.clock = clock
        self.registry = registry
        self.speed: PerfModel | None = SPEED
        metrics = HealthMetrics(CollectorRegistry())
        self.attempts = Attempts(registry, lambda _: self.speed, health, 600.0, metrics, clock)

    def send(
        self,
        tokens: int = TOKENS,
        *,
        queued: int = 0,
        streams: bool = True,
        answer_tokens: int | None = 100,
        may_leave: bool = True,
        answer: Answer | None = None,
    ) -> UnderWay:
        candidate = Candidate(A, tokens, tokens, queued, SPEED)  # all is thought to be cached there
        decision = Decision(candidate, next(iter(Reason)), [candidate], {}, Demand(tokens, 100))
        return self.attempts.begins(decision, answer or Answer(), answer_tokens, streams=streams, may_leave=may_leave)

    def pass_time(self, seconds: float, *, page: LoadSample | None = None) -> None:
        """Second by second, with a look at each; the engine's page stays as it is."""
        for _ in range(int(seconds)):
            self.clock.now_s += 1
            if page is not None:
                self.page(page)
            self.attempts.look()

    def page(self, page: LoadSample) -> None:
        member = self.registry.member(A)
        assert member is not None
        member.pulse.page(LoadSample(self.clock.now_s, running=page.running, waiting=page.waiting, steps=page.steps))

    def state(self) -> EndpointState:
        return self.registry.snapshot()[0].condition.state

    @property
    def why(self) -> str:
        return self.registry.snapshot()[0].condition.why or ""


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class world_of:
    """A world with this configuration."""

    def __init__(self, health: Health) -> None:
        self._clock = Clock()
        self._registry = Registry([EndpointConfig(A, "http://127.0.0.1:9")], self._clock)
        self._health = health

    async def __aenter__(self) -> World:
        member = self._registry.member(A)
        assert member is not None
        member.reason = None  # as if a poll had been answered
        member.touch()
        return World(self._registry, self._clock, self._health)

    async def __aexit__(self, *_: object) -> None:
        await self._registry.__aexit__(None, None, None)


STILL = LoadSample(0.0, running=8, waiting=3, steps=70.0)
