"""What a receipt does to the index, and how cut answers are counted, with a ledger that only takes."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from backends import EndpointId, EndpointSnapshot, PerfModel
from billing import Attempt, LedgerUnavailable, Settlement, SettlementState, UsageFlag
from gateway.decision_log import DecisionLog
from gateway.divergence.watching import Watch
from gateway.exchange import Clocks, Exchange
from gateway.miss_reasons import MissReasons
from gateway.outcomes import Outcomes
from gateway.parity import ParityBook
from gateway.perf_book import PerfBook
from gateway.receipts import Receipts, Sent
from gateway.relay import PlainTee, StreamTee
from gateway.scheduling import Candidate, Decision, Demand
from gateway.settling import MOST_AT_ONCE, Settler, SettlerParts
from gateway.stream_format import ChatFormat
from gateway.telemetry import Telemetry
from gateway.types import InferenceRequest, KeyId, Plan, Reason, RequestId, Route, Tenant, TenantId, TokenSource
from prefix_index import Chain, Match, SharedIndex, TokenIds, chain_of
from prefix_index.prompt import PromptView
from tests.gateway.scripted_engine import event

HOLDER = "e0@1"
BLOCK = 16


def chain(*blocks: int) -> Chain:
    """A chain whose blocks are told apart by a number each."""
    return chain_of(TokenIds(b"".join(number.to_bytes(4, "little") * BLOCK for number in blocks)), b"root", BLOCK)


def sent(plan: Plan, request_id: str = "r") -> Exchange:
    """An exchange that was answered by e0, for which 32 cached tokens were expected."""
    tenant = Tenant(TenantId("t"), KeyId("k"), "g", "salt")
    request = InferenceRequest(
        id=RequestId(request_id),
        tenant=tenant,
        route=Route.COMPLETIONS,
        path=Route.COMPLETIONS.value,
        model="m",
        stream=False,
        client_wants_usage=False,
        max_output_tokens=1,
        prompt=PromptView(prompt=""),
        body=b"{}",
        headers=(),
        started_s=0.0,
        opened_at=datetime.now(UTC),
    )
    exchange = Exchange(request, plan, match=Match(), endpoints=[])
    chosen = Candidate("e0", 32, 32, 0, PerfModel(0.0, 1.0, 0.0, 0.0))
    exchange.decision = Decision(chosen, Reason.PREFIX_HIT, [chosen], {}, Demand(plan.chain.prompt_tokens, 1))
    exchange.holder = HOLDER
    is_exact = plan.prompt_tokens is not None
    exchange.sent = Sent("e0", HOLDER, plan.chain, sent_s=0.0, confirmed_blocks=2, exact=is_exact)
    exchange.http_status = 200
    return exchange


def a_perf_book(telemetry: Telemetry) -> PerfBook:
    """Speeds of e0 alone, which nobody asks for."""
    return PerfBook({EndpointId("e0"): PerfModel()}, telemetry.speed, Clocks().monotonic, lambda *_: None)


def answered(plan: Plan, cached_tokens: int) -> Exchange:
    """One whose answer reports `cached_tokens`."""
    usage = {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": cached_tokens}}
    exchange = sent(plan)
    exchange.first_byte_s, exchange.computed = 1.0, True
    exchange.tee = tee = PlainTee()
    tee.feed(json.dumps({"usage": usage}).encode())
    tee.held()
    return exchange


@pytest.mark.parametrize(
    ("source", "other_branch_blocks"), [(TokenSource.LOCAL, 2), (TokenSource.ENGINE, 2), (TokenSource.BYTES, 3)]
)
async def test_a_receipt_below_what_was_expected_is_believed_only_where_the_tokens_are_the_engines(
    source: TokenSource, other_branch_blocks: int
) -> None:
    ours, other = chain(1, 2, 3), chain(1, 2, 4)
    index = SharedIndex(None, pool="p", replica="r")
    index.observe(HOLDER, other)
    ledger: Any = SimpleNamespace(settle=lambda settlement: asyncio.get_running_loop().create_future())
    planner: Any = None
    fleet: Any = SimpleNamespace(contradicted=lambda endpoint_id, holder: None, endpoint_of=lambda holder: "e0")
    telemetry, clocks = Telemetry(), Clocks()
    receipts = Receipts(index, telemetry, clocks.monotonic)
    settler = Settler(
        SettlerParts(
            ledger,
            fleet,
            planner,
            ParityBook(telemetry),
            telemetry,
            clocks,
            receipts,
            Outcomes(DecisionLog(), telemetry),
            a_perf_book(telemetry),
            MissReasons(fleet, telemetry, Watch()),
            lambda *_: None,
        )
    )
    settler.settle(
        answered(Plan(ours, source, exact=source is not TokenSource.BYTES), cached_tokens=BLOCK),
        SettlementState.COMPLETE,
    )
    assert (await index.match(ours)).blocks == {HOLDER: 3}
    assert (await index.match(other)).blocks == {HOLDER: other_branch_blocks}


ENDPOINTS = [EndpointSnapshot(EndpointId(name), healthy=True, generation=1) for name in ("e0", "e1")]
Count = Callable[[str, list[str]], Awaitable[int | None]]
"""Of a text, by one of these endpoints; by our own tokenizer, which there is none here, where there are none."""


def cut(*texts: str, request_id: str = "r") -> Exchange:
    """An exchange whose answer was cut after these texts, one a choice."""
    exchange = sent(Plan(chain(1, 2, 3), TokenSource.LOCAL), request_id)
    exchange.endpoints = ENDPOINTS
    exchange.first_byte_s = 1.0
    exchange.tee = tee = StreamTee(ChatFormat(), keep_usage=True)
    for index, text in enumerate(texts):
        tee.feed(event({"choices": [{"index": index, "delta": {"content": text}}]}))
    return exchange


@dataclass
class Desk:
    """A settler with a planner that counts as told; `settled` is what its ledger was given."""

    count: Count
    settled: dict[str, Settlement] = field(default_factory=dict)
    ledger_fails: bool = False

    def __post_init__(self) -> None:
        parts: Any = SimpleNamespace(
            ledger=self, fleet=self, planner=self, clocks=Clocks(), telemetry=Telemetry(), worked=lambda *_: None
        )
        parts.tracer, parts.after = None, ()
        index = SharedIndex(None, pool="p", replica="r")
        parts.receipts = Receipts(index, parts.telemetry, parts.clocks.monotonic)
        parts.outcomes = Outcomes(DecisionLog(), parts.telemetry)
        parts.perf = a_perf_book(parts.telemetry)
        parts.parity = ParityBook(parts.telemetry)
        parts.misses = MissReasons(parts.fleet, parts.telemetry, Watch())
        self.settler = Settler(parts)

    def settle(self, settlement: Settlement) -> asyncio.Future[None]:
        """The ledger's."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.ledger_fails:
            future.set_exception(LedgerUnavailable("the disk is full"))
        else:
            self.settled[settlement.request_id] = settlement
            future.set_result(None)
        return future

    def snapshot(self) -> list[EndpointSnapshot]:
        """The fleet's."""
        return ENDPOINTS

    def contradicted(self, endpoint_id: str, holder: str) -> None:
        """The fleet's."""

    def endpoint_of(self, holder: str) -> str:
        """The fleet's."""
        return holder.partition("@")[0]

    async def count_tokens(self, model: str, text: str, endpoints: list[EndpointSnapshot]) -> int | None:
        """The planner's."""
        return await self.count(text, [endpoint.id for endpoint in endpoints]) if endpoints else None

    async def finish(self, *exchanges: Exchange) -> list[asyncio.Future[None]]:
        """Run the settler over cut exchanges until it stops."""
        futures = [self.settler.settle_cut(exchange) for exchange in exchanges]
        self.settler.close()
        await self.settler.run()
        return futures

    def outputs(self) -> dict[str, int | None]:
        """Output tokens by request."""
        return {name: one.usage.output_tokens for name, one in self.settled.items() if one.usage is not None}


