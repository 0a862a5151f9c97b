"""TLS to an endpoint, on the data path and in health checks: the endpoint's CA and our certificate."""

import asyncio
import ssl
from dataclasses import replace
from pathlib import Path

import pytest

from backends.client import UpstreamClient
from backends.errors import DialFailed, DialReason
from backends.registry import Registry
from backends.types import Deadlines, EndpointConfig, EndpointId, UpstreamRequest
from tests.hostile import HostileServer, answer

TLS = Path(__file__).parents[1] / "data" / "tls"
A = EndpointId("a")
CHAT = UpstreamRequest("POST", "/v1/x", (), b"{}")
MODELS = b'{"data":[{"id":"m"}]}'


def server_context(wants_client_certificate: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "cert.pem", TLS / "key.pem")
    if wants_client_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(TLS / "cert.pem")
    return context


def hosts_of(request: bytes) -> list[bytes]:
    return [line.lower() for line in request.split(b"\r\n") if line.lower().startswith(b"host:")]


def trusting(url: str) -> EndpointConfig:
    return EndpointConfig(A, url, ca_file=TLS / "cert.pem")


async def test_an_endpoint_with_a_ca_of_its_own_is_reached_by_name_of_that_ca() -> None:
    async with HostileServer([answer(MODELS)], tls=server_context()) as server, UpstreamClient() as client:
        for turn in range(2):
            async with await client.send(trusting(server.url), CHAT, Deadlines()) as response:
                assert await response.read(100) == MODELS
                assert response.reused_connection == (turn > 0)


async def test_an_endpoint_nobody_vouches_for_is_refused_before_anything_is_sent() -> None:
    async with HostileServer([answer(MODELS)], tls=server_context()) as server, UpstreamClient() as client:
        with pytest.raises(DialFailed) as failure:
            await client.send(EndpointConfig(A, server.url), CHAT, Deadlines())
        assert failure.value.reason is DialReason.TLS
        assert not any(peer.requests for peer in server.peers)


async def test_an_endpoint_found_by_its_address_proves_to_be_what_it_is_called() -> None:
    async with HostileServer([answer(MODELS)], tls=server_context()) as server, UpstreamClient() as client:
        elsewhere = trusting(server.url.replace("127.0.0.1", "localhost"))  # of which its certificate does not speak
        with pytest.raises(DialFailed) as failure:
            await client.send(elsewhere, CHAT, Deadlines())
        assert failure.value.reason is DialReason.TLS
        named = replace(elsewhere, server_name="127.0.0.1")
        async with await client.send(named, CHAT, Deadlines()) as response:
            assert await response.read(100) == MODELS
        async with Registry([named], asyncio.get_running_loop().time) as registry:
            await registry.poll(A)
            assert registry.snapshot()[0].healthy
        hosts = {line for peer in server.peers for request in peer.requests for line in hosts_of(request)}
        assert hosts == {f"host: 127.0.0.1:{server.port}".encode()}


async def test_our_certificate_is_shown_to_an_endpoint_that_asks_for_it() -> None:
    async with HostileServer([answer(MODELS)], tls=server_context(True)) as server, UpstreamClient() as client:
        config = replace(trusting(server.url), cert_file=TLS / "cert.pem", key_file=TLS / "key.pem")
        async with await client.send(config, CHAT, Deadlines()) as response:
            assert await response.read(100) == MODELS
        async with Registry([config], asyncio.get_running_loop().time) as registry:
            await registry.poll(A)
            assert registry.snapshot()[0].healthy


async def test_health_checks_trust_the_same_ca_and_nobody_else() -> None:
    async with HostileServer([answer(MODELS)], tls=server_context()) as server:
        configs = [trusting(server.url), EndpointConfig(EndpointId("b"), server.url)]
        async with Registry(configs, asyncio.get_running_loop().time) as registry:
            await registry.detect_all(deadline_s=5)
            assert [snapshot.healthy for snapshot in registry.snapshot()] == [True, False]
