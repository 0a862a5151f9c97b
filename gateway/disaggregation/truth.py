"""Whose word counts of a request at two endpoints: the prompt is the prefill leg's, the answer the decode leg's.

    prefill leg: cached tokens P       decode leg: prompt, cached tokens D, output tokens
                    │                                   │
                    └──> billed                         └──> held against what its version is to report: a dispute

The client's answer passes as the decode engine wrote it, usage included. Engines of today write P there themselves;
where one does not, the bill and the answer differ, the row is flagged `disputed`, and has both figures.
"""

from typing import TypedDict

from msgspec.structs import replace

from billing import Settlement, Usage, UsageFlag, UsageReport
from billing.verification.verdicts import is_out_of_range
from gateway.exchange import Exchange
from gateway.fleet import Fleet
from gateway.perf_book import PerfBook
from gateway.split_metrics import SplitMetrics
from gateway.split_state import Split
from gateway.transfers import Transfers


def billed(exchange: Exchange, report: UsageReport) -> UsageReport:
    """The report of an answer as it is billed; of a request that one endpoint served, unchanged. Pure."""
    split, usage = exchange.split, report.usage
    if split is None or usage is None or not split.is_handed:
        return report
    prompt = split.usage
    told = replace(
        usage,
        cached_tokens=_at_most(split.cached_tokens, usage.prompt_tokens),
        cache_write_tokens=usage.cache_write_tokens if prompt is None else prompt.cache_write_tokens,
    )
    disputed = UsageFlag.ESTIMATED not in report.flags and is_disputed(split, usage)
    return replace(report, usage=told, flags=report.flags | {UsageFlag.DISPUTED} if disputed else report.flags)


class SplitColumns(TypedDict, total=False):
    """What a settlement has of a request at two endpoints."""

    prefill_endpoint_id: str
    prefill_cached_tokens: int | None
    decode_cached_tokens: int | None


def split_columns(exchange: Exchange) -> SplitColumns:
    """What the ledger keeps beside the bill; nothing of a request that one endpoint served."""
    split = exchange.split
    if split is None or not split.is_handed:
        return {}
    usage = None if exchange.tee is None else exchange.tee.usage.result().usage
    return {
        "prefill_endpoint_id": split.endpoint_id,
        "prefill_cached_tokens": split.cached_tokens,
        "decode_cached_tokens": None if usage is None else usage.cached_tokens,
    }


def prompt_at(exchange: Exchange, settlement: Settlement) -> str | None:
    """Who computed the prompt of a request that has ended; None where nobody was chosen."""
    split = exchange.split
    return settlement.endpoint_id if split is None or not split.is_handed else split.endpoint_id


def is_disputed(split: Split, reported: Usage) -> bool:
    """Whether a decode engine reports other cached tokens than its version is to."""
    if reported.prompt_tokens is None:
        return False
    return is_out_of_range(reported.cached_tokens, split.reports(reported.prompt_tokens))


def received(exchange: Exchange, split: Split, fleet: Fleet, now_s: float) -> None:
    """Who answers shows a token: where its engine keeps what it was handed, the next turn finds it there."""
    if split.handover.keeps_prompt:
        fleet.received(split.decode.candidate, exchange.plan.chain, split.part.carried_tokens, now_s)


class SplitTruth:
    """What of the end of a decode leg is learned, and counted. Plain calls."""

    def __init__(self, perf: PerfBook, transfers: Transfers, metrics: SplitMetrics) -> None:
        self._perf = perf
        self._transfers = transfers
        self._metrics = metrics

    def ended(self, exchange: Exchange) -> None:
        """A request has ended, however: once for each."""
        split = exchange.split
        if split is None or not split.is_handed or not exchange.computed or exchange.tee is None:
            return
        usage = exchange.tee.usage.result().usage
        if exchange.ttft_s is not None:
            began_s = exchange.dispatched_s
            if split.handover.is_concurrent:
                began_s = max(began_s, split.handed_s)
            seconds = exchange.dispatched_s + exchange.ttft_s - began_s
            self._transfers.seen(exchange.endpoint_id, seconds, split.part.carried_tokens)
        if usage is None:
            return
        if is_disputed(split, usage):
            self._metrics.disputed(exchange.endpoint_id).inc()
        if exchange.prefill is not None:  # what is reported as not cached was not computed here
            self._perf.settled(exchange.prefill, replace(usage, cached_tokens=None), exchange.engine_decode_s)


def _at_most(cached_tokens: int | None, prompt_tokens: int | None) -> int | None:
    if cached_tokens is None or prompt_tokens is None:
        return cached_tokens
    return min(cached_tokens, prompt_tokens)
