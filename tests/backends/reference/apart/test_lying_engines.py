"""An engine that fetches blocks from one that hangs, lies or sends without end: an error in time, and nobody waits."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest
import torch

from backends.reference.apart import Carried, fetching, transfers
from backends.reference.block_pool import HASH_BYTES
from backends.reference.embedded import RunningEngine, run_engine
from backends.reference.errors import TransferFailed
from backends.reference.types import EngineConfig, KvRole
from backends.reference.weights import ModelWeights
from tests.backends.reference.apart.test_two_engines import ASKED, BODY, CONFIG

HEAD = b"HTTP/1.1 200 OK\r\n"
Say = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture
def consumer(micro: ModelWeights) -> Iterator[RunningEngine]:
    with run_engine(replace(CONFIG, kv_role=KvRole.CONSUMER), micro) as running:
        yield running


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=30) as client:
        yield client


@asynccontextmanager
async def liar(say: Say) -> AsyncIterator[dict[str, Any]]:
    """The params of blocks that wait at an engine which does `say`."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            await say(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        yield {
            "do_remote_prefill": True,
            "remote_host": "127.0.0.1",
            "remote_port": port,
            "remote_request_id": "its-name",
        }


async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"content-length: 100000\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.01)


async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"transfer-encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
        await writer.drain()


async def cut_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"content-length: 1000\r\n\r\n0123456789")


async def send_elsewhere(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 307 Temporary Redirect\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n")


async def no_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"+PONG\r\n")


async def other_bytes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"content-length: 4\r\n\r\nnope")


async def asked(http: httpx.AsyncClient, engine: RunningEngine, params: dict[str, Any]) -> httpx.Response:
    return await http.post(f"{engine.url}/v1/completions", json={**BODY, "kv_transfer_params": params})


async def test_an_engine_that_hangs_holds_up_only_those_who_wait_for_its_blocks(
    consumer: RunningEngine, http: httpx.AsyncClient
) -> None:
    asking, enough = asyncio.Semaphore(0), asyncio.Event()

    async def hang_until_enough(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asking.release()
        await enough.wait()

    async with liar(hang_until_enough) as params:
        # More than there are threads that tokenise.
        waiting = [asyncio.ensure_future(asked(http, consumer, params)) for _ in range(40)]
        for _ in waiting:
            await asking.acquire()
        text = {**BODY, "prompt": "What is a whale?"}
        assert (await http.post(f"{consumer.url}/v1/completions", json=text)).status_code == 200
        assert not any(one.done() for one in waiting)
        enough.set()
        assert {answer.status_code for answer in await asyncio.gather(*waiting)} == {500}


@pytest.mark.parametrize(("say", "limit"), [(hang, "SILENCE_S"), (drip, "PATIENCE_S")])
async def test_an_engine_that_hangs_or_drips_is_waited_for_so_long(
    consumer: RunningEngine, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, say: Say, limit: str
) -> None:
    monkeypatch.setattr(fetching, limit, 0.2)
    async with liar(say) as params:
        answer = await asked(http, consumer, params)
    assert (answer.status_code, "silent for" in answer.text) == (500, True), answer.text


async def test_what_is_sent_without_end_is_read_as_far_as_the_prompt_has_blocks(
    consumer: RunningEngine, http: httpx.AsyncClient
) -> None:
    async with liar(flood) as params:
        answer = await asked(http, consumer, params)
    assert answer.status_code == 500
    assert "sends more than the blocks of this prompt" in answer.text


@pytest.mark.parametrize(
    ("say", "mistake"),
    [
        (cut_off, "no answer from"),
        (send_elsewhere, "has no such blocks (307)"),
        (no_http, "no answer from"),
        (other_bytes, "is no file of blocks"),
    ],
)
async def test_what_is_no_copy_is_an_error_of_the_transfer(
    consumer: RunningEngine, http: httpx.AsyncClient, say: Say, mistake: str
) -> None:
    async with liar(say) as params:
        answer = await asked(http, consumer, params)
        assert (answer.status_code, mistake in answer.text) == (500, True), answer.text
    # It is an error of that request alone.
    assert (await http.post(f"{consumer.url}/v1/completions", json=BODY)).status_code == 200


@pytest.mark.parametrize("name", ["../v1/models", "a?b=c", "a/b", "a b", "é", "", "a\r\nb"])
async def test_nothing_but_blocks_is_asked_for(consumer: RunningEngine, http: httpx.AsyncClient, name: str) -> None:
    async with liar(hang) as params:
        answer = await asked(http, consumer, {**params, "remote_request_id": name})
    assert answer.status_code == 500
    assert "name no host, port and request" in answer.text


@pytest.mark.parametrize("host", ["a b", "[::1", "é" * 300, "\x00", "127.0.0.1/x", "user@127.0.0.1", "no.such.invalid"])
async def test_what_is_no_host_is_an_error_of_the_transfer(
    consumer: RunningEngine, http: httpx.AsyncClient, host: str
) -> None:
    params = {"do_remote_prefill": True, "remote_host": host, "remote_port": 1, "remote_request_id": "name"}
    answer = await asked(http, consumer, params)
    assert (answer.status_code, "no answer from" in answer.text) == (500, True), answer.text
    refused = await asked(http, consumer, {**params, "remote_port": 65_536})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "body.kv_transfer_params.remote_port")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float8_e4m3fn])
def test_blocks_of_what_is_no_number_are_refused(value: float, dtype: torch.dtype) -> None:
    carried = Carried(bytes(HASH_BYTES), (), torch.full((1, 2, 1, 1, 1, 1), value).to(dtype))
    with pytest.raises(TransferFailed, match="no numbers"):
        Carried.from_bytes(carried.to_bytes())


async def test_copies_that_nobody_fetches_take_so_much_memory_and_the_oldest_go_first(
    micro: ModelWeights, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = EngineConfig(model="tiny", kv_blocks=64, kv_role=KvRole.PRODUCER)
    with run_engine(config, micro) as producer:
        # Each prompt of 50 tokens has three blocks.
        copy_bytes = 3 * config.block_size * micro.shape.kv_bytes_per_token
        monkeypatch.setattr(transfers, "MOST_WAITING_BYTES", 4 * copy_bytes)
        names = []
        for first in range(6):
            prompt = [first, *BODY["prompt"][1:]]
            body = {**BODY, "prompt": prompt, "max_tokens": 1, "kv_transfer_params": ASKED}
            answer = await http.post(f"{producer.url}/v1/completions", json=body)
            names.append(answer.json()["kv_transfer_params"]["remote_request_id"])
        assert producer.service.transfers is not None
        assert producer.service.transfers.waiting == 4
        taken = [await http.post(f"{producer.url}/kv_transfer/{name}") for name in (*names, names[-1])]
        assert [one.status_code for one in taken] == [404, 404, 200, 200, 200, 200, 404]