async def _counts_nothing(text: str, endpoints: list[str]) -> int | None:
    raise AssertionError("nothing is to be counted")


async def test_a_client_that_leaves_while_its_whole_answer_is_written_down_is_settled_once() -> None:
    desk = Desk(_counts_nothing)
    exchange = answered(Plan(chain(1, 2, 3), TokenSource.LOCAL), cached_tokens=BLOCK)
    durable = desk.settler.settle(exchange, SettlementState.COMPLETE)
    (cut_one,) = await desk.finish(exchange)
    assert cut_one is durable
    assert desk.settled["r"].state is SettlementState.COMPLETE


async def test_a_settlement_that_failed_is_handed_in_again_when_the_answer_is_cut() -> None:
    desk = Desk(_counts_nothing, ledger_fails=True)
    exchange = answered(Plan(chain(1, 2, 3), TokenSource.LOCAL), cached_tokens=BLOCK)
    assert isinstance(desk.settler.settle(exchange, SettlementState.COMPLETE).exception(), LedgerUnavailable)
    desk.ledger_fails = False
    (again,) = await desk.finish(exchange)
    await again
    assert desk.settled["r"].state is SettlementState.PARTIAL


async def test_cut_answers_are_counted_side_by_side_and_not_all_at_once() -> None:
    counting, most = 0, 0
    all_there = asyncio.Event()

    async def counts_once_as_many_ask(text: str, endpoints: list[str]) -> int | None:
        nonlocal counting, most
        counting += 1
        most = max(most, counting)
        if counting == MOST_AT_ONCE:
            all_there.set()
        await all_there.wait()
        await asyncio.sleep(0)
        counting -= 1
        return len(text)

    desk = Desk(counts_once_as_many_ask)
    names = [f"r{number}" for number in range(3 * MOST_AT_ONCE)]
    for done in await desk.finish(*(cut("four", request_id=name) for name in names)):
        await done
    assert desk.outputs() == dict.fromkeys(names, 4)
    assert most == MOST_AT_ONCE


