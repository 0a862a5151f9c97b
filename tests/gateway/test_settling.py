"""What a receipt does to the index, with a ledger that only takes."""

import asyncio
import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from billing import SettlementState
from gateway.exchange import Clocks, Exchange
from gateway.parity import ParityBook
from gateway.relay import PlainTee
from gateway.scheduling import Decision
from gateway.settling import Settler, SettlerParts
from gateway.telemetry import Telemetry
from gateway.types import InferenceRequest, KeyId, Plan, Reason, RequestId, Route, Tenant, TenantId, TokenSource
from prefix_index import Chain, SharedIndex, TokenIds, chain_of
from prefix_index.prompt import PromptView

HOLDER = "e0@1"
BLOCK = 16


def chain(*blocks: int) -> Chain:
    """A chain whose blocks are told apart by a number each."""
    return chain_of(TokenIds(b"".join(number.to_bytes(4, "little") * BLOCK for number in blocks)), b"root", BLOCK)


def answered(plan: Plan, cached_tokens: int) -> Exchange:
    """An exchange for which 32 cached tokens were expected, and whose answer reports `cached_tokens`."""
    tenant = Tenant(TenantId("t"), KeyId("k"), "g", "salt")
    request = InferenceRequest(
        id=RequestId("r"),
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
    usage = {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": cached_tokens}}
    exchange = Exchange(request, plan, match=None, endpoints=[])  # type: ignore[arg-type]  # neither is looked at
    exchange.decision = Decision("e0", 32, 0, Reason.PREFIX_HIT, {}, {})
    exchange.holder = HOLDER
    exchange.http_status = 200
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
    fleet: Any = SimpleNamespace(contradicted=lambda endpoint_id, holder: None)
    telemetry = Telemetry()
    settler = Settler(SettlerParts(ledger, index, fleet, planner, ParityBook(telemetry), telemetry, Clocks()))
    settler.settle(
        answered(Plan(ours, source, exact=source is not TokenSource.BYTES), cached_tokens=BLOCK),
        SettlementState.COMPLETE,
    )
    assert (await index.match(ours)).blocks == {HOLDER: 3}
    assert (await index.match(other)).blocks == {HOLDER: other_branch_blocks}
