"""Step 10: what was really computed, written down once; and told to the index.

answer ended  --> settle      usage of the engine --> ledger --> (committed) --> the end goes out
answer cut    --> settle_cut --> queue --> run(): counted from what was relayed --> ledger
either way    --> receipt     cached tokens reported < expected: the index forgets the rest, then learns the prompt
"""

import asyncio
from dataclasses import dataclass

from billing import Ledger, LedgerUnavailable, Settlement, SettlementState, Usage, UsageFlag, UsageReport
from gateway.exchange import Clocks, Exchange
from gateway.fleet import Fleet
from gateway.parity import ParityBook, ParityResult
from gateway.planning import Planner
from gateway.relay import StreamTee
from gateway.telemetry import LOGGER, Telemetry
from gateway.types import Reason
from prefix_index import Evidence, SharedIndex


@dataclass(frozen=True, slots=True)
class SettlerParts:
    """The objects a settler works with."""

    ledger: Ledger
    index: SharedIndex
    fleet: Fleet
    planner: Planner
    parity: ParityBook
    telemetry: Telemetry
    clocks: Clocks


class Settler:
    """Settles exchanges. `run` finishes the ones whose request was cut; it outlives them all."""

    def __init__(self, parts: SettlerParts) -> None:
        self._ledger = parts.ledger
        self._index = parts.index
        self._fleet = parts.fleet
        self._planner = parts.planner
        self._parity = parts.parity
        self._telemetry = parts.telemetry
        self._clocks = parts.clocks
        self._cut: asyncio.Queue[tuple[Exchange, asyncio.Future[None]] | None] = asyncio.Queue()

    def settle(self, exchange: Exchange, state: SettlementState) -> asyncio.Future[None]:
        """Hand the settlement to the ledger; the future resolves when it is durable. Makes no I/O itself."""
        report = exchange.tee.usage.result() if exchange.tee is not None else UsageReport()
        return self._write(exchange, state, report)

    def settle_cut(self, exchange: Exchange) -> asyncio.Future[None]:
        """Have an exchange that was cut, by whomever, counted and settled; the future resolves when it is durable.

        Safe inside a cancelled task, since it awaits nothing: the work is done in `run`.
        """
        exchange.attempt_ends(self._clocks.wall(), "cut")
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._cut.put_nowait((exchange, done))
        return done

    async def run(self) -> None:
        """Settle cut exchanges until `close`; what is queued by then is settled first."""
        while (item := await self._cut.get()) is not None:
            exchange, done = item
            report = await self._count_cut(exchange)
            try:
                await self._write(exchange, SettlementState.PARTIAL, report)
            except LedgerUnavailable as error:
                LOGGER.error(
                    "a cut request was not settled: %s", error, extra={"fields": {"request_id": exchange.request.id}}
                )
                done.set_exception(error)
                done.exception()  # seen: where the client has left, nobody waits for it
            else:
                done.set_result(None)

    def close(self) -> None:
        """Let `run` end once the queue is empty."""
        self._cut.put_nowait(None)

    async def _count_cut(self, exchange: Exchange) -> UsageReport:
        """Usage of a cut answer: the last cumulative report, else our own count of the prompt and the text relayed.

        Our own count is flagged as estimated; in it, cached tokens count as expected once a first token was seen, and
        are unknown before.
        """
        if exchange.tee is not None and exchange.tee.usage.seen:
            return exchange.tee.usage.result()
        began = exchange.first_byte_s is not None
        usage = Usage(
            prompt_tokens=exchange.plan.prompt_tokens,
            cached_tokens=exchange.expected_cached_tokens if began else None,
            output_tokens=await self._output_tokens(exchange) if began else 0,
        )
        return UsageReport(usage=usage, flags=frozenset({UsageFlag.ESTIMATED}))

    async def _output_tokens(self, exchange: Exchange) -> int | None:
        texts = await asyncio.to_thread(exchange.tee.texts) if isinstance(exchange.tee, StreamTee) else None
        if texts is None:
            return None
        counts = [await self._planner.count_tokens(exchange.request.model, text, exchange.endpoints) for text in texts]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None

    def _write(self, exchange: Exchange, state: SettlementState, report: UsageReport) -> asyncio.Future[None]:
        now, decision = self._clocks.monotonic(), exchange.decision
        started_s = exchange.request.started_s
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
        )
        if state is SettlementState.COMPLETE and report.usage is not None:
            self._receipt(exchange, report.usage)
        elif exchange.first_byte_s is None or not state.billable:
            self.take_back(exchange)
        if not exchange.counted:
            exchange.counted = True
            self._count(exchange, settlement)
        return self._ledger.settle(settlement)

    def _receipt(self, exchange: Exchange, usage: Usage) -> None:
        """The engine's word: it computed this prompt, so it holds it; less than expected means the rest was gone.

        Where the tokens of the chain are not the engine's, the two counts cannot be compared.
        """
        chain, expected = exchange.plan.chain, exchange.expected_cached_tokens
        if exchange.decision is None or usage.cached_tokens is None:
            return
        if expected is not None and usage.cached_tokens < expected:
            self._index.forget(exchange.holder, chain, usage.cached_tokens // chain.block_size)
            self._fleet.contradicted(exchange.decision.endpoint_id, exchange.holder)
        self._index.observe(exchange.holder, chain, Evidence.CONFIRMED)

    def take_back(self, exchange: Exchange) -> None:
        """No answer: the prompt that was expected to be computed there may not have been; what was known stays."""
        matched = exchange.match.blocks.get(exchange.holder, 0)
        if exchange.decision is not None and matched < len(exchange.plan.chain):
            self._index.forget(exchange.holder, exchange.plan.chain, matched)

    def _count(self, exchange: Exchange, settlement: Settlement) -> None:
        telemetry = self._telemetry
        usage = None if UsageFlag.ESTIMATED in settlement.flags else settlement.usage
        telemetry.requests(exchange.request.route_path, settlement.state.value).inc()
        plan, decision = exchange.plan, exchange.decision
        telemetry.reasons((decision.reason if decision is not None else Reason.NO_DECISION).value).inc()
        telemetry.prompts(plan.source.value if plan.source is not None else "none").inc()
        endpoint_id = settlement.endpoint_id
        if endpoint_id is not None and usage is not None:
            for kind, tokens in (
                ("prompt", usage.prompt_tokens),
                ("cached", usage.cached_tokens),
                ("cached_expected", settlement.expected_cached_tokens),
                ("output", usage.output_tokens),
            ):
                if tokens is not None:
                    telemetry.tokens(endpoint_id, kind).inc(tokens)
            if usage.cached_tokens is None:
                telemetry.unreported(endpoint_id).inc()
            self._compare(exchange, endpoint_id, usage)
        LOGGER.info("request", extra={"fields": _log_fields(exchange, settlement)})

    def _compare(self, exchange: Exchange, endpoint_id: str, usage: Usage) -> None:
        """Our count of the prompt against the engine's."""
        plan = exchange.plan
        if plan.source is None or plan.prompt_tokens is None or usage.prompt_tokens is None:
            return
        result = ParityResult(
            at=self._clocks.wall(),
            request_id=exchange.request.id,
            endpoint_id=endpoint_id,
            model=exchange.request.model,
            shape=plan.shape,
            source=plan.source,
            ours_tokens=plan.prompt_tokens,
            engine_tokens=usage.prompt_tokens,
        )
        self._parity.compare(result)
        if not result.equal:
            self._telemetry.token_count_mismatch(endpoint_id).inc()


def _log_fields(exchange: Exchange, settlement: Settlement) -> dict[str, object]:
    usage = settlement.usage
    return {
        "request_id": settlement.request_id,
        "tenant": exchange.request.tenant.id,
        "route": exchange.request.route_path,
        "stream": exchange.request.stream,
        "state": settlement.state.value,
        "status": settlement.http_status,
        "endpoint": settlement.endpoint_id,
        "reason": exchange.decision.reason.value if exchange.decision else None,
        "prompt_tokens": usage.prompt_tokens if usage else None,
        "cached_tokens": usage.cached_tokens if usage else None,
        "expected_cached_tokens": settlement.expected_cached_tokens,
        "output_tokens": usage.output_tokens if usage else None,
        "ttft_s": settlement.ttft_s,
        "duration_s": settlement.duration_s,
        "attempts": len(settlement.attempts),
    }
