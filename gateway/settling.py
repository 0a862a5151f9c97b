"""Step 10: what was really computed, written down once; and told to the index.

answer ended  --> settle      usage of the engine --> ledger --> (committed) --> the end goes out
answer cut    --> settle_cut --> queue --> run(): counted from what was relayed --> ledger
either way    --> receipt     cached tokens reported < expected: the index forgets the rest, then learns the prompt

    queue --> [ 16 seats ]  the text of each, in one of 2 threads --> tokens, here or (1.5 s for all of it) by an engine
                            whatever fails: its output is unknown, it is settled all the same

An engine that dies cuts all its answers at once, and one that hangs does not tell their tokens either: so they are
counted side by side, each within one deadline.
"""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from traceback import walk_tb
from typing import Final

from msgspec.structs import replace

from backends import EndpointSnapshot, FirstByteTimeout
from billing import Ledger, LedgerUnavailable, Settlement, SettlementState, Usage, UsageFlag, UsageReport
from gateway.disaggregation import billed, prompt_at, split_columns
from gateway.errors import UpstreamTimeout
from gateway.exchange import CUT, Clocks, Exchange
from gateway.fleet import Fleet
from gateway.log_lines import LOGGER, tell
from gateway.miss_reasons import MissReasons
from gateway.outcomes import Outcomes
from gateway.parity import ParityBook, ParityResult
from gateway.perf_book import PerfBook
from gateway.planning import Planner
from gateway.receipts import Receipt, Receipts
from gateway.relay import StreamTee
from gateway.request_counts import count_request, reason_of
from gateway.telemetry import Telemetry
from gateway.traced import inferences, traced
from gateway.tracing import Trace, Tracer
from gateway.waiting import LEDGER_DEADLINE_S

MOST_AT_ONCE: Final = 16
"""Cut answers that are counted at the same time."""
MOST_THREADS: Final = 2
"""Of them, those that take a thread: requests need the others."""
HERE_DEADLINE_S: Final = 5.0
"""Patience with our own tokenizer; 1 MiB of text takes it a second."""
ASKING_DEADLINE_S: Final = 1.5
"""Patience with an engine, for all texts of an answer together: a client may be waiting for its error."""
DRAIN_S: Final = 3.0
"""How long after `close` cut answers are still counted; the rest is settled with an unknown output."""

_SILENT: Final = frozenset({UpstreamTimeout.code, FirstByteTimeout.__name__})
"""Outcomes of attempts at an endpoint that would not answer a question either."""


@dataclass(frozen=True, slots=True)
class SettlerParts:
    """The objects a settler works with."""

    ledger: Ledger
    fleet: Fleet
    planner: Planner
    parity: ParityBook
    telemetry: Telemetry
    clocks: Clocks
    receipts: Receipts
    outcomes: Outcomes
    perf: PerfBook
    misses: MissReasons
    worked: Callable[[str, int, float], None]
    """Told of an endpoint that has computed so many tokens of a prompt, for a request sent so many seconds ago."""
    tracer: Tracer | None = None
    after: tuple[Callable[[Exchange], None], ...] = ()
    """Told of each request that has ended, once."""


