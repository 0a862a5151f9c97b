"""The picker as a server: health, TLS, drain, the command; and its parts by themselves."""

import asyncio
import json
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from backends import DialFailed, EndpointConfig, EndpointId
from gateway.cli import cli
from gateway.config import ConfigInvalid, load_config
from gateway.epp.addresses import Addresses
from gateway.epp.certificates import credentials_of, self_signed
from gateway.epp.command import check_epp
from gateway.epp.fields import answer_changes, request_changes
from gateway.types import Headers
from tests.gateway.conftest import settled
from tests.gateway.epp.asking import CHAT, SAYS_HELLO, chat
from tests.gateway.epp.conftest import RunningPicker, SimulatedEngine, StartPicker, simulated_engine
from tests.gateway.epp.front import Ask, Broken, Front, answer_head, body_message, request_head

GONE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


async def health_of(channel: Any, service: str) -> int:
    answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=service), timeout=10)
    return int(answer.status)


@pytest.mark.parametrize("service", ["", "liveness", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor"])
async def test_health_is_served_while_requests_can_be(picker: RunningPicker, service: str) -> None:
    async with Front(picker.address) as front:
        assert await health_of(front.channel, service) == SERVING


async def test_without_an_engine_the_picker_lives_and_is_not_ready(start_picker: StartPicker) -> None:
    picker = await asyncio.to_thread(start_picker, "http://127.0.0.1:9")
    async with Front(picker.address) as front:
        assert await health_of(front.channel, "liveness") == SERVING
        assert await health_of(front.channel, "readiness") == NOT_SERVING
        told = await front.ask(CHAT, chat("Hi?"))
        assert (told.status, told.immediate) == (503, True)
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await health_of(front.channel, "another")
    assert unknown.value.code() is grpc.StatusCode.NOT_FOUND


async def test_who_watches_hears_of_a_change(start_picker: StartPicker) -> None:
    with simulated_engine() as engine:
        picker = await asyncio.to_thread(start_picker, engine.url)
        async with Front(picker.address) as front, asyncio.timeout(30):
            stub = health_pb2_grpc.HealthStub(front.channel)
            watched = stub.Watch(health_pb2.HealthCheckRequest(service="readiness"))
            assert (await watched.read()).status == SERVING
            engine.process.kill()
            assert (await watched.read()).status == NOT_SERVING


async def test_health_has_a_port_of_its_own_without_tls(
    engines: list[SimulatedEngine], start_picker: StartPicker
) -> None:
    picker = await asyncio.to_thread(start_picker, engines[0].url, epp__tls="self_signed", epp__health_port=0)
    assert picker.server.health_address is not None
    async with grpc.aio.insecure_channel(picker.server.health_address) as channel:
        assert await health_of(channel, "readiness") == SERVING
    async with Front(picker.server.health_address) as front, front.call() as call:
        await call.close()
        with pytest.raises(Broken, match="UNIMPLEMENTED"):
            await call.hear()


async def test_a_certificate_of_its_own_is_one_and_files_are_taken_too(
    engines: list[SimulatedEngine], start_picker: StartPicker, tmp_path: Path
) -> None:
    key, chain = self_signed(datetime.now(UTC))
    (tmp_path / "key.pem").write_bytes(key)
    (tmp_path / "cert.pem").write_bytes(chain)
    flags = {"epp__tls": "files", "epp__cert_file": tmp_path / "cert.pem", "epp__key_file": tmp_path / "key.pem"}
    picker = await asyncio.to_thread(start_picker, engines[0].url, **flags)
    credentials = grpc.ssl_channel_credentials(root_certificates=chain)
    options = [("grpc.ssl_target_name_override", "prefixgate-epp")]
    async with grpc.aio.secure_channel(picker.address, credentials, options=options) as channel:
        assert await health_of(channel, "readiness") == SERVING


def test_files_that_are_no_certificate_are_refused(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text("no key")
    epp = {"epp.tls": "files", "epp.cert_file": tmp_path / "key.pem", "epp.key_file": tmp_path / "key.pem"}
    with pytest.raises(ConfigInvalid, match="must be PEM"):
        credentials_of(load_config(None, {}, epp).epp)
    with pytest.raises(ConfigInvalid, match="cannot read"):
        credentials_of(load_config(None, {}, {**epp, "epp.key_file": tmp_path / "none.pem"}).epp)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"epp.tls": "files"}, "needs cert_file"),
        ({"epp.cert_file": "a.pem", "epp.key_file": "b.pem"}, "are for tls: files"),
        ({"epp.tls": "off", "epp.client_ca_file": "a.pem"}, "needs TLS"),
    ],
)
def test_a_section_that_contradicts_itself_is_refused(flags: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigInvalid, match=said):
        load_config(None, {}, flags)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"supervised": True}, "one process"),
        ({"continuation.enabled": True}, "elsewhere"),
        ({"backends": [{"url": "http://a:1", "id": "a", "role": "prefill"}]}, "role of a"),
    ],
)
def test_what_needs_our_own_data_plane_is_refused(flags: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigInvalid, match=said):
        check_epp(load_config(None, {}, flags))


