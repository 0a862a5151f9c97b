"""What the tests of the upstream client share: a request, deadlines, and a way to run a case on uvloop."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Mapping

import uvloop

from backends.client import UpstreamClient
from backends.types import Deadlines, EndpointConfig, EndpointId, UpstreamRequest
from tests.hostile import Peer

PATIENT = Deadlines(connect_s=30, first_byte_s=30, idle_s=30)
CHAT = UpstreamRequest("POST", "/v1/chat/completions", ((b"content-type", b"application/json"),), b'{"model":"m"}')

Case = Callable[[UpstreamClient], Coroutine[None, None, None]]


def endpoint(url: str, api_key: str | None = None) -> EndpointConfig:
    return EndpointConfig(EndpointId("a"), url, api_key=api_key)


async def peer_sees_us_leave(peer: Peer) -> None:
    async with asyncio.timeout(2):
        await peer.gone.wait()


def cases(module: Mapping[str, Case]) -> list[Case]:
    """The tests of a module that need nothing but a client."""
    return [
        case
        for name, case in module.items()
        if name.startswith("test_") and list(inspect.signature(case).parameters) == ["client"]
    ]


def run_on_uvloop(case: Case) -> None:
    async def with_client() -> None:
        async with UpstreamClient() as upstream:
            await case(upstream)

    uvloop.run(with_client())
