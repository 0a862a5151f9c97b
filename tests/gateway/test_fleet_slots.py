"""Engines of slots: believed to be caches of blocks until one shows that it overwrites, then told by their slots."""

import asyncio
from typing import Any

import httpx

from tests.gateway.conftest import RunningGateway, StartGateway, settled
from tests.hostile import HostileServer, Peer

BLOCK = 16


class OneSlot:
    """A server that says of itself what llama.cpp says, keeps one sequence of token ids, and reports what it reused."""

    def __init__(self) -> None:
        self._held: list[int] = []

    async def serve(self, peer: Peer) -> None:
        """One connection."""
        while True:
            request = await peer.read_request()
            path = request.split(b" ", 2)[1].decode()
            await peer.send(answer(self._page(path, request.partition(b"\r\n\r\n")[2])))

    def _page(self, path: str, body: bytes) -> dict[str, Any]:
        match path:
            case "/v1/models":
                return {"object": "list", "data": [{"id": "m", "object": "model", "owned_by": "llamacpp"}]}
            case "/props":
                return {"default_generation_settings": {"n_ctx": 100_000}, "total_slots": 1}
            case "/v1/completions":
                return self._complete(httpx.Response(200, content=body).json()["prompt"])
            case _:
                return {"status": "ok"}

    def _complete(self, prompt: list[int]) -> dict[str, Any]:
        alike = 0
        while alike < min(len(prompt) - 1, len(self._held)) and prompt[alike] == self._held[alike]:
            alike += 1
        self._held = prompt
        details = {"cached_tokens": alike}
        usage = {"prompt_tokens": len(prompt), "completion_tokens": 1, "prompt_tokens_details": details}
        return {"choices": [{"index": 0, "text": "x"}], "usage": usage}


def answer(content: dict[str, Any]) -> bytes:
    body = httpx.Request("POST", "http://x", json=content).content
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % len(body) + body


def prompt(conversation: int, turns: int) -> list[int]:
    return [conversation] * 64 + [turn for turn in range(turns) for _ in range(32)]


async def written(gateway: RunningGateway) -> None:
    """The index has what the last answer said: the next prompt is matched against that."""
    while await asyncio.to_thread(gateway.metric, "prefixgate_index_queued_writes"):
        await asyncio.sleep(0.005)


async def test_two_conversations_that_take_turns_in_one_slot_are_expected_to_lose_each_other(
    start_gateway: StartGateway,
) -> None:
    async with HostileServer([OneSlot().serve] * 1000) as server, httpx.AsyncClient(timeout=30) as client:
        gateway = await asyncio.to_thread(start_gateway, server.url, isolation="none", index__block_size=BLOCK)
        for turns in range(6):
            for conversation in (1001, 1002):
                body = {"model": "m", "prompt": prompt(conversation, turns), "max_tokens": 1}
                assert (await client.post(f"{gateway.url}/v1/completions", json=body)).status_code == 200
                await written(gateway)
        alone = [prompt(1001, 6), prompt(1001, 7), prompt(1001, 8)]
        for ids in alone:
            await client.post(f"{gateway.url}/v1/completions", json={"model": "m", "prompt": ids, "max_tokens": 1})
            await written(gateway)
        rows = await settled(gateway, 15)
    wrong = [row for row in rows if not 0 <= (row.cached_tokens or 0) - (row.expected_cached_tokens or 0) < BLOCK]
    assert len(wrong) == 1, "the first contradiction teaches it"
    assert [row.expected_cached_tokens for row in rows[-2:]] == [64 + 6 * 32, 64 + 7 * 32]