async def test_a_picker_that_stops_ends_what_is_under_way_and_takes_nothing_new(
    engines: list[SimulatedEngine], start_picker: StartPicker
) -> None:
    picker = await asyncio.to_thread(start_picker, engines[0].url, limits__drain_s=20)
    async with Front(picker.address) as front, front.call() as call:
        ask = Ask(CHAT, chat("Hi?"))
        await call.show(request_head(ask))
        await call.show(body_message(ask.body, request=True, ends=True))
        await call.hear()
        await call.hear()
        picker.server.should_exit = True
        async with Front(picker.address) as late, asyncio.timeout(20):
            while True:  # until it takes nothing new
                try:
                    await late.ask("/v1/models", method="GET")
                except Broken as refused:
                    assert refused.code in GONE  # noqa: PT017 - sooner or later
                    break
        await call.show(answer_head(SAYS_HELLO, ask, ends=False))
        await call.show(body_message(SAYS_HELLO.pieces[0], request=False, ends=True))
        said = [reply async for reply in _rest(call)]
        assert said[-1].response_body.response.body_mutation.streamed_response.end_of_stream
    assert [row.state for row in await settled(picker.pages, 1)] == ["complete"]


async def _rest(call: Any) -> Any:
    while (reply := await call.hear()) is not None:
        yield reply


def test_the_command_says_where_it_listens_and_why_it_does_not_start(
    engines: list[SimulatedEngine], tmp_path: Path
) -> None:
    command = ("epp", "--port", "0", "--grpc-port", "0", "--json", "--backend", engines[0].url)
    refused = CliRunner().invoke(cli, [*command, "--tls", "files"])
    assert refused.exit_code == 2
    assert "cert_file" in json.loads(refused.stderr)["error"]["message"]
    served = (sys.executable, "-m", "gateway", *command)
    with subprocess.Popen(
        served, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=tmp_path
    ) as process:
        kill = threading.Timer(60, process.kill)
        kill.start()
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        process.terminate()
        assert process.wait(30) == 0
        kill.cancel()
    assert told["url"].startswith("http://")
    assert told["grpc"].startswith("0.0.0.0:")
    assert told["tls"] == "self_signed"


def test_a_port_that_is_taken_is_no_start(
    engines: list[SimulatedEngine], start_picker: StartPicker, caplog: pytest.LogCaptureFixture
) -> None:
    taken = engines[0].url.rpartition(":")[2]
    with pytest.raises(AssertionError):
        start_picker(engines[0].url, epp__port=taken)
    assert "gRPC cannot be served" in caplog.messages


async def test_addresses_are_literal_or_looked_up() -> None:
    addresses = Addresses(lambda: 0.0)

    async def of(url: str) -> tuple[str, ...]:
        return await addresses.of(EndpointConfig(EndpointId("e"), url), 5)

    assert await of("http://10.0.0.1:8000/base") == ("10.0.0.1:8000",)
    assert await of("https://[fd00::1]") == ("[fd00::1]:443",)
    assert "127.0.0.1:81" in await of("http://localhost:81")
    with pytest.raises(DialFailed):
        await of("http://nobody.invalid:80")


NAMES = st.sampled_from([b"x-a", b"x-b", b"content-type", b"x-envoy-c"])
FIELDS = st.lists(st.tuples(NAMES, st.sampled_from([b"1", b"2", b""])), max_size=6).map(tuple)


def changed(came: Headers, to_set: Headers, remove: tuple[bytes, ...]) -> dict[bytes, list[bytes]]:
    """What a gateway in front makes of it: the oracle."""
    found: dict[bytes, list[bytes]] = {}
    for name, value in came:
        found.setdefault(name, []).append(value)
    for name in remove:
        found.pop(name, None)
    for name in {name for name, _ in to_set}:
        found[name] = [value for known, value in to_set if known == name]
    return found


@given(came=FIELDS, wanted=FIELDS, status=st.sampled_from([200, 502]))
def test_what_is_changed_of_an_answer_makes_it_what_is_wanted(came: Headers, wanted: Headers, status: int) -> None:
    pseudo = ((b":status", b"200"),)
    changes = answer_changes((*pseudo, *came), status, wanted)
    assert changed((*pseudo, *came), changes.set, changes.remove) == changed(
        ((b":status", b"%d" % status), *wanted), (), ()
    )


def test_a_request_leaves_with_the_endpoints_key_and_not_the_clients() -> None:
    came = (
        *((b":path", b"/v1"), (b"authorization", b"Bearer mine"), (b"cookie", b"a"), (b"x-kept", b"1")),
        *((b"x-gateway-destination-endpoint", b"192.0.2.1:1"), (b"te", b"trailers")),
    )
    wanted = tuple(field for field in came if not field[0].startswith(b":"))
    changes = request_changes(came, wanted, "the-engines", ("10.0.0.1:8000", "10.0.0.2:8000"))
    assert dict(changes.set) == {
        b"authorization": b"Bearer the-engines",
        b"accept-encoding": b"identity",
        b"x-gateway-destination-endpoint": b"10.0.0.1:8000,10.0.0.2:8000",
    }
    assert changes.remove == (b"cookie",)
