"""Sweeps against a server that refuses, breaks off or never answers: what is seen is told, nothing is raised."""

import asyncio
import inspect
import json
import time
from collections.abc import Awaitable, Callable

import pytest

from backends.types import EndpointConfig, EndpointId
from gateway.measuring.driving import Phase
from gateway.measuring.errors import AddressRefuses
from gateway.measuring.levels import level_of
from gateway.measuring.shapes import Shape, shaped
from gateway.measuring.sweep import Clients, Plan, Rates, Swept, sweep
from gateway.measuring.types import Limits
from gateway.measuring.wording import Wording
from gateway.sim.loads import arrivals

PHASE = Phase(warm_s=0.0, seconds=0.4, drain_s=0.2)
OK = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
PIECE = b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n'
DONE = b"data: [DONE]\n\n"

Answers = Callable[[dict[str, object], int], bytes | Awaitable[bytes] | None]
"""Of a body and how many were asked before; None: never."""


def usage(body: dict[str, object]) -> bytes:
    words = len(str(body["messages"]).split())
    return b'data: {"choices": [], "usage": {"prompt_tokens": %d, "completion_tokens": 2}}\n\n' % words


def whole(body: dict[str, object], number: int) -> bytes:
    return OK + PIECE * 2 + usage(body) + DONE


async def swept(answers: Answers, plan: Plan) -> Swept:
    """A sweep against a server of these answers."""
    numbers = iter(range(1 << 30))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"content-length"))
        answer = answers(json.loads(await reader.readexactly(length)), next(numbers))
        if inspect.isawaitable(answer):
            answer = await answer
        if answer is None:
            await reader.read()
        else:
            writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        return await sweep(EndpointConfig(EndpointId("a"), f"http://127.0.0.1:{port}"), Wording("m"), plan, told)


def told(done: int, of: int | None) -> None:
    """Nobody watches."""


def plan(offered: Rates | Clients, phase: Phase = PHASE) -> Plan:
    return Plan(shaped(Shape(64, 2)), offered, phase, prompt_tokens=64)


async def test_an_address_that_refuses_ignore_eos_is_asked_without() -> None:
    def refuses(body: dict[str, object], number: int) -> bytes:
        if "ignore_eos" in body:
            return b"HTTP/1.1 400 Bad Request\r\ncontent-length: 7\r\nconnection: close\r\n\r\nunknown"
        return whole(body, number)

    found = await swept(refuses, plan(Clients([2])))
    assert level_of(found.windows[0], Limits()).failed == 0
    assert any("ignore_eos is refused (status 400: unknown" in note for note in found.notes)


async def test_an_address_that_is_busy_does_not_refuse_ignore_eos() -> None:
    with pytest.raises(AddressRefuses, match="status 429"):
        await swept(lambda *_: b"HTTP/1.1 429 Busy\r\ncontent-length: 0\r\n\r\n", plan(Clients([1])))


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n\r\n<html>", "not a stream of events .* but text/html"),
        (OK + PIECE, "ended without"),
        (OK + PIECE + b'data: {"error": {"message": "out of memory"}}\n\n' + DONE, "error in the stream: .*of memory"),
        (OK + DONE, "without text"),
        (OK + b"data: " + b"x" * (2 << 20), "an event that cannot be read"),
    ],
)
async def test_what_is_wrong_with_a_stream_is_said(answer: bytes, why: str) -> None:
    with pytest.raises(AddressRefuses, match=why):
        await swept(lambda *_: answer, plan(Clients([1])))


