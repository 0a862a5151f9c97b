"""Streams that are cut, out of order, too long or none at all: nothing stays reserved, and each is settled once."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import grpc
import pytest
from envoy.service.ext_proc.v3 import external_processor_pb2 as wire
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.epp import stream
from gateway.epp.types import BodyMode
from tests.gateway.conftest import settled
from tests.gateway.epp.asking import CHAT, SAYS_HELLO, chat, last_row, nothing_stays_reserved, rows_now
from tests.gateway.epp.conftest import RunningPicker, SimulatedEngine, StartPicker
from tests.gateway.epp.front import (
    BUFFERED,
    DUPLEX,
    NONE,
    STREAMED,
    Ask,
    Broken,
    Call,
    EngineAnswer,
    Front,
    answer_head,
    body_message,
    request_head,
)
from tests.gateway.scripted_engine import chat_stream, delta
from tests.until import until

HEAD = EngineAnswer(200, [("content-type", "text/event-stream")], [b"x"])


async def picked(call: Call, **how: Any) -> Ask:
    """Show a whole request, and wait until it is on its way."""
    ask = Ask(CHAT, chat("Hi?", stream=True), **how)
    await call.show(request_head(ask))
    await call.show(body_message(ask.body, request=True, ends=True))
    while True:
        reply = await call.hear()
        if reply.WhichOneof("response") == "request_body" and (
            reply.request_body.response.body_mutation.streamed_response.end_of_stream
        ):
            return ask


@pytest.mark.parametrize("response", [DUPLEX, STREAMED])
async def test_a_client_that_leaves_inside_an_answer_pays_for_what_it_got(
    picker: RunningPicker, response: BodyMode
) -> None:
    before = rows_now(picker)
    async with Front(picker.address) as front, front.call() as call:
        ask = await picked(call, response=response)
        await call.show(answer_head(HEAD, ask, ends=False))
        for word in ("one", " two"):
            await call.show(body_message(delta(word), request=False, ends=False))
        for _ in range(3):
            await call.hear()
    row = await last_row(picker, before)
    assert row.state == "partial"
    assert "estimated" in row.flags
    assert row.output_tokens
    await nothing_stays_reserved(picker)


async def test_a_client_that_leaves_before_an_answer_leaves_nothing_reserved(picker: RunningPicker) -> None:
    before = rows_now(picker)
    async with Front(picker.address) as front, front.call() as call:
        await picked(call)
    assert (await last_row(picker, before)).state == "partial"
    await nothing_stays_reserved(picker)


async def test_a_client_that_leaves_inside_its_own_body_is_no_request(picker: RunningPicker) -> None:
    before = rows_now(picker)
    async with Front(picker.address) as front, front.call() as call:
        await call.show(request_head(Ask(CHAT, chat("Hi?"))))
        await call.show(body_message(b'{"model":', request=True, ends=False))
    await nothing_stays_reserved(picker)
    assert rows_now(picker) == before


async def test_a_gateway_that_closes_in_an_orderly_way_without_an_answer_leaves_nothing_reserved(
    picker: RunningPicker,
) -> None:
    before = rows_now(picker)
    async with Front(picker.address) as front, front.call() as call:
        await picked(call)
        await call.close()
        assert await call.hear() is None
    assert (await last_row(picker, before)).state == "partial"
    await nothing_stays_reserved(picker)


@pytest.mark.parametrize("response", [BUFFERED, STREAMED])
async def test_a_gateway_that_closes_without_the_end_that_it_owes_leaves_no_stream_open(
    picker: RunningPicker, response: BodyMode
) -> None:
    before = rows_now(picker)
    async with Front(picker.address) as front, front.call() as call:
        ask = await picked(call, response=response)
        answer = EngineAnswer(200, HEAD.fields, [b"".join(chat_stream("Hi"))])
        await call.show(answer_head(answer, ask, ends=False))
        await call.show(body_message(answer.pieces[0], request=False, ends=False))
        await settled(picker.pages, before + 1)
        await call.close()
        while await call.hear() is not None:
            pass
    await nothing_stays_reserved(picker)


async def test_an_answer_of_the_gateways_own_to_a_request_that_was_not_picked_passes(picker: RunningPicker) -> None:
    before = rows_now(picker)
    async with Front(picker.address) as front, front.call() as call:
        ask = Ask(CHAT, chat("Hi?"))
        await call.show(request_head(ask))
        await call.show(answer_head(EngineAnswer(413, [], [b"too long"]), ask, ends=False))
        assert (await call.hear()).WhichOneof("response") == "response_headers"
        await call.show(body_message(b"too long", request=False, ends=True))
        reply = await call.hear()
        assert reply.response_body.response.body_mutation.streamed_response.body == b"too long"
        await call.close()
        assert await call.hear() is None
    await nothing_stays_reserved(picker)
    assert rows_now(picker) == before


@pytest.mark.parametrize("orderly", [True, False])
async def test_not_even_the_head_of_an_answer_is_shown(
    engines: list[SimulatedEngine], start_picker: StartPicker, orderly: bool
) -> None:
    picker = await asyncio.to_thread(start_picker, engines[0].url)
    async with Front(picker.address) as front, front.call() as call:
        await picked(call, response=NONE)
        if orderly:
            await call.close()
            await call.hear()
    (row,) = await settled(picker.pages, 1)
    assert (row.state, row.prompt_tokens, row.output_tokens) == ("complete", None, None)
    await nothing_stays_reserved(picker)


async def test_a_body_that_is_buffered_in_part_is_served_where_it_fits(picker: RunningPicker) -> None:
    async with Front(picker.address) as front, front.call() as call:
        ask = Ask(CHAT, chat("Hi?"), request=BodyMode.BUFFERED_PARTIAL)
        await call.show(request_head(ask))
        await call.hear()
        await call.show(body_message(ask.body, request=True, ends=True))
        assert (await call.hear()).WhichOneof("response") == "request_body"
    async with Front(picker.address) as front, front.call() as call:
        await call.show(request_head(ask))
        await call.hear()
        await call.show(body_message(ask.body, request=True, ends=False))
        with pytest.raises(Broken, match="longer than the buffer"):
            await call.hear()
    await nothing_stays_reserved(picker)


async def test_an_engine_that_stops_in_its_answer_is_told_inside_the_stream(
    engines: list[SimulatedEngine], start_picker: StartPicker
) -> None:
    picker = await asyncio.to_thread(start_picker, engines[0].url, limits__idle_s=0.3)
    async with Front(picker.address) as front, front.call() as call:
        ask = await picked(call)
        await call.show(answer_head(HEAD, ask, ends=False))
        await call.show(body_message(delta("one"), request=False, ends=False))
        said = b""
        while True:
            reply = await call.hear()
            streamed = reply.response_body.response.body_mutation.streamed_response
            said += streamed.body
            if streamed.end_of_stream:
                break
    assert said.startswith(delta("one"))
    assert b'"error"' in said
    assert said.endswith(b"data: [DONE]\n\n")
    assert [row.state for row in await settled(picker.pages, 1)] == ["partial"]


async def test_a_streamed_answer_whose_engine_stops_is_broken_off(
    engines: list[SimulatedEngine], start_picker: StartPicker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "GRACE_S", 0.1)
    picker = await asyncio.to_thread(start_picker, engines[0].url, limits__idle_s=0.3)
    async with Front(picker.address) as front, front.call() as call:
        ask = await picked(call, response=STREAMED)
        await call.show(answer_head(HEAD, ask, ends=False))
        await call.show(body_message(delta("one"), request=False, ends=False))
        await call.hear()
        await call.hear()
        with pytest.raises(Broken, match="silent"):
            await call.hear()
    assert [row.state for row in await settled(picker.pages, 1)] == ["partial"]
    await nothing_stays_reserved(picker)


@pytest.mark.parametrize("response", [DUPLEX, STREAMED, BUFFERED])
async def test_an_engine_that_says_nothing_is_a_timeout_in_the_clients_dialect(
    engines: list[SimulatedEngine], start_picker: StartPicker, response: BodyMode
) -> None:
    picker = await asyncio.to_thread(start_picker, engines[0].url, limits__first_byte_s=0.3)
    async with Front(picker.address) as front, front.call() as call:
        await picked(call, response=response)
        reply = await call.hear()
        assert reply.immediate_response.status.code == 504
        assert b'"code":"upstream_timeout"' in reply.immediate_response.body
    assert [row.state for row in await settled(picker.pages, 1)] == ["failed"]
    await nothing_stays_reserved(picker)


async def test_the_end_that_was_held_back_follows_the_last_part_of_a_slow_engine(picker: RunningPicker) -> None:
    """It has said that it is done, and its connection stays open for longer than anyone waits."""
    async with Front(picker.address) as front, front.call() as call:
        ask = await picked(call, response=STREAMED)
        await call.show(answer_head(HEAD, ask, ends=False))
        whole = b"".join(chat_stream("one"))
        await call.show(body_message(whole, request=False, ends=False))
        await call.hear()
        said = (await call.hear()).response_body.response.body_mutation.body
        await asyncio.sleep(1.2)  # more than the patience with such an engine
        await call.show(body_message(b"", request=False, ends=True))
        said += (await call.hear()).response_body.response.body_mutation.body
        assert await call.hear() is None
    assert said == delta("one") + b"data: [DONE]\n\n"
    await nothing_stays_reserved(picker)


async def test_trailers_behind_a_streamed_answer_whose_end_is_held_back_break_it_off(picker: RunningPicker) -> None:
    async with Front(picker.address) as front, front.call() as call:
        ask = await picked(call, response=STREAMED)
        await call.show(answer_head(HEAD, ask, ends=False))
        await call.show(body_message(b"".join(chat_stream("one")), request=False, ends=False))
        await call.hear()
        await call.hear()
        await call.show(wire.ProcessingRequest(response_trailers=wire.HttpTrailers()))
        with pytest.raises(Broken, match="trailers"):
            await call.hear()
    await nothing_stays_reserved(picker)


MODES: list[tuple[dict[str, Any], str]] = [
    ({"request": STREAMED}, "request_body_mode STREAMED"),
    ({"request": NONE}, "request_body_mode NONE"),
    ({"response": BodyMode.BUFFERED_PARTIAL}, "response_body_mode BUFFERED_PARTIAL"),
    ({"response": BodyMode.GRPC}, "response_body_mode GRPC"),
]


@pytest.mark.parametrize(("how", "named"), MODES)
async def test_a_mode_that_cannot_be_served_is_named(picker: RunningPicker, how: dict[str, Any], named: str) -> None:
    async with Front(picker.address) as front, front.call() as call:
        await call.show(request_head(Ask(CHAT, chat("Hi?"), **how)))
        with pytest.raises(Broken, match=named) as broken:
            await call.hear()
    assert broken.value.code is grpc.StatusCode.FAILED_PRECONDITION


async def test_who_only_observes_is_told_that_nothing_can_be_picked(picker: RunningPicker) -> None:
    async with Front(picker.address) as front, front.call() as call:
        message = request_head(Ask(CHAT, chat("Hi?")))
        message.observability_mode = True
        await call.show(message)
        with pytest.raises(Broken, match="observability_mode"):
            await call.hear()


async def test_a_body_over_the_limit_is_refused_before_all_of_it_is_here(
    engines: list[SimulatedEngine], start_picker: StartPicker
) -> None:
    picker = await asyncio.to_thread(start_picker, engines[0].url, limits__max_body_bytes=100_000)
    async with Front(picker.address) as front, front.call() as call:
        ask = Ask(CHAT, b"")
        await call.show(request_head(ask))
        for _ in range(2):
            await call.show(body_message(bytes(60_000), request=True, ends=False))
        reply = await call.hear()
        assert reply.immediate_response.status.code == 413
        assert await call.hear() is None


async def test_a_body_of_megabytes_goes_there_and_back_whole(picker: RunningPicker) -> None:
    body = chat("Hi? " * 500_000)
    pieces = [body[at : at + 65_536] for at in range(0, len(body), 65_536)]
    answer = EngineAnswer(200, [("content-type", "application/json")], [b'{"a":"' + b"b" * 3_000_000, b'"}'])
    async with Front(picker.address) as front:
        told = await front.ask(CHAT, body, pieces=pieces, answers=answer)
    assert len(told.request_body) >= len(body)
    assert told.body == b"".join(answer.pieces)


def _messages() -> list[Callable[[], Any]]:
    ask = Ask(CHAT, chat("Hi?"))
    return [
        lambda: request_head(ask),
        lambda: request_head(Ask(CHAT, b"", method="GET")),
        lambda: request_head(Ask(CHAT, ask.body, request=BUFFERED, response=STREAMED)),
        lambda: body_message(ask.body, request=True, ends=True),
        lambda: body_message(b"{", request=True, ends=False),
        lambda: answer_head(SAYS_HELLO, ask, ends=False),
        lambda: answer_head(SAYS_HELLO, ask, ends=True),
        lambda: answer_head(EngineAnswer(7, [], []), ask, ends=False),
        lambda: body_message(SAYS_HELLO.pieces[0], request=False, ends=True),
        lambda: body_message(b"", request=False, ends=False),
        lambda: wire.ProcessingRequest(request_trailers=wire.HttpTrailers()),
        lambda: wire.ProcessingRequest(response_trailers=wire.HttpTrailers()),
        wire.ProcessingRequest,
    ]


@given(order=st.lists(st.sampled_from(_messages()), max_size=7), closes=st.booleans())
@settings(max_examples=60)
async def test_messages_in_any_order_end_in_an_answer_or_an_error_and_leave_nothing(
    picker: RunningPicker, order: list[Callable[[], Any]], closes: bool
) -> None:
    async with Front(picker.address) as front, front.call() as call:
        for message in order:
            await call.show(message())
        if closes:
            await call.close()
            with suppress(Broken):
                while await call.hear() is not None:
                    pass
            assert await call.stream.code() is not grpc.StatusCode.UNKNOWN, "a fault of ours"
    await nothing_stays_reserved(picker)
    assert picker.server.started


async def test_bytes_that_are_no_messages_end_their_stream_alone(picker: RunningPicker) -> None:
    async with Front(picker.address) as front:
        method = front.channel.stream_stream("/envoy.service.ext_proc.v3.ExternalProcessor/Process")
        stream = method()
        await stream.write(b"\xff\xff\xff garbage")
        with pytest.raises(grpc.aio.AioRpcError):
            await stream.read()
        assert (await front.ask(CHAT, chat("Hi?"), answers=SAYS_HELLO)).status == 200
    await nothing_stays_reserved(picker)


async def test_a_body_that_waits_for_its_turn_is_read_when_it_comes(
    engines: list[SimulatedEngine], start_picker: StartPicker
) -> None:
    picker = await asyncio.to_thread(
        start_picker,
        engines[0].url,
        limits__concurrent_requests=1,
        queue__classes=[{"name": "one", "max_requests": 1}],
    )
    async with Front(picker.address) as front, front.call() as call:
        ask = await picked(call)
        body = chat("Hi? " * 100_000)
        pieces = [body[at : at + 30_000] for at in range(0, len(body), 30_000)]
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(front.ask(CHAT, body, pieces=pieces, answers=SAYS_HELLO))
            await until(lambda: asyncio.to_thread(picker.pages.metric, "prefixgate_queued_requests"))
            assert not waiting.done()
            await call.show(answer_head(HEAD, ask, ends=False))
            await call.show(body_message(b"".join(chat_stream("one")), request=False, ends=True))
        told = waiting.result()
    assert told.status == 200
    assert len(told.request_body) >= len(body)
