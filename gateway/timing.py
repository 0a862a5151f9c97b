"""Where the time of a request goes: moments noted on its way, and the steps between them.

    arrived     body whole  parsed     next model  rendered   token ids   chain   matched   admitted   its turn
       |--body------|--edge----|--fallback--|--render--|--tokens---|--chain--|--match--|--limits--|--queue--|
                                                                                                            |
    durable   handed in   opened     first bytes    connected    sent   prompt elsewhere  last failure       |
       |--settle--|--answer--|--open------|--first_byte--|--connect--|--decide--|--prefill--|--retries-------|

A moment ends the step that has its place; one that did not come is 0.0, and its step is not there. Nothing is counted
while the request is served: the steps are told once it is over.

Costs: a reading of the clock and a store for each moment, and 0.15 µs for each step at the end: 3 µs a request.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from prometheus_client import CollectorRegistry

from gateway.metrics import histograms, observe_spans

Headers = tuple[tuple[bytes, bytes], ...]

BOUNDS_S: Final = (
    *(1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3),
    *(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0),
)
_ASKS: Final = (b"x-prefixgate-timing", b"1")


class Step(StrEnum):
    """What is done between two moments, in their order."""

    BODY = "body"
    """The client sends it; waiting for a place is part of it."""
    EDGE = "edge"
    """The body is read."""
    FALLBACK = "fallback"
    """Models that were asked before did not answer."""
    RENDER = "render"
    """Messages become text."""
    TOKENS = "tokens"
    """Text becomes token ids, here or at an engine."""
    CHAIN = "chain"
    """Token ids become hashes."""
    MATCH = "match"
    """The index is asked."""
    LIMITS = "limits"
    """Limits and budgets are asked, where the tenant has some."""
    QUEUE = "queue"
    """All endpoints that may serve it are full."""
    RETRIES = "retries"
    """Attempts that failed."""
    PREFILL = "prefill"
    """Another endpoint computes the prompt for the one that answers."""
    DECIDE = "decide"
    """An endpoint is chosen, and gets the body as it must be there."""
    CONNECT = "connect"
    """A connection is got: nothing where a kept one is at hand."""
    FIRST_BYTE = "first_byte"
    """The endpoint works, until the first bytes of its answer are here."""
    OPEN = "open"
    """The ledger has not yet got the row of the request."""
    ANSWER = "answer"
    """The answer is passed on."""
    SETTLE = "settle"
    """The ledger makes the usage durable."""


STEPS: Final = tuple(Step)
_SHARED: Final = frozenset({Step.RENDER, Step.TOKENS, Step.CHAIN, Step.PREFILL, Step.FIRST_BYTE})
"""What others sent before makes these quicker: what was tokenised or computed once is kept."""
_COARSE_MS: Final = 10


@dataclass(slots=True)
class Marks:
    """The moments of one request by the monotonic clock, in seconds; each ends the step of the same place."""

    received_s: float = 0.0
    parsed_s: float = 0.0
    fell_back_s: float = 0.0
    rendered_s: float = 0.0
    tokens_s: float = 0.0
    planned_s: float = 0.0
    matched_s: float = 0.0
    admitted_s: float = 0.0
    queued_s: float = 0.0
    failed_s: float = 0.0
    prefilled_s: float = 0.0
    sent_s: float = 0.0
    connected_s: float = 0.0
    answered_s: float = 0.0
    opened_s: float = 0.0
    ended_s: float = 0.0
    settled_s: float = 0.0

    @property
    def moments(self) -> tuple[float, ...]:
        """All of them, in the order of the steps."""
        return (
            self.received_s,
            self.parsed_s,
            self.fell_back_s,
            self.rendered_s,
            self.tokens_s,
            self.planned_s,
            self.matched_s,
            self.admitted_s,
            self.queued_s,
            self.failed_s,
            self.prefilled_s,
            self.sent_s,
            self.connected_s,
            self.answered_s,
            self.opened_s,
            self.ended_s,
            self.settled_s,
        )

    @property
    def before_s(self) -> float:
        """How long other models had been asked before."""
        return self.fell_back_s - self.parsed_s if self.fell_back_s else 0.0

    def attempt_failed(self, now_s: float) -> None:
        """The attempt under way has failed; another may follow."""
        self.failed_s = now_s
        self.prefilled_s = self.sent_s = self.connected_s = self.answered_s = 0.0

    def steps(self, began_s: float) -> Iterator[tuple[Step, float, float]]:
        """The steps that there were, each from when to when."""
        for step, moment_s in zip(STEPS, self.moments, strict=True):
            if moment_s:
                yield step, began_s, moment_s
                began_s = moment_s


class StepTimes:
    """The times of all steps of all requests, as a metric."""

    def __init__(self, registry: CollectorRegistry) -> None:
        of = histograms(
            registry,
            "prefixgate_step_seconds",
            "Where the time of requests goes, step by step; one after the other they make up the whole.",
            ["step"],
            BOUNDS_S,
        )
        self._steps = tuple(of(step.value) for step in STEPS)

    def note(self, began_s: float, marks: Marks) -> None:
        """A request is over."""
        observe_spans(self._steps, began_s, marks.moments)


@dataclass(frozen=True, slots=True)
class TimingHeader:
    """Whether answers tell their client how long the steps took until then.

    `when` is asked, always or never. `coarse`: who asks may be a stranger to others, so that steps which are quicker
    where somebody else sent the same before are told to a hundredth of a second, which their sum tells anyhow.
    """

    when: str = "never"
    coarse: bool = True

    def value(self, asked: Headers, began_s: float, marks: Marks) -> bytes | None:
        """The field's value, None where there is to be none."""
        if self.when == "never" or (self.when == "asked" and _ASKS not in asked):
            return None
        return b", ".join(
            b"%b;dur=%b" % (step.encode(), self._ms(step, end_s - start_s))
            for step, start_s, end_s in marks.steps(began_s)
        )

    def _ms(self, step: Step, took_s: float) -> bytes:
        if self.coarse and step in _SHARED:
            return b"%d" % (round(took_s * 1000 / _COARSE_MS) * _COARSE_MS)
        return b"%.3f" % (took_s * 1000)


NO_TIMING: Final = TimingHeader()
