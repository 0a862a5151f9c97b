"""What users of gateways have seen go wrong with connections: engines that computed for nobody, one dead backend that
hung all, clients' mistakes that closed a whole fleet, retries that were billed twice.

Each test is one such story and has its name; engines answer from a script, on real ports. A deadline here is no measure
of speed: it lies far below every time-out of the gateway, so that only the news itself can have been in time.
"""

import asyncio
import json
import sqlite3
import struct
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from socket import SO_LINGER, SOL_SOCKET
from typing import Any, Final

import httpx
import pytest

from tests.gateway.conftest import LedgerRow, RunningGateway, StartGateway, settled, start
from tests.gateway.scripted_engine import USAGE, answer_chat, answer_json, chat_stream, delta, scripted_engine
from tests.gateway.test_storm import left
from tests.hostile import (
    Behaviour,
    Peer,
    close_before_first_byte,
    hang,
    reset_before_first_byte,
    stream,
)
from tests.until import until

CHAT: Final[dict[str, Any]] = {"model": "m", "messages": [{"role": "user", "content": "Where are the books?"}]}
HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
IN_TIME_S: Final = 5.0
SELDOM_S: Final = 600.0
"""Between two looks at an endpoint, where one that answers late must not be taken for one that is down."""


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def ask(client: httpx.AsyncClient, gateway: RunningGateway, **more: object) -> httpx.Response:
    return await client.post(f"{gateway.url}/v1/chat/completions", json=CHAT | more)


def request_bytes(body: object) -> bytes:
    """A request as it goes over the wire."""
    data = json.dumps(body).encode()
    return b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (len(data), data)


