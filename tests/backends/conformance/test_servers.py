"""What the upstream client promises, against servers that others wrote: uvicorn with both of its parsers, and nginx."""

import asyncio
import hashlib
import json

import pytest

from backends.client import UpstreamClient
from backends.types import EndpointConfig, EndpointId, Headers, UpstreamRequest
from tests.backends.conformance.conftest import Run, Server
from tests.backends.conformance.engine import pattern
from tests.backends.upstream import PATIENT

SIZES = (0, 1, 1000, 65_536, 65_537, 1_048_577, 3_000_000)
SEEN_WITHIN_S = 10.0


def endpoint(server: Server) -> EndpointConfig:
    return EndpointConfig(EndpointId("a"), server.url, api_key="own-key")


async def call(
    client: UpstreamClient, server: Server, path: str, body: bytes = b"", headers: Headers = (), method: str = "POST"
) -> tuple[int, bytes]:
    request = UpstreamRequest(method, path, headers, body)
    async with await client.send(endpoint(server), request, PATIENT) as response:
        return response.status, await response.read(10_000_000)


def test_bodies_of_all_sizes_come_whole_with_and_without_a_length(server: Server, run: Run) -> None:
    async def case() -> None:
        async with UpstreamClient() as client:
            for size in SIZES:
                for page in ("sized", "chunked"):
                    assert await call(client, server, f"/{page}/{size}") == (200, pattern(size))

    run(case())


def test_requests_arrive_as_sent(server: Server, run: Run) -> None:
    fields = ((b"content-type", b"application/json"), (b"x-latin", b"gr\xfcn"), (b"x-twice", b"1"), (b"x-twice", b"2"))

    async def case() -> None:
        async with UpstreamClient() as client:
            for size in SIZES:
                body = pattern(size)
                status, said = await call(client, server, "/echo?a=%2F&b=%20c", body, fields)
                seen = json.loads(said)
                assert (status, seen["method"], seen["path"]) == (200, "POST", "/echo?a=%2F&b=%20c")
                assert (seen["length"], seen["digest"]) == (size, hashlib.sha256(body).hexdigest())
                arrived = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in seen["fields"]]
                assert {*fields, (b"authorization", b"Bearer own-key"), (b"accept-encoding", b"identity")} <= {*arrived}
                assert (b"host", server.url.removeprefix("http://").encode()) in arrived

    run(case())


@pytest.mark.parametrize("status", [204, 304])
def test_answers_without_a_body_end_with_their_head(server: Server, run: Run, status: int) -> None:
    async def case() -> None:
        async with UpstreamClient() as client:
            for _ in range(3):
                assert await call(client, server, f"/status/{status}", method="GET") == (status, b"")
            assert await call(client, server, "/sized/5") == (200, pattern(5))

    run(case())


def test_head_is_answered_by_a_head(server: Server, run: Run) -> None:
    async def case() -> None:
        async with UpstreamClient() as client:
            for page in ("sized", "chunked"):
                assert await call(client, server, f"/{page}/1000", method="HEAD") == (200, b"")
            assert await call(client, server, "/sized/5") == (200, pattern(5))

    run(case())


def test_connections_are_reused_and_those_that_a_server_ends_are_replaced(server: Server, run: Run) -> None:
    async def case() -> None:
        reused = 0
        async with UpstreamClient() as client:
            for _ in range(50):
                request = UpstreamRequest("POST", "/sized/10", (), b"{}")
                async with await client.send(endpoint(server), request, PATIENT) as response:
                    assert await response.read(100) == pattern(10)
                    reused += response.reused_connection
        assert reused >= 40

    run(case())


def test_a_connection_that_the_engine_wants_closed_is_not_used_again(server: Server, run: Run) -> None:
    async def case() -> None:
        async with UpstreamClient() as client:
            for _ in range(5):
                assert await call(client, server, "/closing") == (200, b"ok")
            assert await call(client, server, "/sized/5") == (200, pattern(5))

    run(case())


def test_an_answer_before_the_end_of_the_request_is_an_answer(server: Server, run: Run) -> None:
    async def case() -> None:
        async with UpstreamClient() as client:
            assert await call(client, server, "/early", pattern(50_000)) == (413, b"too big")
            assert await call(client, server, "/sized/5") == (200, pattern(5))

    run(case())


def test_what_an_engine_has_written_is_there_before_it_goes_on(server: Server, run: Run) -> None:
    async def case() -> None:
        async with UpstreamClient() as client:
            request = UpstreamRequest("POST", "/steps")
            async with await client.send(endpoint(server), request, PATIENT) as response:
                assert await response.read_chunk() == b"one"
                assert await call(client, server, "/step") == (200, b"")
                assert await response.read(10) == b"two"

    run(case())


def test_many_calls_at_once_get_each_their_own_answer(server: Server, run: Run) -> None:
    async def case() -> None:
        async with UpstreamClient(max_connections=16) as client, asyncio.TaskGroup() as group:
            sizes = [number * 37 for number in range(128)]
            calls = [group.create_task(call(client, server, f"/sized/{size}", pattern(size))) for size in sizes]
        assert [one.result() for one in calls] == [(200, pattern(size)) for size in sizes]

    run(case())


def test_the_engine_sees_us_leave_before_the_first_byte(server: Server, run: Run) -> None:
    async def case() -> None:
        async with UpstreamClient() as client, asyncio.TaskGroup() as group:
            request = UpstreamRequest("POST", "/silent", (), b"{}")
            asking = group.create_task(client.send(endpoint(server), request, PATIENT))
            assert await asyncio.to_thread(server.engine.asked.wait, SEEN_WITHIN_S)
            asking.cancel()
            assert await asyncio.to_thread(server.engine.left.wait, SEEN_WITHIN_S)

    server.engine.asked.clear()
    server.engine.left.clear()
    run(case())


def test_the_engine_sees_us_leave_in_the_middle(server: Server, run: Run) -> None:
    async def case() -> None:
        async with UpstreamClient() as client:
            response = await client.send(endpoint(server), UpstreamRequest("POST", "/talking", (), b"{}"), PATIENT)
            assert await response.read_chunk() == b"hello"
            response.abort()
            assert await asyncio.to_thread(server.engine.left.wait, SEEN_WITHIN_S)

    server.engine.left.clear()
    run(case())
