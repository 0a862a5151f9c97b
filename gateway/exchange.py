"""One request on its way: everything known about it so far, as the ledger and the index will need it."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import msgspec

from backends import EndpointSnapshot, UpstreamResponse
from billing import Attempt, KeptChain, OpenedRequest, SettlementState
from gateway.attempts import UnderWay
from gateway.continuing import Carried, ContinuedStream, FailuresHeld
from gateway.edge.translation import AnswerTranslator
from gateway.edge.upstream import Outgoing, asks_for_usage
from gateway.limits import Held
from gateway.perf_lines import Prefill
from gateway.queueing.gate import Turn
from gateway.receipts import Sent
from gateway.relay import PlainTee, StreamTee
from gateway.scheduling import Decision
from gateway.seats import Seat
from gateway.split_state import Split
from gateway.stream_format import format_of
from gateway.tracing import Trace
from gateway.translated import TranslatedPlain, TranslatedStream, must_be_uncoded
from gateway.types import Headers, InferenceRequest, Plan, Route
from prefix_index import Match, coarser


@dataclass(frozen=True, slots=True)
class Clocks:
    """The two clocks: `monotonic` in seconds for durations, `wall` in UTC for records."""

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], datetime] = lambda: datetime.now(UTC)


CUT: Final = "cut"
"""How an attempt ends that nobody waits for any more. With `ANSWERED`, that is no fault of its endpoint."""
_MOST_WAITED: Final = 0.25
_MOST_WAITED_S: Final = 0.01
"""A part of an answer's time, and seconds, that handing it on may take where nobody waits for the client."""
_OF_WHO_ANSWERS: Final = (
    *("request", "plan", "match", "matched_s", "carried", "decision", "holder", "split", "outgoing", "dispatched_s"),
    *("prefill", "computed", "first_token_s", "last_token_s", "client_waited_s", "legs_s", "_ended"),
)
"""What is another's once another endpoint is to go on with an answer."""

FirstBytes = tuple[UpstreamResponse, bytes]
"""The head and the first bytes of an engine's answer."""

Outlet = StreamTee | PlainTee | TranslatedStream | TranslatedPlain | ContinuedStream
"""What the answer's bytes go through on their way to the client."""


