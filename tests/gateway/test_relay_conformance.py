"""Streams over real HTTP: what the engine sends is what the client gets, however the bytes are cut on the way.

engine --writes of its own choosing--> gateway --> client       all bytes equal, but for a usage event that only
                                          `--> ledger           the gateway asked for
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final

import httpx
import pytest

from gateway.stream_format import ChatFormat
from tests.gateway.conftest import LedgerRow, StartGateway, ledger_rows, settled, start
from tests.gateway.scripted_engine import USAGE, delta, event, scripted_engine
from tests.hostile import Behaviour, Peer

CHAT_PATH: Final = "/v1/chat/completions"
CHAT: Final[dict[str, Any]] = {"model": "m", "messages": [{"role": "user", "content": "Where?"}], "stream": True}
HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
DONE: Final = b"data: [DONE]\n\n"
USAGE_EVENT: Final = event({"choices": [], "usage": USAGE})
IN_TIME_S: Final = 30.0
"""A stream that something holds back hangs; a slow machine does not take as long."""
MiB: Final = 1024 * 1024

Cut = Callable[[bytes], Iterator[bytes]]
"""What of a body goes into one chunk and one write."""


def literal(text: str) -> bytes:
    """An event with its text in UTF-8, not escaped."""
    return b"data: " + json.dumps({"choices": [{"delta": {"content": text}}]}, ensure_ascii=False).encode() + b"\n\n"


STREAMS: Final[dict[str, tuple[bytes, str]]] = {
    "text": (b"".join(map(delta, ("The", " books", " are"))) + USAGE_EVENT + DONE, "complete"),
    "crlf": ((delta("The") + delta(" books") + USAGE_EVENT + DONE).replace(b"\n", b"\r\n"), "complete"),
    "cr": ((delta("The") + USAGE_EVENT + DONE).replace(b"\n", b"\r"), "complete"),
    "comments": (b": ping\n\n" + delta("The") + b":\n\n: ping\n\n" + USAGE_EVENT + b": bye\n\n" + DONE, "complete"),
    "letters": (b"".join(map(literal, "日本語 👩‍👩‍👧 é")) + USAGE_EVENT + DONE, "complete"),
    "null usage": (
        event({"choices": [{"delta": {"content": "a"}}], "usage": None}) * 3 + USAGE_EVENT + DONE,
        "complete",
    ),
    "lookalikes": (delta('"usage": {} [DONE]\n\ndata: [DONE]') + USAGE_EVENT + DONE, "complete"),
    "late error": (delta("The") + event({"error": {"message": "out of memory", "code": 500}}) + DONE, "partial"),
    "late usage": (delta("The") + DONE + USAGE_EVENT, "complete"),
    "no blank line at the end": (delta("The") + USAGE_EVENT + DONE.removesuffix(b"\n"), "complete"),
    "ten megabytes": (delta("x" * 10 * MiB) + delta("y") + USAGE_EVENT + DONE, "complete"),
}


def whole(body: bytes) -> Iterator[bytes]:
    """All at once."""
    yield body


def by_bytes(body: bytes) -> Iterator[bytes]:
    """The smallest pieces there are; of a long body not all of them."""
    for at in range(min(len(body), 2000)):
        yield body[at : at + 1]
    for at in range(2000, len(body), 65521):
        yield body[at : at + 65521]


def across_events(body: bytes) -> Iterator[bytes]:
    """Each piece ends a byte behind the end of an event: between two bytes of most blank lines, or in what follows."""
    pieces = body.split(b"\n\n")
    carried = b""
    for piece in pieces[:-1]:
        yield carried + piece + b"\n"
        carried = b"\n"
    yield carried + pieces[-1] if carried + pieces[-1] else b" "


def plays(body: bytes, cut: Cut) -> Behaviour:
    """An engine that sends this body in these pieces."""

    async def behave(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(HEAD)
        for piece in cut(body):
            await peer.send(b"%x\r\n%s\r\n" % (len(piece), piece))
        await peer.send(b"0\r\n\r\n")

    return behave


@pytest.mark.parametrize("cut", [whole, by_bytes, across_events])
async def test_the_client_gets_the_engines_bytes_and_the_ledger_the_engines_word(
    cut: Cut, start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    asks = CHAT | {"stream_options": {"include_usage": True}}
    scripts = [plays(body, cut) for body, _ in STREAMS.values() for _ in range(2)]
    async with scripted_engine(*scripts) as engine:
        gateway = await start(start_gateway, engine.url)
        for name, (body, _) in STREAMS.items():
            async with asyncio.timeout(IN_TIME_S):
                with_usage = await client.post(f"{gateway.url}{CHAT_PATH}", json=asks)
                without = await client.post(f"{gateway.url}{CHAT_PATH}", json=CHAT)
            assert with_usage.content == body, name
            assert without.content.split() == body.replace(USAGE_EVENT.strip(), b"").split(), name
            assert with_usage.headers["content-type"] == "text/event-stream; charset=utf-8"
        rows = await settled(gateway, 2 * len(STREAMS))
    assert [row.state for row in rows[::2]] == [row.state for row in rows[1::2]]
    assert dict(zip(STREAMS, [(row.state, billed(row)) for row in rows[::2]], strict=True)) == {
        name: (state, (40, 32, 2) if state == "complete" else None) for name, (_, state) in STREAMS.items()
    }


def billed(row: LedgerRow) -> tuple[int | None, int | None, int | None] | None:
    """What the engine has said; None where the figures are ours."""
    return None if "estimated" in row.flags else (row.prompt_tokens, row.cached_tokens, row.output_tokens)


async def test_a_client_that_sees_the_end_finds_its_row_in_the_ledger(start_gateway: StartGateway) -> None:
    events = [delta("The"), delta(" books"), USAGE_EVENT, DONE]
    async with scripted_engine(plays(b"".join(events), whole)) as engine:
        gateway = await start(start_gateway, engine.url)
        async with httpx.AsyncClient(timeout=IN_TIME_S) as client:
            for number in range(1, 21):
                async with client.stream("POST", f"{gateway.url}{CHAT_PATH}", json=CHAT) as answer:
                    async for piece in answer.aiter_raw():
                        if DONE in piece:
                            assert len(ledger_rows(gateway.ledger_path)) == number


async def test_each_event_and_each_part_of_a_long_one_is_there_before_the_next_is_sent(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    """The engine goes on only when the client has seen what came before; what is held back would hold all up."""
    long = delta("x" * 4 * MiB)
    steps = [
        (delta("The"), 0),
        (b": ping\n\n", 0),
        (delta(" books")[:-1], len(delta(" books")) - 1),  # not whole yet
        (b"\n", 0),
        *((long[at : at + MiB], ChatFormat.largest_event_bytes) for at in range(0, 4 * MiB, MiB)),
        (long[4 * MiB :], 0),
    ]
    seen_bytes, news = 0, asyncio.Condition()

    async def step_by_step(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(HEAD)
        awaited_bytes = 0
        for part, held_bytes in steps:
            await peer.send(b"%x\r\n%s\r\n" % (len(part), part))
            awaited_bytes += len(part)
            async with news:
                while seen_bytes < awaited_bytes - held_bytes:
                    await news.wait()
        await peer.send(b"%x\r\n%s\r\n0\r\n\r\n" % (len(DONE), DONE))

    async with asyncio.timeout(IN_TIME_S), scripted_engine(step_by_step) as engine:
        gateway = await start(start_gateway, engine.url)
        got = b""
        async for piece in raw_answer(client, gateway.url):
            got += piece
            async with news:
                seen_bytes = len(got)
                news.notify_all()
    assert got == b"".join(part for part, _ in steps) + DONE


async def raw_answer(client: httpx.AsyncClient, url: str) -> AsyncIterator[bytes]:
    """A streamed answer as it comes."""
    async with client.stream("POST", f"{url}{CHAT_PATH}", json=CHAT) as answer:
        async for piece in answer.aiter_raw():
            yield piece


async def test_an_engine_waits_for_a_client_that_does_not_read(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    """Of 200 MiB some are in buffers, the rest stays where it is, until the client reads on."""
    flood, times = delta("x" * 250_000), 800
    stuck, sent = asyncio.Event(), 0

    async def floods(peer: Peer) -> None:
        nonlocal sent
        await peer.read_request()
        await peer.send(HEAD)
        for _ in range(times):
            sending = asyncio.ensure_future(peer.send(b"%x\r\n%s\r\n" % (len(flood), flood)))
            done, _ = await asyncio.wait([sending], timeout=0.5)
            if not done:
                stuck.set()
            await sending
            sent += 1
        await peer.send(b"%x\r\n%s\r\n0\r\n\r\n" % (len(DONE), DONE))

    async with asyncio.timeout(2 * IN_TIME_S), scripted_engine(floods) as engine:
        gateway = await start(start_gateway, engine.url)
        size_bytes = 0
        async for piece in raw_answer(client, gateway.url):
            if not size_bytes:
                await stuck.wait()
                assert sent < times // 4
            size_bytes += len(piece)
    assert size_bytes == times * len(flood) + len(DONE)
