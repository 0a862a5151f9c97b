"""The protocol of the endpoint picker, message by message, in each mode: real gRPC, real engines, the real ledger."""

import json
from typing import Any

import pytest

from gateway.epp.types import BodyMode
from tests.gateway.conftest import LedgerRow, ledger_rows, settled
from tests.gateway.epp.conftest import RunningPicker, SimulatedEngine
from tests.gateway.epp.front import BUFFERED, DUPLEX, STREAMED, Front, Told

CHAT = "/v1/chat/completions"
TEXT = "Answer politely, and never guess what is not known. " * 40


def chat(question: str, **more: object) -> bytes:
    messages = [{"role": "system", "content": TEXT}, {"role": "user", "content": question}]
    return json.dumps({"model": "simulated", "messages": messages, "max_tokens": 4, **more}).encode()


def usage_of(told: Told) -> dict[str, Any]:
    """What the client sees of it."""
    found: dict[str, Any] = json.loads(told.body)["usage"]
    return found


async def last_row(picker: RunningPicker, before: int) -> LedgerRow:
    rows = await settled(picker.pages, before + 1)
    return rows[-1]


def rows_now(picker: RunningPicker) -> int:
    return len(ledger_rows(picker.pages.ledger_path))


@pytest.mark.parametrize("response", [DUPLEX, STREAMED, BUFFERED])
@pytest.mark.parametrize("request_mode", [DUPLEX, BUFFERED])
async def test_in_each_mode_the_bill_is_what_the_engine_computed(
    picker: RunningPicker, request_mode: BodyMode, response: BodyMode
) -> None:
    before = rows_now(picker)
    async with Front(picker.address) as front:
        told = await front.ask(CHAT, chat("What is a block?"), request=request_mode, response=response)
    assert (told.status, told.immediate) == (200, False)
    assert told.destination == told.metadata
    row, usage = await last_row(picker, before), usage_of(told)
    assert row.state == "complete"
    assert (row.prompt_tokens, row.output_tokens) == (usage["prompt_tokens"], usage["completion_tokens"])
    assert row.cached_tokens == usage["prompt_tokens_details"]["cached_tokens"]
    assert told.set["x-prefixgate-endpoint"] == row.endpoint_id


async def test_the_same_prefix_goes_where_it_is(picker: RunningPicker, engines: list[SimulatedEngine]) -> None:
    async with Front(picker.address) as front:
        asked = [await front.ask(CHAT, chat(f"Number {number}?")) for number in range(5)]
    assert len({told.destination for told in asked}) == 1
    assert {told.destination for told in asked} <= {engine.address for engine in engines}
    assert all(usage_of(told)["prompt_tokens_details"]["cached_tokens"] > 200 for told in asked[1:])
    assert asked[-1].set["x-prefixgate-reason"] == "prefix_hit"