@dataclass(slots=True)
class Exchange:
    """A request and what has become of it. Mutable, owned by the task that serves it, then by the settler."""

    request: InferenceRequest
    plan: Plan
    match: Match[str]
    endpoints: list[EndpointSnapshot]
    """Who served the model when the request came."""
    matched_s: float = 0.0
    """When the index said so, by the monotonic clock."""
    owner: str | None = None
    """The one endpoint that may take the request, where it continues what is kept there."""
    held: Held | None = None
    """What limits and budgets hold for it, until it is settled."""
    trace: Trace | None = None
    """What it is traced as, where it is."""
    turn: Turn | None = None
    """A place at an endpoint that was promised while all were full, until the request is counted there."""
    queued_s: float = 0.0
    """How long it waited for that."""
    waits: bool = False
    """Whether it waits for one, so that no endpoint is at work on it."""
    opened: asyncio.Future[None] = field(init=False)
    decision: Decision | None = None
    sent: Sent | None = None
    """The attempt under way, until the index has been told how it ended."""
    holder: str = ""
    seat: Seat | None = None
    split: Split | None = None
    """Another endpoint computes the prompt; None where one does both."""
    spared: frozenset[str] = frozenset()
    """Endpoints that failed where another's help may be the reason: they are asked once more if nobody else is left."""
    was_spared: bool = False
    """Whether they were: it is not to be split any more where that can be helped, and who fails now has failed."""
    failed_pairs: list[tuple[tuple[str, str], float]] = field(default_factory=list)
    """Who computed the prompt and who could not go on with it, and when that was asked: the fault of one of the two, if
    others do better."""
    legs_s: float = 0.0
    """How long others worked on it before it was sent to who answers: on its prompt, or on the answer, and died."""
    outgoing: Outgoing | None = None
    """The request as the chosen endpoint gets it."""
    outlet: Outlet | None = None
    tee: StreamTee | PlainTee | None = None
    http_status: int | None = None
    dispatched_s: float = 0.0
    """When the last attempt was sent, by the monotonic clock."""
    first_byte_s: float | None = None
    first_token_s: float | None = None
    """When a token was first seen; of an answer that is no stream, when it was whole."""
    last_token_s: float | None = None
    """When a part of the answer was last seen; what a stream says after its end is none."""
    client_waited_s: float = 0.0
    """How long the answer waited for its client to read."""
    under_way: UnderWay | None = None
    """The attempt under way, as its endpoint's silence is seen by it."""
    doubted: tuple[tuple[str, float], ...] = ()
    """Endpoints that answered 5xx, and when they were asked: their fault, if another one does better."""
    prefill: Prefill | None = None
    """The prompt on its way at the endpoint, as the speed of that is learned from it."""
    computed: bool = False
    """Whether the endpoint has computed the prompt, going by what it has answered so far."""
    attempts: list[Attempt] = field(default_factory=list)
    counted: bool = False
    """Whether metrics and log have it: a settlement may be handed in again, the ledger keeps the first."""
    may_go_on: bool = False
    """Whether another endpoint may go on with the answer where one dies."""
    carried: Carried | None = None
    """What the attempts have come to that died in the middle of the answer; None: none did."""
    durable: asyncio.Future[None] | None = None
    """Resolves when the settlement that was handed in last is durable."""
    _attempt_began_at: datetime | None = None
    _attempt_answers: bool = False
    _ended: bool = False

    @property
    def trace_id(self) -> bytes | None:
        """The trace that it is part of, as hex digits; None where it is not traced."""
        return None if self.trace is None else self.trace.trace_id

    @property
    def endpoint_id(self) -> str:
        """The endpoint that the request was last sent to."""
        assert self.decision is not None, "nothing was sent yet"
        return self.decision.endpoint_id

    @property
    def place(self) -> str:
        """The same, or the rank of it that was chosen."""
        assert self.decision is not None, "nothing was sent yet"
        return self.decision.place

    @property
    def prompt_place(self) -> str:
        """Who computes the prompt."""
        return self.place if self.split is None else self.split.part.prefill.place

    @property
    def prompt_sent(self) -> Sent | None:
        """The prompt at that endpoint, until the index has been told how it ended."""
        return self.sent if self.split is None else self.split.sent

    @property
    def prompt_holder(self) -> str:
        """That endpoint's name in the index."""
        return self.holder if self.split is None else self.split.sent.holder

    @property
    def is_translated(self) -> bool:
        """Whether the answer goes out in another dialect than the engine's."""
        return self.outgoing is not None and self.outgoing.translator is not None

    @property
    def translator(self) -> AnswerTranslator | None:
        """What has read the answer so far, where it is translated."""
        if isinstance(self.outlet, ContinuedStream):
            return self.outlet.translator
        return None if self.outgoing is None else self.outgoing.translator

    @property
    def ttft_s(self) -> float | None:
        """Seconds from the dispatch to the first token; None where none came, or not before the others (no stream)."""
        if self.first_token_s is None or not isinstance(self.tee, StreamTee):
            return None
        return self.first_token_s - self.dispatched_s

    @property
    def decode_s(self) -> float | None:
        """Seconds from the first token to the last; None where they were not seen one by one."""
        if self.first_token_s is None or self.last_token_s is None or not isinstance(self.tee, StreamTee):
            return None
        return self.last_token_s - self.first_token_s

    @property
    def engine_decode_s(self) -> float | None:
        """The same where it says how fast the engine is: not where the answer waited for its client."""
        decode_s = self.decode_s
        if decode_s is None or self.client_waited_s > max(_MOST_WAITED * decode_s, _MOST_WAITED_S):
            return None
        return decode_s

    @property
    def reports_cached_tokens(self) -> bool:
        """Whether the answer said how many of its prompt tokens were cached."""
        usage = self.tee.usage.result().usage if self.tee is not None else None
        return usage is not None and usage.cached_tokens is not None

    @property
    def is_counted(self) -> bool:
        """Whether the engine has told its usage, and no text came after that."""
        tee = self.tee
        return tee is not None and tee.usage.seen and not (isinstance(tee, StreamTee) and tee.uncounted)

    @property
    def expected_cached_tokens(self) -> int | None:
        """What the index expects the chosen endpoint to reuse; None where the prompt's tokens are not the engine's."""
        if self.decision is None or self.plan.prompt_tokens is None:
            return None
        return self.decision.expected_cached_tokens

    @property
    def noted_tokens(self) -> int | None:
        """What loads count of the prompt; None where its tokens are not the engine's."""
        return None if self.decision is None or self.plan.prompt_tokens is None else self.decision.work_tokens

    def opening(self, chain_tokens: int | None = None) -> OpenedRequest:
        """The ledger row of a request that is about to be sent, with a hash for each `chain_tokens` of its prompt."""
        request = self.request
        return OpenedRequest(
            request_id=request.id,
            opened_at=request.opened_at,
            tenant_id=request.tenant.id,
            key_id=request.tenant.key_id,
            share_group=request.tenant.share_group,
            model=request.model,
            route=request.route_path,
            stream=request.stream,
            prompt_tokens_expected=self.plan.prompt_tokens,
            chain=None if chain_tokens is None else kept_chain(self.plan, chain_tokens),
            job_id=request.labels.job_id,
            end_user=request.labels.end_user,
            tags={**(request.labels.tags or {}), **(request.tenant.tags or {})} or None,
            model_asked=None if request.asked_model == request.model else request.asked_model,
            route_rule=None if request.routed is None else request.routed.rule,
        )

    def attempt_begins(self, at: datetime) -> None:
        """An upstream call starts."""
        self._attempt_began_at, self._attempt_answers = at, False

    def attempt_ends(self, at: datetime, outcome: str, output_tokens: int | None = None) -> None:
        """The upstream call that is under way has ended; nothing where none is. `output_tokens`: what it wrote before
        it died, so far as its client got it."""
        if self._attempt_began_at is None or self.decision is None:
            return
        self.attempts.append(
            Attempt(
                request_id=self.request.id,
                ordinal=len(self.attempts),
                endpoint_id=self.decision.endpoint_id,
                started_at=self._attempt_began_at,
                ended_at=at,
                outcome=outcome,
                status=self.http_status if self._attempt_answers else None,
                prompt_tokens=None if output_tokens is None else self.plan.prompt_tokens,
                output_tokens=output_tokens,
            )
        )
        self._attempt_began_at = None

    def mark_attempt(self, endpoint_id: str, was: str, now: str) -> None:
        """The last attempt at an endpoint turned out to be another thing than it was recorded as."""
        for at, attempt in reversed([*enumerate(self.attempts)]):
            if attempt.endpoint_id == endpoint_id and attempt.outcome == was:
                self.attempts[at] = msgspec.structs.replace(attempt, outcome=now)
                return

    def answer_begins(self, status: int, headers: Headers, *, streaming: bool) -> Outlet:
        """The head of the answer is here: what its bytes go through from now on.

        Raises `UpstreamFailed` where it must be translated and cannot be read.
        """
        request = self.request
        translator = self.outgoing.translator if self.outgoing is not None else None
        self.http_status, keep_usage = status, translator is not None or not asks_for_usage(request)
        self._attempt_answers = True
        if translator is not None:
            must_be_uncoded(headers)
        if self.carried is not None and self.carried.head_sent:
            joined = self.carried.outlet(keep_usage=keep_usage)
            self.outlet, self.tee = joined, joined.tee
            return joined
        if translator is None:
            held = self.may_go_on and request.route in (Route.CHAT, Route.COMPLETIONS)
            format = FailuresHeld() if held else format_of(request.route)
            plain = StreamTee(format, keep_usage=keep_usage) if streaming else PlainTee()
            self.outlet = self.tee = plain
            return plain
        translated = TranslatedStream(translator) if streaming else TranslatedPlain(translator, status)
        self.outlet, self.tee = translated, translated.tee
        return translated

    def answer_goes_on(self, now_s: float) -> None:
        """A part of the answer is here, and it is one: the first of them says that the prompt is computed."""
        if self.first_token_s is None:
            self.first_token_s = now_s
            if self.prefill is not None:
                seen = isinstance(self.tee, StreamTee)
                (self.prefill.first_token if seen else self.prefill.answered_whole)(now_s)
        if not self._ended:
            self.last_token_s = now_s
            self._ended = isinstance(self.tee, StreamTee) and self.tee.complete

    def goes_on(
        self, carried: Carried, request: InferenceRequest, plan: Plan, match: Match[str], matched_s: float
    ) -> None:
        """Another endpoint is to go on with the answer: by this request, whose prompt ends with what was said."""
        self.carried, self.request, self.plan = carried, request, plan
        self.match, self.matched_s = match, matched_s
        self.computed = self._ended = False
        self.first_token_s = self.last_token_s = None
        self.client_waited_s = 0.0
        self.legs_s = matched_s - request.started_s - self.queued_s  # none of it is overhead
        if self.split is not None:  # of another prompt
            self.split.end()
            self.split = None

    def by_who_answers(self) -> dict[str, object]:
        """What `goes_on` changes, and sending after it, as it stands."""
        return {name: getattr(self, name) for name in _OF_WHO_ANSWERS}

    def nobody_went_on(self, before: Mapping[str, object]) -> None:
        """None wrote anything of those that were to go on with the answer: it is `before`'s alone."""
        self.release()
        if self.split is not None:
            self.split.end()
        self.waits = False
        for name, value in before.items():
            setattr(self, name, value)

    def end_turn(self) -> None:
        """The place that was promised is taken, or not needed; idempotent."""
        if self.turn is not None:
            self.turn.end()
            self.turn = None

    def release(self) -> None:
        """Give back the load at the endpoint; idempotent."""
        self.end_turn()
        if self.under_way is not None:
            self.under_way.end()
            self.under_way = None
        if self.prefill is not None:
            self.prefill.end()
        if self.split is not None:
            self.split.release()
        if self.seat is not None:
            self.seat.release()
            self.seat = None

    def final_state(self) -> SettlementState:
        """How an answer that ended by itself is to be recorded."""
        status = self.http_status or 0
        if status >= 500:
            return SettlementState.FAILED
        if status >= 400:
            return SettlementState.REJECTED
        tee = self.tee
        if isinstance(tee, StreamTee) and (tee.failed or not (tee.complete or tee.usage.seen)):
            return SettlementState.PARTIAL
        return SettlementState.COMPLETE

    def cut_state(self) -> SettlementState:
        """How an answer that was cut is to be recorded: of an error nobody pays for a part either."""
        is_error = self.carried is None and (self.http_status or 0) >= 400
        return self.final_state() if is_error else SettlementState.PARTIAL


def kept_chain(plan: Plan, tokens: int) -> KeptChain | None:
    """A hash for each `tokens` of a prompt, or what whole blocks of its pool come to; None where it has no tokens."""
    if plan.source is None:
        return None
    block_size = plan.chain.block_size
    chain = coarser(plan.chain, max(tokens // block_size, 1) * block_size)
    return KeptChain(chain.block_size, chain.hashes)
