"""When a client sees a token that an engine sends: a handshake that anything which holds bytes back brings to a stand.

    engine: token 0 ........................ token 1 ........ ... the end
                `--> gateway --> client --seen--^ `-->

The engine sends the next token only once the client has said that it has seen the last one, so a buffer anywhere on
the way, in the gateway or in the client's library, is no delay but a time-out. What is measured besides is the time
from the engine's write to the client's sight, by the one clock of the machine.
"""

import asyncio
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
import anthropic
import openai

from tests.gateway.scripted_engine import USAGE, ScriptedEngine, delta, event, scripted_engine
from tests.hostile import Behaviour, Peer

MODEL: Final = "m"
TOKENS: Final = 5
ROUND_S: Final = 30.0
"""What is held back is never seen; a slow machine does not take as long."""
MESSAGES: Final[Any] = [{"role": "user", "content": "Where are the books on gravity?"}]
CHAT: Final[dict[str, Any]] = {"model": MODEL, "stream": True, "messages": MESSAGES}
_HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"

Seen = Callable[[float], Awaitable[None]]
"""Tell that a token was seen, at this wall time in seconds."""
Client = Callable[[str, int, Seen], Awaitable[None]]
"""Asks the server at a URL so many times, one after the other, and tells of each token."""


@dataclass(slots=True)
class Handshake:
    """What an engine has sent and its clients have seen; `gaps_s` lie between, for the first token of each answer."""

    gaps_s: list[float] = field(default_factory=list)
    _sent: int = 0
    _seen: int = 0
    _sent_at_s: float = 0.0
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def sends(self) -> None:
        """The engine sends a token now."""
        self._sent += 1
        self._sent_at_s = time.time()
        self._news.clear()

    async def until_seen(self) -> None:
        """Wait until the client has seen it."""
        await self._news.wait()

    async def seen(self, at_s: float) -> None:
        """A client has seen the token that was sent last."""
        if self._seen % TOKENS == 0:
            self.gaps_s.append(at_s - self._sent_at_s)
        self._seen += 1
        assert self._seen == self._sent, "the client sees tokens that were not sent, or one of them twice"
        self._news.set()

    @property
    def answers(self) -> int:
        """Answers of which every token was seen."""
        return self._seen // TOKENS


def one_by_one(handshake: Handshake) -> Behaviour:
    """An engine that goes on only when what it sent was seen."""

    async def keeps_alive(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(_HEAD)
        for number in range(TOKENS):
            handshake.sends()
            await peer.send(_chunk(delta(f"word {number} ")))
            await handshake.until_seen()
        stop = event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        await peer.send(_chunk(stop + event({"choices": [], "usage": USAGE}) + b"data: [DONE]\n\n") + b"0\r\n\r\n")

    return keeps_alive


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


@asynccontextmanager
async def patient_engine() -> AsyncIterator[tuple[ScriptedEngine, Handshake]]:
    """Such an engine, and what is known of its tokens."""
    handshake = Handshake()
    async with scripted_engine(one_by_one(handshake), model=MODEL) as engine:
        yield engine, handshake


async def openai_chat(url: str, times: int, seen: Seen) -> None:
    """The official client, chat completions."""
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:
        for _ in range(times):
            async for chunk in await client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True):
                if chunk.choices and chunk.choices[0].delta.content:
                    await seen(time.time())


async def openai_responses(url: str, times: int, seen: Seen) -> None:
    """The official client, responses: the gateway translates, for the engine speaks chat alone."""
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:
        for _ in range(times):
            async for part in await client.responses.create(model=MODEL, input=MESSAGES, stream=True, store=False):
                if part.type == "response.output_text.delta":
                    await seen(time.time())


async def anthropic_messages(url: str, times: int, seen: Seen) -> None:
    """Anthropic's client, messages: translated too."""
    async with anthropic.AsyncAnthropic(base_url=url, api_key="any", max_retries=0) as client:
        for _ in range(times):
            async with client.messages.stream(model=MODEL, max_tokens=64, messages=MESSAGES) as stream:
                async for _ in stream.text_stream:
                    await seen(time.time())


async def aiohttp_chat(url: str, times: int, seen: Seen) -> None:
    """aiohttp, bytes as they come."""
    async with aiohttp.ClientSession() as session:
        for _ in range(times):
            async with session.post(f"{url}/v1/chat/completions", json=CHAT) as answer:
                assert answer.status == 200
                await tell_of_tokens(answer.content.iter_any(), seen)


async def tell_of_tokens(pieces: AsyncIterable[bytes], seen: Seen) -> None:
    """Tell of each event with text, once it is whole."""
    begun = b""
    async for piece in pieces:
        *events, begun = (begun + piece).split(b"\n\n")
        for one in events:
            if b'"content"' in one:
                await seen(time.time())


PYTHON_CLIENTS: Final[dict[str, Client]] = {
    "openai": openai_chat,
    "openai responses": openai_responses,
    "anthropic": anthropic_messages,
    "aiohttp": aiohttp_chat,
}
TRANSLATED: Final = frozenset({"openai responses", "anthropic"})
"""Clients of which the engine itself does not speak the dialect."""
