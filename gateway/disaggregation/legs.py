"""The prefill leg of a request: sent, read to its end, and told to all who learn from it.

body ──edit of the family──> engine ──answer──> handed over, usage        "handed": the decode leg may follow
                                          ├──> ended with its first token, or refused: one endpoint does both
                                          ├──> handed nothing over: the endpoint is set aside
                                          `──> failed: another one

The call itself outlives a client that leaves, by a moment (`Calls`): an engine ends a step that it has begun, which may
be the whole prompt, and then keeps blocks of which nobody would know.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Final

from backends import Deadlines, UpstreamClient, UpstreamError, UpstreamRequest
from backends.disaggregated import Edit, Handed
from billing import PREFILLED, Attempt, Usage
from gateway.attempts import Attempts
from gateway.edge.splice import add_fields, cut_fields
from gateway.edge.upstream import Outgoing
from gateway.engine_bodies import LOOP_SAFE_SPLICED_BYTES, body_for
from gateway.exchange import Clocks, Exchange
from gateway.fleet import Fleet
from gateway.perf_book import PerfBook
from gateway.ranks import rank_headers
from gateway.receipts import Receipt, Receipts
from gateway.relay import PlainTee
from gateway.scheduling import SplitReason
from gateway.split_metrics import SplitMetrics
from gateway.split_state import Split
from gateway.turns import Turns
from gateway.types import InferenceRequest

MOST_ANSWER_BYTES: Final = 16 * 1024 * 1024
"""Of a prefill leg's answer: the ids of a prompt of a million tokens, twice."""
IN_VAIN: Final = "prefilled_in_vain"
"""The outcome of an attempt whose prompt nobody went on with; `PREFILLED` is that where another endpoint did."""


class LegOutcome(StrEnum):
    """What came of a prefill leg."""

    HANDED = "handed"
    ENDED = "ended"
    """The answer is over with its first token: there is nothing to hand over."""
    REFUSED = "refused"
    """The engine has something against the request."""
    FAILED = "failed"
    NOTHING_HANDED = "nothing_handed"
    """It answered as if it were not to hand anything over: its engine is not set up for it."""
    CUT = "cut"
    """The client left, or the other leg failed."""


@dataclass(frozen=True, slots=True)
class LegParts:
    """The objects that legs work with. `worked` is told of an endpoint that computed so many tokens of a prompt, for a
    request sent so many seconds ago."""

    fleet: Fleet
    perf: PerfBook
    receipts: Receipts
    client: UpstreamClient
    metrics: SplitMetrics
    clocks: Clocks
    deadlines: Deadlines
    inject_salt: bool
    turns: Turns | None
    worked: Callable[[str, int, float], None]
    attempts: Attempts


Answer = tuple[int, bytes]
"""Status and body."""


@dataclass(frozen=True, slots=True)
class LateCall:
    """A call whose client has left."""

    call: "asyncio.Task[Answer | Exception]"
    request: InferenceRequest
    split: Split


class Calls:
    """Prefill calls, in a group that outlives requests. `open` must have been called before the first."""

    def __init__(self) -> None:
        self._group: asyncio.TaskGroup | None = None
        self.left: Callable[[LateCall], None] = lambda late: None
        """Told of calls whose clients have left."""

    def open(self, group: asyncio.TaskGroup, left: Callable[[LateCall], None]) -> None:
        """From now on calls are tasks of this group."""
        self._group, self.left = group, left

    def begin(self, call: Coroutine[object, object, Answer]) -> "asyncio.Task[Answer | Exception]":
        """A call as a task, which gives what the call raises: the group is not to end with it."""
        assert self._group is not None, "opened first"
        return self._group.create_task(_caught(call))


async def _caught(call: Coroutine[object, object, Answer]) -> Answer | Exception:
    try:
        return await call
    except Exception as error:  # noqa: BLE001 - raised where it is awaited; the group outlives a fault of ours too
        return error