@asynccontextmanager
async def connected(
    gateway: RunningGateway, *, resets: bool = False
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to a gateway, left with the block, by FIN or by RST, whatever was not read."""
    host, _, port = gateway.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=4096)
    try:
        yield reader, writer
    finally:
        if resets:
            writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def nothing_is_left(gateway: RunningGateway) -> None:
    """Wait until no load is counted for anyone, at the endpoint and everywhere else."""
    await until(lambda: not (left(gateway) or gateway.metric("prefixgate_in_flight_requests")), within_s=IN_TIME_S)


async def head_and_silence(peer: Peer) -> None:
    """An engine that sends its head before the prefill."""
    await peer.read_request()
    await peer.send(HEAD)
    await peer.hang()


@pytest.mark.parametrize("prefill", [hang, head_and_silence])
@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("resets", [True, False])
async def test_disconnect_in_prefill(
    prefill: Behaviour, streams: bool, resets: bool, start_gateway: StartGateway
) -> None:
    async with scripted_engine(prefill) as engine:
        gateway = await start(start_gateway, engine.url)
        async with connected(gateway, resets=resets) as (_, writer):
            writer.write(request_bytes(CHAT | {"stream": streams}))
            await engine.asked.wait()
            assert not engine.left.is_set()
        async with asyncio.timeout(IN_TIME_S):
            await engine.left.wait()
        [row] = await settled(gateway, 1)
        await nothing_is_left(gateway)
    # The prompt is paid, for the engine had it; whether it was cached nobody knows, and there was no answer.
    assert (row.state, row.endpoint_id, row.attempts) == ("partial", "e0", 1)
    assert (row.prompt_tokens, row.cached_tokens, row.output_tokens) == (40, None, 0)
    assert "estimated" in row.flags


@pytest.mark.parametrize("resets", [True, False])
@pytest.mark.parametrize("reads", [True, False])
async def test_disconnect_in_stream(reads: bool, resets: bool, start_gateway: StartGateway) -> None:
    """A client that waits for the next token, and one that has stopped reading while the engine goes on and on."""
    flooded = asyncio.Event()

    async def talks(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(HEAD + chunked(delta("The") + delta(" books")))
        if reads:
            await peer.hang()
        flood = chunked(delta("x" * 60_000))
        while True:  # ends when its connection does
            try:
                await asyncio.wait_for(peer.send(flood), 0.2)
            except TimeoutError:
                flooded.set()

    async with scripted_engine(talks) as engine:
        gateway = await start(start_gateway, engine.url)
        async with connected(gateway, resets=resets) as (reader, writer):
            writer.write(request_bytes(CHAT | {"stream": True}))
            await reader.readuntil(delta(" books"))
            if not reads:
                await flooded.wait()  # everything between engine and client is full
            assert not engine.left.is_set()
        async with asyncio.timeout(IN_TIME_S):
            await engine.left.wait()
        [row] = await settled(gateway, 1)
        await nothing_is_left(gateway)
    assert (row.state, row.endpoint_id, row.attempts) == ("partial", "e0", 1)
    assert "estimated" in row.flags
    # The engine's /tokenize says 40 of every text; what is longer than what is kept of an answer is not counted.
    assert (row.prompt_tokens, row.cached_tokens) == (40, 0)
    assert row.output_tokens == (40 if reads else None)


async def test_dead_backend_no_hang(start_gateway: StartGateway, client: httpx.AsyncClient) -> None:
    """One of two engines falls silent: it takes connections and says nothing, on no path."""
    async with scripted_engine(answer_chat("Hi")) as dying, scripted_engine(answer_chat("Hi")) as good:
        gateway = await start(
            start_gateway,
            dying.url,
            good.url,
            scheduling__policy="round_robin",
            limits__first_byte_s=2,
            poll_interval_s=SELDOM_S,
        )
        assert (await ask(client, gateway)).status_code == 200
        dying.silent = True
        async with asyncio.timeout(4 * IN_TIME_S):
            answers = await asyncio.gather(*(ask(client, gateway) for _ in range(20)))
            pages = [(await client.get(f"{gateway.url}{path}")).status_code for path in ("/v1/models", "/ready")]
        assert {answer.status_code for answer in answers} == {200}
        assert {answer.headers["x-prefixgate-endpoint"] for answer in answers} == {"e1"}
        assert pages == [200, 200]
        rows = await settled(gateway, 21)
        await nothing_is_left(gateway)
    assert {row.state for row in rows} == {"complete"}
    assert {row.endpoint_id for row in rows[1:]} == {"e1"}


async def test_4xx_keeps_breaker_shut(start_gateway: StartGateway, client: httpx.AsyncClient) -> None:
    """A thousand bad requests to one endpoint: each gets its answer, none is tried twice, the endpoint stays up."""
    refusals = {status: json.dumps({"error": {"message": f"no: {status}"}}).encode() for status in _4XX}
    scripts = [answer_json(json.loads(body), status) for status, body in refusals.items()]
    async with scripted_engine(*scripts * 200, answer_chat("Hi")) as engine:
        gateway = await start(start_gateway, engine.url)
        async with asyncio.timeout(12 * IN_TIME_S), asyncio.TaskGroup() as group:
            clients = [group.create_task(answers(gateway, 50)) for _ in range(20)]
        assert sum((each.result() for each in clients), Counter()) == dict.fromkeys(refusals.items(), 200)
        assert (await client.get(f"{gateway.url}/ready")).status_code == 200
        assert (await ask(client, gateway)).status_code == 200
        assert len(engine.requests) == 1001
        rows = await settled(gateway, 1001)
    assert [(row.state, row.attempts) for row in rows] == [("rejected", 1)] * 1000 + [("complete", 1)]


_4XX: Final = (400, 404, 413, 422, 429)


async def answers(gateway: RunningGateway, number: int) -> Counter[tuple[int, bytes]]:
    """Status and body of so many requests, one after the other on one connection."""
    found: Counter[tuple[int, bytes]] = Counter()
    async with connected(gateway) as (reader, writer):
        for _ in range(number):
            writer.write(request_bytes(CHAT))
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(line for line in head.lower().splitlines() if line.startswith(b"content-length:"))
            found[int(head.split()[1]), await reader.readexactly(int(length.split(b":")[1]))] += 1
    return found


async def test_models_with_one_down(start_gateway: StartGateway, client: httpx.AsyncClient) -> None:
    """One backend was never there, one goes away while the gateway runs."""
    async with scripted_engine(answer_chat("Hi"), model="m") as engine:
        async with scripted_engine(answer_chat("Hi"), model="other") as leaving:
            gateway = await start(start_gateway, "http://127.0.0.1:9", engine.url, leaving.url)
            assert await models(client, gateway) == ["m", "other"]
        await until(
            lambda: client.get(f"{gateway.url}/health"),
            lambda found: found.json()["degraded"]["endpoints"].count("e2"),
            within_s=IN_TIME_S,
        )
        assert "m" in await models(client, gateway)
        assert (await ask(client, gateway)).status_code == 200


async def models(client: httpx.AsyncClient, gateway: RunningGateway) -> list[str]:
    """The names that are listed."""
    answer = await client.get(f"{gateway.url}/v1/models")
    assert answer.status_code == 200
    return sorted(model["id"] for model in answer.json()["data"])


async def test_retry_excludes_failed(start_gateway: StartGateway, client: httpx.AsyncClient) -> None:
    """The endpoint that has the prefix fails: however attractive it is, it is asked once. So is the next one."""
    fails = answer_json({"error": {}}, status=503)
    async with (
        scripted_engine(answer_chat("Hi"), fails) as first,
        scripted_engine(fails) as second,
        scripted_engine(fails) as third,
    ):
        engines = [first, second, third]
        gateway = await start(start_gateway, *(engine.url for engine in engines), poll_interval_s=SELDOM_S)
        assert (await ask(client, gateway)).status_code == 200
        before = [len(engine.requests) for engine in engines]
        answer = await ask(client, gateway)
        assert answer.status_code == 503  # the last one's own word
        assert [len(engine.requests) - n for engine, n in zip(engines, before, strict=True)] == [1, 1, 1]
        tried = attempts(gateway.ledger_path, answer.headers["x-request-id"])
    assert sorted(endpoint for endpoint, _ in tried) == ["e0", "e1", "e2"]
    assert tried[0][0] == "e0"  # where the prefix is


FAILURES: Final = [reset_before_first_byte, close_before_first_byte, answer_json({"error": {}}, status=503)]


async def head_only(peer: Peer) -> None:
    """An engine that dies after its head: no byte of an answer has come."""
    await peer.read_request()
    await peer.send(HEAD)


@pytest.mark.parametrize("failure", [*FAILURES, head_only])
@pytest.mark.parametrize("streams", [True, False])
async def test_retry_single_bill(
    failure: Behaviour, streams: bool, start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    answers = stream(*chat_stream("Hi")) if streams else answer_chat("Hi")
    async with scripted_engine(failure) as bad, scripted_engine(answers) as good:
        gateway = await start(
            start_gateway, bad.url, good.url, scheduling__policy="round_robin", poll_interval_s=SELDOM_S
        )
        answer = await ask(client, gateway, stream=streams)
        assert answer.status_code == 200
        assert answer.headers["x-prefixgate-endpoint"] == "e1"
        assert b"Hi" in answer.content
        assert len(bad.requests) <= 2  # once more where the kept connection itself may have been stale
        assert len(good.requests) == 1
        [row] = await settled(gateway, 1)
        assert gateway.metric("prefixgate_tokens_total", kind="prompt") == USAGE["prompt_tokens"]
        tried = attempts(gateway.ledger_path, answer.headers["x-request-id"])
    assert bill(row) == ("complete", "e1", 40, 32, 2)
    assert [endpoint for endpoint, _ in tried] == ["e0", "e1"]
    assert tried[1][1] == "answered"


def bill(row: LedgerRow) -> tuple[str, str | None, int | None, int | None, int | None]:
    """What a row says of who computed what."""
    return row.state, row.endpoint_id, row.prompt_tokens, row.cached_tokens, row.output_tokens


def attempts(ledger: Path, request_id: str) -> list[tuple[str, str]]:
    """Endpoint and outcome of all attempts of a request, in order."""
    query = "SELECT endpoint_id, outcome FROM attempts WHERE request_id = ? ORDER BY ordinal"
    with closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as connection:
        return list(connection.execute(query, (request_id,)))
