"""What was computed for one request reaches nobody else: a real engine that is given another's blocks answers 200 with
another text. Hundreds at once, while engines of both kinds fail in every way and clients leave."""

import asyncio
import json
import random
from collections import Counter
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import httpx
import pytest

from tests.gateway.conftest import StartGateway, start
from tests.gateway.continuing.talking import HEAD, chunked
from tests.gateway.disaggregation.engines import backend, usage
from tests.gateway.scripted_engine import chat_stream, event, scripted_engine
from tests.hostile import Behaviour, Peer
from tests.until import until

REQUESTS = 120


@dataclass
class Watch:
    """What each prefill engine has computed, by the name it gave it, and what decode engines were told."""

    rng: random.Random
    names: "count[int]" = field(default_factory=count)
    computed: dict[str, tuple[str, str]] = field(default_factory=dict)
    told: Counter[str] = field(default_factory=Counter)
    mixed: list[object] = field(default_factory=list)

    def prefill(self) -> Behaviour:
        """Computes, or fails."""

        async def keeps_alive(peer: Peer) -> None:
            whose, _, _ = read(await peer.read_request())
            await asyncio.sleep(self.rng.random() * 0.05)
            fault = self.rng.random()
            if fault < 0.05:
                peer.reset()
            elif fault < 0.1:
                await peer.send(plain(500, {"error": {"message": "out of memory"}}))
            else:
                name = f"kept-{next(self.names)}"
                self.computed[name] = whose
                choice = {"index": 0, "message": {"content": "x"}, "finish_reason": "length"}
                params = {"do_remote_prefill": True, "do_remote_decode": False, "remote_request_id": name}
                answer = {"choices": [choice], "usage": usage(0, 1), "kv_transfer_params": params}
                await peer.send(plain(200, answer))

        return keeps_alive

    def decode(self) -> Behaviour:
        """Answers with the words it was asked, or fails before or after its first byte."""

        async def keeps_alive(peer: Peer) -> None:
            whose, body, streams = read(await peer.read_request())
            params = body.get("kv_transfer_params")
            if params is not None:
                name = params["remote_request_id"]
                self.told[name] += 1
                if self.computed.get(name) != whose:
                    self.mixed.append((whose, self.computed.get(name)))
            await asyncio.sleep(self.rng.random() * 0.05)
            fault, words = self.rng.random(), whose[1]
            if fault < 0.08:
                peer.reset()
            elif fault < 0.16:
                await peer.send(plain(500, {"error": {"message": "transfer failed"}}))
            elif fault < 0.24 and streams:
                await peer.send(HEAD + chunked(event({"choices": [{"index": 0, "delta": {"content": f"{words}. "}}]})))
                peer.reset()
            elif streams:
                said = b"".join(chat_stream(f"{words}. ", "Done", usage=usage(0, 2)))
                await peer.send(HEAD + chunked(said) + b"0\r\n\r\n")
            else:
                choice = {"index": 0, "message": {"role": "assistant", "content": words}, "finish_reason": "stop"}
                await peer.send(plain(200, {"choices": [choice], "usage": usage(0, 2)}))

        return keeps_alive


def plain(status: int, content: object) -> bytes:
    body = json.dumps(content).encode()
    return b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % (status, len(body)) + body


def read(request: bytes) -> tuple[tuple[str, str], dict[str, Any], bool]:
    """Whose request it is, by its id and by its words; its body; and whether it asks for a stream."""
    head, _, content = request.partition(b"\r\n\r\n")
    ids = [line.partition(b": ")[2].decode() for line in head.split(b"\r\n") if line.startswith(b"x-request-id")]
    body = json.loads(content)
    said = next(message["content"] for message in body["messages"] if message["role"] == "user")
    words = said if isinstance(said, str) else said[0]["text"]
    return (ids[0], words), body, bool(body.get("stream"))


@pytest.mark.parametrize("seed", range(2))
async def test_whoever_fails_and_whoever_leaves_no_request_is_given_what_was_computed_for_another(
    seed: int, start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    watch, rng = Watch(random.Random(seed)), random.Random(seed)
    async with AsyncExitStack() as stack:
        roles = ["prefill", "prefill", "decode", "decode", "decode"]
        scripts = {"prefill": watch.prefill(), "decode": watch.decode()}
        engines = [await stack.enter_async_context(scripted_engine(scripts[role])) for role in roles]
        gateway = await start(
            start_gateway,
            backends=[
                backend(one, f"{role[0]}{n}", role) for n, role, one in zip(range(5), roles, engines, strict=True)
            ],
            continuation__enabled=True,
        )

        async def ask(number: int) -> None:
            words = f"request {number} speaks of whale {number}"
            body = {"model": "m", "messages": [{"role": "user", "content": words}], "max_tokens": 9}
            path, stream = rng.choice(["chat/completions", "messages"]), rng.random() < 0.6
            leaves_s = rng.random() * 0.1 if rng.random() < 0.25 else 30
            with suppress(httpx.HTTPError):
                answer = await client.post(
                    f"{gateway.url}/v1/{path}", json={**body, "stream": stream}, timeout=leaves_s
                )
                if answer.status_code == 200:
                    assert words in answer.text, answer.text

        async with asyncio.TaskGroup() as group:
            for number in range(REQUESTS):
                group.create_task(ask(number))
        await until(
            lambda: gateway.http.get("/health").json()["endpoints"],
            lambda found: not any(one["in_flight_requests"] for one in found.values()),
        )
    assert watch.mixed == []
    assert set(watch.told.values()) == {1}, "what was handed over is fetched once"
    assert len(watch.told) > REQUESTS / 2