@pytest.mark.parametrize(
    "error", [RecursionError("deep"), ValueError("the text"), KeyError("the text"), TimeoutError()]
)
async def test_what_cannot_be_counted_is_settled_as_unknown_and_ends_nothing(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails_for_one(text: str, endpoints: list[str]) -> int | None:
        if text == "bad":
            raise error
        return len(text)

    desk = Desk(fails_for_one)
    for done in await desk.finish(cut("bad", request_id="a"), cut("four", request_id="b")):
        await done
    assert desk.outputs() == {"a": None, "b": 4}
    assert desk.settled["a"].state is SettlementState.PARTIAL
    assert desk.settled["a"].flags == {UsageFlag.ESTIMATED}
    (said,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert "the text" not in str(vars(said))
    assert type(error).__name__ in str(vars(said))


async def test_who_waits_for_a_settlement_is_told_when_the_ledger_fails_and_the_next_is_tried() -> None:
    async def counts(text: str, endpoints: list[str]) -> int | None:
        return len(text)

    desk = Desk(counts, ledger_fails=True)
    for done in await desk.finish(cut("one", request_id="a"), cut("two", request_id="b")):
        with pytest.raises(LedgerUnavailable, match="disk is full"):
            await done


async def test_a_fault_of_ours_in_one_settlement_is_told_and_ends_nothing() -> None:
    async def counts(text: str, endpoints: list[str]) -> int | None:
        return len(text)

    desk, broken = Desk(counts), cut("one", request_id="a")
    broken.plan = None  # type: ignore[assignment]  # so that whatever looks at it fails
    first, second = await desk.finish(broken, cut("two", request_id="b"))
    with pytest.raises(LedgerUnavailable):
        await first
    await second
    assert desk.outputs() == {"b": 3}


async def test_all_texts_of_an_answer_share_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def never_tells(text: str, endpoints: list[str]) -> int | None:
        asked.append(text)
        await asyncio.Event().wait()
        return None

    monkeypatch.setattr("gateway.settling.ASKING_DEADLINE_S", 0.01)
    desk = Desk(never_tells)
    (done,) = await desk.finish(cut("one", "two", "three"))
    await done
    assert asked == ["one"]
    assert desk.outputs() == {"r": None}


async def test_a_gateway_that_stops_settles_all_that_is_queued_without_asking_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    async def never_tells(text: str, endpoints: list[str]) -> int | None:
        asked.append(text)
        await asyncio.Event().wait()
        return None

    monkeypatch.setattr("gateway.settling.DRAIN_S", 0.0)
    desk = Desk(never_tells)
    names = [f"r{number}" for number in range(200)]
    for done in await desk.finish(*(cut("text", request_id=name) for name in names)):
        await done
    assert desk.outputs() == dict.fromkeys(names, None)
    assert asked == []


@pytest.mark.parametrize(
    ("outcome", "asked"),
    [
        ("cut", ["e0", "e1"]),
        ("answered", ["e1", "e0"]),
        ("upstream_failed", ["e1", "e0"]),
        ("upstream_timeout", ["e1"]),
    ],
)
async def test_an_endpoint_that_has_just_failed_is_asked_after_the_others_and_a_silent_one_not_at_all(
    outcome: str, asked: list[str]
) -> None:
    found: list[list[str]] = []

    async def counts(text: str, endpoints: list[str]) -> int | None:
        found.append(endpoints)
        return len(text)

    exchange, now = cut("text"), datetime.now(UTC)
    exchange.attempts.append(Attempt(exchange.request.id, 0, "e0", now, now, outcome, 200))
    desk = Desk(counts)
    await desk.finish(exchange)
    assert found == [asked]
    assert desk.outputs() == {"r": 4}


async def test_a_settler_that_is_cancelled_leaves_nobody_waiting() -> None:
    asked = asyncio.Event()

    async def never_tells(text: str, endpoints: list[str]) -> int | None:
        asked.set()
        await asyncio.Event().wait()
        return None

    desk = Desk(never_tells)
    done = desk.settler.settle_cut(cut("text"))
    async with asyncio.TaskGroup() as group:
        running = group.create_task(desk.settler.run())
        await asked.wait()
        running.cancel()
    with pytest.raises(LedgerUnavailable):
        await done
