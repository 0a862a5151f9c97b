"""Requests that wait: an engine that answers when it is told to, and who is at it."""

import asyncio
import json
from collections.abc import Mapping

import httpx

from tests.gateway.conftest import RunningGateway
from tests.gateway.scripted_engine import answer_chat
from tests.hostile import Peer


class Taps:
    """An engine that answers a request when it is told to, and keeps who is at it and in which order they came."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.bodies: list[bytes] = []
        self.running = self.most_running = 0
        self._go = asyncio.Semaphore(0)
        self._came = asyncio.Condition()

    async def keeps_alive(self, peer: Peer) -> None:
        request = await peer.read_request()
        self.bodies.append(body := request.partition(b"\r\n\r\n")[2])
        self.names.append(json.loads(body)["messages"][-1]["content"])
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        async with self._came:
            self._came.notify_all()
        try:
            await self._go.acquire()
        finally:
            self.running -= 1
        await answer_chat("Hi")(_Read(peer))

    def answer(self, requests: int = 1) -> None:
        for _ in range(requests):
            self._go.release()

    async def has(self, requests: int) -> None:
        """Wait until so many have come."""
        async with self._came:
            await self._came.wait_for(lambda: len(self.names) >= requests)


class _Read(Peer):
    """The connection for an answer to what was read already."""

    def __init__(self, peer: Peer) -> None:
        self.__dict__.update(peer.__dict__)

    async def read_request(self) -> bytes:
        return b""


def chat(name: str, **more: object) -> dict[str, object]:
    return {"model": "m", "messages": [{"role": "user", "content": name}], "max_tokens": 4, **more}


def key_of(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def post(
    client: httpx.AsyncClient,
    gateway: RunningGateway,
    name: str,
    headers: Mapping[str, str] | None = None,
    **more: object,
) -> httpx.Response:
    return await client.post(f"{gateway.url}/v1/chat/completions", json=chat(name, **more), headers=headers)


async def waiting(gateway: RunningGateway, requests: int) -> None:
    while await asyncio.to_thread(gateway.metric, "prefixgate_queue_requests") != requests:
        await asyncio.sleep(0.01)
