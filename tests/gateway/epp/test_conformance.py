"""The protocol of the endpoint picker, message by message, in each mode: real gRPC, real engines, the real ledger."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.epp.types import BodyMode
from tests.gateway.conftest import settled
from tests.gateway.epp.asking import CHAT, chat, in_flight, last_row, rows_now
from tests.gateway.epp.conftest import RunningPicker, SimulatedEngine, StartPicker
from tests.gateway.epp.front import BUFFERED, DUPLEX, STREAMED, EngineAnswer, Front, Told
from tests.gateway.scripted_engine import chat_stream, delta


def usage_of(told: Told) -> dict[str, Any]:
    """What the client sees of it."""
    found: dict[str, Any] = json.loads(told.body)["usage"]
    return found


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
        asked = [await front.ask(CHAT, chat(f"Number {number}?")) for number in range(12)]
    destinations = [told.destination for told in asked]
    assert set(destinations) <= {engine.address for engine in engines}
    # What a loaded machine makes of a few times may let the other one look better for a while.
    assert max(destinations.count(one) for one in destinations) >= 9
    assert sum(told.set["x-prefixgate-reason"] == "prefix_hit" for told in asked) >= 9
    cached = [usage_of(told)["prompt_tokens_details"]["cached_tokens"] for told in asked]
    assert sum(tokens > 200 for tokens in cached) >= 9


@pytest.mark.parametrize("response", [DUPLEX, STREAMED, BUFFERED])
async def test_a_stream_has_usage_only_for_the_client_who_asked(picker: RunningPicker, response: BodyMode) -> None:
    before = rows_now(picker)

    def in_tens(body: bytes) -> list[bytes]:
        return [body[at : at + 10] for at in range(0, len(body), 10)]

    async with Front(picker.address) as front:
        how: dict[str, Any] = {"response": response, "cut_answer": in_tens}
        without = await front.ask(CHAT, chat("Hi?", stream=True), **how)
        asked = await front.ask(CHAT, chat("Hi?", stream=True, stream_options={"include_usage": True}), **how)
    assert b'"usage":{' not in without.body
    assert b'"usage":{' in asked.body
    assert without.body.endswith(b"data: [DONE]\n\n")
    assert b'"include_usage":true' in without.request_body
    rows = await settled(picker.pages, before + 2)
    assert [row.state for row in rows[-2:]] == ["complete", "complete"]
    assert rows[-2].output_tokens == 4


@pytest.mark.parametrize("response", [DUPLEX, STREAMED, BUFFERED])
async def test_the_end_of_an_answer_comes_after_its_usage_is_durable(picker: RunningPicker, response: BodyMode) -> None:
    async with Front(picker.address) as front:
        for stream in (False, True):
            before = rows_now(picker)
            told = await front.ask(CHAT, chat("Hi?", stream=stream), response=response)
            assert told.status == 200
            assert rows_now(picker) == before + 1


async def test_each_part_that_is_streamed_has_exactly_one_reply(picker: RunningPicker) -> None:
    async with Front(picker.address) as front:
        told = await front.ask(
            CHAT, chat("Hi?", stream=True), response=STREAMED, cut_answer=lambda body: [*body.splitlines(True), b""]
        )
    parts = told.replies.count("response_body")
    assert parts == len(told.body.splitlines()) + 1 + 2  # an empty one, and two lines of usage that nobody asked for


async def test_a_bodiless_answer_is_one_reply(picker: RunningPicker) -> None:
    async with Front(picker.address) as front:
        answer = EngineAnswer(429, [("retry-after", "3")], [])
        told = await front.ask(CHAT, chat("Hi?"), answers=answer)
    assert told.status == 429
    assert told.replies[-1] == "response_headers"


@pytest.mark.parametrize("mode", [DUPLEX, BUFFERED])
async def test_trailers_end_what_has_no_other_end(picker: RunningPicker, mode: BodyMode) -> None:
    async with Front(picker.address) as front:
        told = await front.ask(
            CHAT, chat("Hi?"), request=mode, response=mode, request_trailers=True, response_trailers=True
        )
    assert told.status == 200
    assert usage_of(told)["completion_tokens"] == 4
    assert told.replies[-1] == "response_trailers"


async def test_a_gateway_that_does_not_tell_its_modes_is_believed_to_have_those_configured(
    picker: RunningPicker, start_picker: StartPicker, engines: list[SimulatedEngine]
) -> None:
    async with Front(picker.address) as front:
        assert (await front.ask(CHAT, chat("Hi?"), tells_modes=False)).status == 200
    buffers = await asyncio.to_thread(
        start_picker, engines[0].url, epp__request_body="buffered", epp__response_body="buffered"
    )
    async with Front(buffers.address) as front:
        how: dict[str, Any] = {"request": BUFFERED, "response": BUFFERED}
        assert (await front.ask(CHAT, chat("Hi?"), tells_modes=False, **how)).status == 200


async def test_another_dialect_is_translated_there_and_back(picker: RunningPicker) -> None:
    body = json.dumps({"model": "simulated", "max_tokens": 3, "messages": [{"role": "user", "content": "Hi?"}]})
    async with Front(picker.address) as front:
        for response in (DUPLEX, STREAMED, BUFFERED):
            told = await front.ask("/v1/messages", body.encode(), response=response)
            assert told.request_set[":path"] == CHAT
            answer = json.loads(told.body)
            assert (answer["type"], answer["usage"]["output_tokens"]) == ("message", 3)


async def test_hundreds_at_once_are_all_billed_and_nothing_stays_reserved(picker: RunningPicker) -> None:
    before = rows_now(picker)
    answer = EngineAnswer(200, [("content-type", "text/event-stream")], chat_stream("Hello", " world"))
    async with Front(picker.address) as front:
        bodies = [chat(f"{number}?", stream=True) for number in range(200)]
        asked = await asyncio.gather(*(front.ask(CHAT, body, answers=answer) for body in bodies))
    assert {told.status for told in asked} == {200}
    rows = await settled(picker.pages, before + 200, within_s=30)
    assert {row.state for row in rows[before:]} == {"complete"}
    assert in_flight(picker) == 0
    assert picker.pages.metric("prefixgate_epp_open_streams") == 0


@given(data=st.data())
@settings(max_examples=30)
async def test_an_answer_is_the_same_however_it_and_its_request_are_cut(
    picker: RunningPicker, data: st.DataObject
) -> None:
    events = [delta("Hello"), delta(" world"), *chat_stream("!")[-2:]]
    whole, without = b"".join(events), b"".join([*events[:2], events[-1]])
    request, response = (
        data.draw(st.sampled_from([DUPLEX, BUFFERED])),
        data.draw(st.sampled_from([DUPLEX, STREAMED, BUFFERED])),
    )
    asked = chat("Hi?", stream=True)
    answer = EngineAnswer(200, [("content-type", "text/event-stream")], data.draw(cuts(whole)))
    before = rows_now(picker)
    async with Front(picker.address) as front:
        told = await front.ask(
            CHAT, asked, request=request, response=response, pieces=data.draw(cuts(asked)), answers=answer
        )
    assert told.body == without
    row = await last_row(picker, before)
    assert (row.state, row.prompt_tokens, row.cached_tokens, row.output_tokens) == ("complete", 40, 32, 2)


@st.composite
def cuts(draw: st.DrawFn, whole: bytes) -> list[bytes]:
    """The same bytes in pieces, of which some may be empty."""
    at = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    return [whole[start:end] for start, end in zip([0, *at], [*at, len(whole)], strict=True)]
