"""All other endpoints are full when one dies: who is cut waits for its turn, and pays what it got if it leaves."""

import asyncio
from typing import Any

import httpx
import pytest

from tests.gateway.conftest import RunningGateway, StartGateway, settled, start
from tests.gateway.continuing.talking import HEAD, TEXT, Dialect, Scene, chunked, events, heard
from tests.gateway.scripted_engine import scripted_engine
from tests.hostile import Peer
from tests.until import until

CHAT: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": "Where?"}],
    "stream": True,
    "max_tokens": 100,
}
CUT = len(b"".join(events("engine-a", Dialect(), CHAT)[:4]))


class Stage:
    """Two engines of one place each: the first request hangs until it may end, the second dies once that is wanted."""

    def __init__(self) -> None:
        self.scene = Scene(cuts=[None])
        self.taken, self.may_end, self.may_die = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.asked = 0

    async def engine(self, peer: Peer) -> None:
        self.asked += 1
        if self.asked == 1:
            await peer.read_request()
            self.taken.set()
            await self.may_end.wait()
            await peer.send(HEAD + chunked(b"".join(events("busy", Dialect(), CHAT))) + b"0\r\n\r\n")
        elif self.asked == 2:
            await peer.read_request()
            await peer.send(HEAD + chunked(b"".join(events("engine-a", Dialect(), CHAT))[:CUT]))
            await self.may_die.wait()
            peer.reset()
        else:
            await self.scene.engine("engine-b")(peer)


async def waiting(gateway: RunningGateway) -> None:
    """Until somebody waits for a place."""
    await until(lambda: asyncio.to_thread(gateway.metric, "prefixgate_queue_requests"))


@pytest.mark.parametrize("leaves", [False, True])
async def test_who_was_cut_waits_for_its_turn(
    leaves: bool, start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    stage = Stage()
    async with scripted_engine(stage.engine) as one, scripted_engine(stage.engine) as other:
        gateway = await start(start_gateway, one.url, other.url, continuation__enabled=True, queue__max_running=1)
        url = f"{gateway.url}/v1/chat/completions"
        async with asyncio.TaskGroup() as group:
            busy = group.create_task(client.post(url, json=CHAT))
            await stage.taken.wait()
            async with client.stream("POST", url, json=CHAT) as answer:
                chunks = answer.aiter_raw()
                got = [await anext(chunks)]
                stage.may_die.set()
                await waiting(gateway)
                if not leaves:
                    stage.may_end.set()
                    got += [chunk async for chunk in chunks]
            if leaves:
                await settled(gateway, 1)
                stage.may_end.set()
        assert heard((await busy).content).text == TEXT
        _, cut = await settled(gateway, 2)
    assert heard(b"".join(got)).text == ("The books on" if leaves else TEXT)
    assert (cut.state, cut.prompt_tokens) == ("partial" if leaves else "complete", 40)
    assert (cut.output_tokens, cut.attempts) == ((40, 1) if leaves else (40 + 6, 2))