class Settler:
    """Settles exchanges. `run` finishes the ones whose request was cut; it outlives them all."""

    def __init__(self, parts: SettlerParts) -> None:
        self._ledger = parts.ledger
        self._fleet = parts.fleet
        self._planner = parts.planner
        self._parity = parts.parity
        self._telemetry = parts.telemetry
        self._clocks = parts.clocks
        self._receipts = parts.receipts
        self._outcomes = parts.outcomes
        self._perf = parts.perf
        self._misses = parts.misses
        self._worked = parts.worked
        self._tracer = parts.tracer
        self._after = parts.after
        self._cut: asyncio.Queue[tuple[Exchange, asyncio.Future[None]] | None] = asyncio.Queue()
        self._threads = asyncio.Semaphore(MOST_THREADS)
        self._counted_until = math.inf

    def settle(self, exchange: Exchange, state: SettlementState) -> asyncio.Future[None]:
        """Hand the settlement to the ledger; the future resolves when it is durable. Makes no I/O itself."""
        return self._write(exchange, state, _report_of(exchange))

    def settle_cut(self, exchange: Exchange) -> asyncio.Future[None]:
        """Have an exchange that was cut, by whomever, counted and settled; the future resolves when it is durable.

        One that is on its way to the ledger already, since the client left after all of its answer had come, is settled
        as it is. Safe inside a cancelled task, since it awaits nothing: the work is done in `run`.
        """
        under_way = exchange.durable
        if under_way is not None and not (under_way.done() and under_way.exception()):
            return under_way
        exchange.attempt_ends(self._clocks.wall(), CUT)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._cut.put_nowait((exchange, done))
        return done

    async def run(self) -> None:
        """Settle cut exchanges, `MOST_AT_ONCE` at a time, until `close`; what is queued by then is settled first.

        Nothing that goes wrong with an exchange ends this: it is logged, and the exchange's future told.
        """
        seats = asyncio.Semaphore(MOST_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            while (item := await self._cut.get()) is not None:
                await seats.acquire()
                group.create_task(self._finish(*item)).add_done_callback(lambda _: seats.release())

    def close(self) -> None:
        """Let `run` end once the queue is empty, in bounded time: after `DRAIN_S` nothing is counted any more."""
        self._counted_until = asyncio.get_running_loop().time() + DRAIN_S
        self._cut.put_nowait(None)

    async def _finish(self, exchange: Exchange, done: asyncio.Future[None]) -> None:
        """Count and settle one; `done` is told whatever happens."""
        failure: LedgerUnavailable | None = LedgerUnavailable("a cut request was not acknowledged")
        try:
            state = exchange.cut_state()
            report = await self._count_cut(exchange) if state.billable else _report_of(exchange)
            async with self._within(LEDGER_DEADLINE_S, after_close_s=LEDGER_DEADLINE_S):
                await asyncio.shield(self._write(exchange, state, report))
            failure = None
        except Exception as error:  # noqa: BLE001 - the guard of the loop in `run`
            failure = error if isinstance(error, LedgerUnavailable) else failure
            _say("a cut request was not settled", exchange, error)
        finally:  # also when it is cancelled
            if exchange.held is not None:
                exchange.held.abandon()
            if not done.done():
                _resolve(done, failure)

    async def _count_cut(self, exchange: Exchange) -> UsageReport:
        """Usage of a cut answer: the last cumulative report, else our own count of the prompt and the text relayed.

        Our own count is flagged as estimated; in it, cached tokens count as expected once a first token was seen, and
        are unknown before. An output that could not be counted, for whatever reason, is unknown. Where text came after
        the last report, its output is completed by our count: who reports early and is cut is not free.
        """
        if exchange.is_counted:
            return _report_of(exchange)
        began = exchange.first_byte_s is not None
        usage = Usage(
            prompt_tokens=exchange.plan.prompt_tokens,
            cached_tokens=exchange.expected_cached_tokens if began else None,
            output_tokens=None if began else 0,
        )
        if began and isinstance(exchange.tee, StreamTee):
            try:
                usage = replace(usage, output_tokens=await self._output_tokens(exchange, exchange.tee))
            except Exception as error:  # noqa: BLE001 - the guard of the loop in `run`: it is settled all the same
                _say("the output of a cut request was not counted", exchange, error)
        return _completed(_report_of(exchange), usage.output_tokens) or UsageReport(
            usage=usage, flags=frozenset({UsageFlag.ESTIMATED})
        )

    async def _output_tokens(self, exchange: Exchange, tee: StreamTee) -> int | None:
        """Tokens of the text relayed: by our own tokenizer, else by an engine's. Raises `TimeoutError`."""
        async with self._threads, self._within(HERE_DEADLINE_S):
            texts = await asyncio.to_thread(tee.texts)
            counted = None if texts is None else await self._sum(exchange, texts, [])
        if texts is None or counted is not None:
            return counted
        async with self._within(ASKING_DEADLINE_S):
            return await self._sum(exchange, texts, self._asked(exchange))

    def _within(self, patience_s: float, after_close_s: float = 0.0) -> asyncio.Timeout:
        """A deadline, which is none too far away once the gateway stops."""
        return asyncio.timeout_at(
            min(asyncio.get_running_loop().time() + patience_s, self._counted_until + after_close_s)
        )

    async def _sum(self, exchange: Exchange, texts: list[str], asked: list[EndpointSnapshot]) -> int | None:
        tokens = 0
        for text in texts:
            count = await self._planner.count_tokens(exchange.request.model, text, asked)
            if count is None:
                return None
            tokens += count
        return tokens

    def _asked(self, exchange: Exchange) -> list[EndpointSnapshot]:
        """Endpoints as they are now, in the order in which they are asked: one that failed in this exchange comes last,
        one that fell silent in it not at all."""
        failed = {attempt.endpoint_id for attempt in exchange.attempts if attempt.outcome != CUT}
        silent = {attempt.endpoint_id for attempt in exchange.attempts if attempt.outcome in _SILENT}
        served = {endpoint.id for endpoint in exchange.endpoints} - silent
        able = [endpoint for endpoint in self._fleet.snapshot() if endpoint.id in served]
        return sorted(able, key=lambda endpoint: endpoint.id in failed)

    def _write(self, exchange: Exchange, state: SettlementState, report: UsageReport) -> asyncio.Future[None]:
        report, started_s = billed(exchange, report), exchange.request.started_s
        now, decision = self._clocks.monotonic(), exchange.decision
        if exchange.first_byte_s is not None:
            exchange.request.marks.ended_s = now
        told = None if UsageFlag.ESTIMATED in report.flags else report.usage
        judgement = self._misses.judge(exchange, told)
        settlement = Settlement(
            request_id=exchange.request.id,
            settled_at=self._clocks.wall(),
            state=state,
            http_status=exchange.http_status,
            endpoint_id=decision.endpoint_id if decision else None,
            usage=report.usage,
            usage_json=report.raw_json,
            convention=report.convention,
            flags=report.flags,
            expected_cached_tokens=exchange.expected_cached_tokens,
            ttft_s=None if exchange.first_byte_s is None else exchange.first_byte_s - started_s,
            duration_s=now - started_s,
            attempts=tuple(exchange.attempts),
            prefill_s=self._prefill_s(exchange, report),
            decode_s=exchange.decode_s,
            verdict=judgement.verdict,
            miss_reason=None if judgement.miss is None else str(judgement.miss),
            changed_segment=judgement.changed_segment,
            lost_tokens=judgement.lost_tokens,
            layout_fixes=None if exchange.request.fixes is None else str(exchange.request.fixes),
            **split_columns(exchange),
        )
        if exchange.carried is not None:
            settlement = exchange.carried.settled(settlement, exchange.tee)
        # First of all: nothing below may keep a bill from being written.
        durable = exchange.durable = self._ledger.settle(settlement)
        held, exchange.held = exchange.held, None
        if held is not None:
            held.settle(settlement, durable)
        self.tell_index(exchange, report)
        if not exchange.counted:
            exchange.counted = True
            if exchange.trace is not None and self._tracer is not None:
                durable.add_done_callback(partial(self._trace, self._tracer, exchange.trace, exchange, settlement))
            self._misses.settled(exchange, judgement, prompt_at(exchange, settlement), told)
            self._count(exchange, settlement)
            for told_of in self._after:
                told_of(exchange)
        return durable

    def tell_index(self, exchange: Exchange, report: UsageReport | None = None) -> None:
        """An attempt has ended, by itself or without an answer: what its receipt says goes to the index, once."""
        sent, exchange.sent = exchange.sent, None
        if sent is None:
            return
        usage = None if report is None or UsageFlag.ESTIMATED in report.flags else report.usage
        reported = usage.cached_tokens if usage is not None else None
        expected, noted = exchange.expected_cached_tokens, exchange.noted_tokens
        verdict = self._receipts.ended(Receipt(sent, exchange.computed, expected, reported, noted))
        if verdict.contradicts:
            self._fleet.contradicted(sent.endpoint_id, sent.holder)
        if usage is not None and usage.prompt_tokens is not None and reported is not None:
            self._worked(sent.endpoint_id, usage.prompt_tokens - reported, self._clocks.monotonic() - sent.sent_s)
        if usage is not None and exchange.prefill is not None:
            self._perf.settled(exchange.prefill, usage, exchange.engine_decode_s)

    def _prefill_s(self, exchange: Exchange, report: UsageReport) -> float | None:
        """Seconds of what the endpoint says it has computed of the prompt, by its fitted speed; None where unknown."""
        usage = report.usage
        if usage is None or UsageFlag.ESTIMATED in report.flags or not exchange.computed:
            return None
        return self._perf.prefill_s(exchange.prompt_place, usage)

    def _count(self, exchange: Exchange, settlement: Settlement) -> None:
        outcome = self._outcomes.settled(exchange, settlement)
        usage = None if UsageFlag.ESTIMATED in settlement.flags else settlement.usage
        count_request(self._telemetry, exchange, settlement)
        if self._tracer is not None and self._tracer.inferences is not None:
            for call in inferences(exchange, settlement, self._urls(settlement)):
                self._tracer.inferences.note(call)
        if settlement.endpoint_id is not None and usage is not None:
            self._compare(exchange, settlement.endpoint_id, usage)
        fields = _log_fields(exchange, settlement, None if outcome is None else outcome.regret_s)
        if exchange.trace is not None:
            fields["trace_id"] = exchange.trace.trace_id.decode()
        tell("request", fields)

    def _trace(
        self, tracer: Tracer, trace: Trace, exchange: Exchange, settlement: Settlement, _: asyncio.Future[None]
    ) -> None:
        """A request is over, whatever became of its record."""
        marks, now_s = exchange.request.marks, self._clocks.monotonic()
        if marks.ended_s:
            marks.settled_s = now_s
        tracer.ended(traced(exchange, settlement, trace, now_s, self._urls(settlement)))

    def _urls(self, settlement: Settlement) -> dict[str, str]:
        """Of the endpoints that were tried."""
        tried = {attempt.endpoint_id for attempt in settlement.attempts}
        return {one: self._fleet.config_of(one).url for one in tried if one in self._fleet}

    def _compare(self, exchange: Exchange, endpoint_id: str, usage: Usage) -> None:
        """Our count of the prompt against the engine's."""
        counted = exchange.plan.counted
        if counted is None or usage.prompt_tokens is None:
            return
        source, ours_tokens = counted
        result = ParityResult(
            at=self._clocks.wall(),
            request_id=exchange.request.id,
            endpoint_id=endpoint_id,
            model=exchange.plan.base or exchange.request.model,
            shape=exchange.plan.shape,
            source=source,
            ours_tokens=ours_tokens,
            engine_tokens=usage.prompt_tokens,
        )
        self._parity.compare(result)
        if not result.equal and exchange.plan.local_tokens is None:  # else they were not believed anyway
            self._telemetry.token_count_mismatch(endpoint_id).inc()


def _report_of(exchange: Exchange) -> UsageReport:
    """What the engine has told so far."""
    return UsageReport() if exchange.tee is None else exchange.tee.usage.result()


def _completed(report: UsageReport, counted: int | None) -> UsageReport | None:
    """A report before the last text, with the output that was counted since; None where nothing was reported."""
    if report.usage is None:
        return None
    told = report.usage.output_tokens
    flags = report.flags | {UsageFlag.ESTIMATED}
    if counted is None:
        return replace(report, flags=flags | {UsageFlag.INCOMPLETE})
    return replace(report, usage=replace(report.usage, output_tokens=max(told or 0, counted)), flags=flags)


def _resolve(done: asyncio.Future[None], failure: LedgerUnavailable | None) -> None:
    if failure is None:
        done.set_result(None)
    else:
        done.set_exception(failure)
        done.exception()  # seen: where the client has left, nobody waits for it


def _say(what: str, exchange: Exchange, error: Exception) -> None:
    """Log a failure by its kind and place; only texts of the ledger's errors are known to hold no content."""
    place = next((f"{frame.f_code.co_name}:{line}" for frame, line in reversed([*walk_tb(error.__traceback__)])), None)
    why = error.why if isinstance(error, LedgerUnavailable) else None
    fields = {"request_id": exchange.request.id, "error": type(error).__name__, "place": place, "why": why}
    LOGGER.error(what, extra={"fields": fields})


def _log_fields(exchange: Exchange, settlement: Settlement, regret_s: float | None) -> dict[str, object]:
    usage = settlement.usage
    return {
        "request_id": settlement.request_id,
        "tenant": exchange.request.tenant.id,
        "model": exchange.request.model,
        "model_asked": exchange.request.asked_model,
        "route": exchange.request.route_path,
        "stream": exchange.request.stream,
        "state": settlement.state.value,
        "status": settlement.http_status,
        "endpoint": settlement.endpoint_id,
        "reason": reason_of(exchange).value,
        "prompt_tokens": usage.prompt_tokens if usage else None,
        "cached_tokens": usage.cached_tokens if usage else None,
        "expected_cached_tokens": settlement.expected_cached_tokens,
        "output_tokens": usage.output_tokens if usage else None,
        "ttft_s": settlement.ttft_s,
        "duration_s": settlement.duration_s,
        "queued_s": exchange.queued_s,
        "attempts": len(settlement.attempts),
        "regret_s": regret_s,
    }