async def test_a_count_of_tokens_that_cannot_be_makes_no_prompt_of_millions_of_words() -> None:
    most = 0

    def answers(body: dict[str, object], number: int) -> bytes:
        nonlocal most
        words = len(str(body["messages"]).split())
        most = max(most, words)
        told = b'data: {"choices": [], "usage": {"prompt_tokens": %d, "completion_tokens": 2}}\n\n'
        return OK + PIECE * 2 + told % (10 + words // 300) + DONE

    found = await swept(answers, plan(Clients([1])))
    assert most < 1000
    assert any("10 and 11 tokens, which cannot be" in note for note in found.notes)


async def test_an_address_that_tells_more_cached_tokens_than_it_was_sent_has_no_hits() -> None:
    odd = b'data: {"choices": [], "usage": {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 10}}}\n\n'
    found = await swept(lambda *_: OK + PIECE * 2 + odd + DONE, plan(Clients([1])))
    assert level_of(found.windows[0], Limits()).hit_share is None
    assert any("a usage that cannot be" in note for note in found.notes)


async def test_an_open_loop_beyond_what_this_machine_sends_ends_with_its_time() -> None:
    began_s = time.monotonic()
    found = await swept(whole, plan(Rates([1e7], 0.0)))
    assert time.monotonic() - began_s < 30  # four million requests are due, and take minutes to write
    assert level_of(found.windows[0], Limits()).requests < 1_000_000


async def test_each_engine_behind_a_gateway_has_a_speed_of_its_own() -> None:
    async def named(body: dict[str, object], number: int) -> bytes:
        name, token_s = (b"fast", 2e-5) if number % 4 else (b"slow", 2e-4)
        await asyncio.sleep(token_s * len(str(body["messages"]).split()))
        return OK.replace(b"\r\n\r\n", b"\r\nx-prefixgate-endpoint: " + name + b"\r\n\r\n") + whole(body, 0)[len(OK) :]

    seen = (await swept(named, plan(Clients([1])))).windows[0].seen
    fast_s = [one.prefill_s for one in seen if one.endpoint == "fast" and one.prefill_s is not None]
    assert fast_s
    assert max(fast_s) < 0.05
    assert all(one.first_s is None or one.prefill_s is None or one.prefill_s <= one.first_s for one in seen)


async def test_an_address_that_answers_nothing_at_first_is_refused() -> None:
    with pytest.raises(AddressRefuses, match="status 503"):
        await swept(lambda *_: b"HTTP/1.1 503 Away\r\ncontent-length: 0\r\n\r\n", plan(Clients([1])))


async def test_failures_and_answers_that_never_end_are_counted_and_told() -> None:
    def some(body: dict[str, object], number: int) -> bytes | None:
        if number < 30:
            return whole(body, number)
        return None if number % 2 else OK + PIECE

    found = await swept(some, plan(Rates([200.0], 0.0)))
    level = level_of(found.windows[0], Limits(ttft_s=1.0))
    assert level.failed > 0
    assert level.cut > 0
    assert level.within_limits is not None
    assert level.within_limits < 0.8
    assert any("requests failed: a stream that ended without" in note for note in found.notes)
    assert any("not waited for to their end" in note for note in found.notes)


async def test_without_usage_pieces_are_tokens_and_shares_of_time_are_not_known() -> None:
    found = await swept(lambda *_: OK + PIECE * 3 + DONE, plan(Clients([1])))
    level = level_of(found.windows[0], Limits())
    assert {one.output_tokens for one in found.windows[0].seen} == {3}
    assert level.prefill_share is None
    assert any("usage is not told" in note for note in found.notes)


async def test_the_rate_of_recorded_times_is_that_of_requests_and_not_how_many_times_as_fast() -> None:
    load = arrivals.constant(shaped(Shape(64, 2)), 2.0)
    found = await swept(whole, Plan(load, Rates([50.0], None), PHASE, prompt_tokens=64))
    assert found.windows[0].rate_per_s == pytest.approx(100.0)
    assert len(found.windows[0].asked) == 40


async def test_texts_that_an_engine_knows_from_an_earlier_run_are_told() -> None:
    cached = (
        b'data: {"choices": [], "usage": {"prompt_tokens": 64, "prompt_tokens_details": {"cached_tokens": 48}}}\n\n'
    )
    found = await swept(lambda *_: OK + PIECE * 2 + cached + DONE, plan(Clients([1])))
    assert any("75% of prompt tokens were cached, of texts that share 0%" in note for note in found.notes)


async def test_a_level_to_which_nobody_comes_ends_no_sweep() -> None:
    found = await swept(whole, plan(Rates([0.01, 50.0])))
    assert [window.rate_per_s for window in found.windows] == [50.0]
    assert any("at 0.01 requests/s no request was due" in note for note in found.notes)


async def test_a_level_ends_with_the_requests_that_it_may_send() -> None:
    phase = Phase(warm_s=0.0, seconds=30.0, drain_s=1.0, most_requests=5)
    for offered in (Clients([2]), Rates([100.0], 1.0)):
        found = await asyncio.wait_for(swept(whole, plan(offered, phase)), 60.0)
        assert len(found.windows[0].seen) == 5
        assert found.windows[0].to_s < 25.0