class PrefillLegs:
    """One per process."""

    def __init__(self, parts: LegParts) -> None:
        self._parts = parts
        self._calls = Calls()

    @property
    def calls(self) -> "Calls":
        """Those under way."""
        return self._calls

    async def run(self, exchange: Exchange, split: Split) -> LegOutcome:
        """Have the prompt computed. The seat is given back, the index and the speeds are told, whatever happens; an
        attempt is recorded. Raises `BadRequest` for a body that cannot be spliced."""
        parts = self._parts
        began_at, began_s, status = parts.clocks.wall(), parts.clocks.monotonic(), None
        split.seat.take(split.sent.holder, exchange.plan.chain)
        parts.receipts.dispatched(split.sent, split.asked.work_tokens, split.asked.queue_tokens)
        split.prefill = parts.perf.dispatched(split.asked, streams=True)
        if parts.fleet.adapters is not None:
            split.prefill.loading = parts.fleet.adapters.sent(exchange.request, split.sent.place)
        may_leave = len(split.asked.candidates) > 1 or split.part.reason is not SplitReason.NEEDED
        under_way = parts.attempts.begins(split.asked, exchange, 1, streams=True, may_leave=may_leave)
        outcome = LegOutcome.CUT
        try:
            status, body = await under_way.unless_silent(self._answered(exchange.request, split))
            parts.attempts.answers(under_way, status)
            if status >= 500:
                exchange.doubted += ((split.endpoint_id, began_s),)
            outcome = await self.read(split, status, body)
        except UpstreamError as error:
            outcome = LegOutcome.FAILED
            parts.fleet.failed(split.endpoint_id, error, began_s)
        except asyncio.CancelledError:
            parts.attempts.left(under_way)
            raise
        finally:
            under_way.end()
            split.legs_s = parts.clocks.monotonic() - began_s
            self._tell(exchange, split, outcome)
            split.seat.release()
            split.prefill.end()
            parts.metrics.prefills(split.endpoint_id, outcome.value).inc()
            exchange.attempts.append(
                Attempt(
                    request_id=exchange.request.id,
                    ordinal=len(exchange.attempts),
                    endpoint_id=split.endpoint_id,
                    started_at=began_at,
                    ended_at=parts.clocks.wall(),
                    outcome=PREFILLED if outcome is LegOutcome.HANDED else f"prefill_{outcome.value}",
                    status=status,
                )
            )
        return outcome

    async def outgoing(self, request: InferenceRequest, endpoint_id: str) -> Outgoing:
        """The request as an endpoint would get it that served it alone."""
        parts = self._parts
        return await body_for(
            request,
            parts.fleet,
            endpoint_id,
            inject_salt=parts.inject_salt,
            priority=None if parts.turns is None else parts.turns.priority_at(endpoint_id, request),
        )

    async def _answered(self, request: InferenceRequest, split: Split) -> Answer:
        """What the call comes to. Where nothing of it can be pinned, it ends with its client."""
        if not split.handover.decode_frees:
            return await self._call(request, split)
        call = self._calls.begin(self._call(request, split))
        try:
            found = await asyncio.shield(call)
        except asyncio.CancelledError:
            self._calls.left(LateCall(call, request, split))
            raise
        if isinstance(found, Exception):
            raise found
        return found

    async def _call(self, request: InferenceRequest, split: Split) -> Answer:
        parts, chosen = self._parts, split.part.prefill
        out = await self.outgoing(request, split.endpoint_id)
        body = await edited(out.body, split.handover.prefill(split.meeting, _is_chat(out)))
        headers = (*split.headers, *rank_headers(chosen.rank))
        upstream = UpstreamRequest("POST", out.path, headers, body)
        endpoint = parts.fleet.config_of(split.endpoint_id)
        async with await parts.client.send(endpoint, upstream, parts.deadlines) as response:
            return response.status, await response.read(MOST_ANSWER_BYTES)

    async def read(self, split: Split, status: int, body: bytes) -> LegOutcome:
        """What an answer hands over, which the split has from now on."""
        if status >= 400:
            return LegOutcome.REFUSED if status < 500 else LegOutcome.FAILED
        is_long = len(body) > LOOP_SAFE_SPLICED_BYTES
        handed, usage = await asyncio.to_thread(_read, split, body) if is_long else _read(split, body)
        split.usage = usage
        if split.handover.is_concurrent:
            split.handed, split.fetched = handed, True
            return LegOutcome.HANDED
        if handed.ended:
            return LegOutcome.ENDED
        if handed.params is None:
            return LegOutcome.NOTHING_HANDED
        split.handed = handed
        return LegOutcome.HANDED

    def _tell(self, exchange: Exchange, split: Split, outcome: LegOutcome) -> None:
        """What a prompt that was computed says of its endpoint; of another, what was speculative is taken back."""
        parts, now_s, sent = self._parts, self._parts.clocks.monotonic(), split.sent
        if outcome in (LegOutcome.REFUSED, LegOutcome.FAILED, LegOutcome.CUT):
            parts.receipts.ended(Receipt(sent, began=False))
            return
        split.handed_s = now_s
        assert split.prefill is not None, "it was dispatched"
        split.prefill.first_token(now_s)
        parts.receipts.first_token(sent)
        cached, usage = split.cached_tokens, split.usage
        known = exchange.plan.prompt_tokens is not None
        verdict = parts.receipts.ended(
            Receipt(
                sent,
                began=True,
                expected_tokens=split.part.prefill.expected_cached_tokens if known else None,
                reported_tokens=cached,
                noted_tokens=split.asked.work_tokens if known else None,
            )
        )
        if verdict.contradicts:
            parts.fleet.contradicted(sent.endpoint_id, sent.holder)
        parts.fleet.succeeded(split.endpoint_id, reports_cached_tokens=cached is not None)
        if usage is not None and usage.prompt_tokens is not None and cached is not None:
            parts.perf.settled(split.prefill, Usage(usage.prompt_tokens, cached, None), None)
            parts.worked(split.endpoint_id, usage.prompt_tokens - cached, now_s - sent.sent_s)


async def edited(body: bytes, edit: Edit) -> bytes:
    """A body after an edit; a long one is spliced in a thread."""
    make = partial(_edited, body, edit)
    return await asyncio.to_thread(make) if len(body) > LOOP_SAFE_SPLICED_BYTES else make()


async def for_decode(out: Outgoing, split: Split) -> Outgoing:
    """The request as who answers gets it, with what was handed over."""
    edit = split.handover.decode(split.meeting, split.handed or Handed(), _is_chat(out))
    return replace(out, body=await edited(out.body, edit))


def _edited(body: bytes, edit: Edit) -> bytes:
    return add_fields(cut_fields(body, edit.cut), edit.put)


def _is_chat(out: Outgoing) -> bool:
    return out.path.partition("?")[0].endswith("/chat/completions")


def _read(split: Split, body: bytes) -> tuple[Handed, Usage | None]:
    tee = PlainTee()
    tee.feed(body)
    tee.held()
    return split.handover.read(body), tee.usage.result().usage
