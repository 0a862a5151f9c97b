"""Names looked up: by the system's resolver, and against a DNS server on a real port that changes its mind."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence

import dns.rcode
import pytest

from backends.discovery.dns_name import LEAST_WAIT_S, DnsName
from backends.discovery.lookups import Looked, LookUp, LookupFailed, RecordLookup, SystemLookup
from tests.backends.discovery.dns_server import DnsServer, dns_server
from tests.backends.discovery.reports import Told

NAME = "engines.example."
A, B = "http://10.0.0.1:8000", "http://10.0.0.2:8000"


@pytest.fixture
async def server() -> AsyncIterator[DnsServer]:
    async with dns_server() as running:
        yield running


def source(look_up: LookUp, misses: int = 3) -> DnsName:
    return DnsName("dns", look_up, prefix="http://", path="", interval_s=10, misses=misses)


def records(server: DnsServer, port: int | None = 8000) -> RecordLookup:
    return RecordLookup("engines.example", port, server=("127.0.0.1", server.port))


async def test_every_address_of_a_name_is_an_endpoint(server: DnsServer) -> None:
    server.zone = {(NAME, "A"): (5, ["10.0.0.1", "10.0.0.2"]), (NAME, "AAAA"): (4, ["fd00::1"])}
    told = Told()
    assert await source(records(server)).look(told) == 4  # the time to live
    assert told.urls == [A, B, "http://[fd00::1]:8000"]


async def test_services_have_their_own_ports_and_only_the_first_priority_counts(server: DnsServer) -> None:
    server.zone = {(NAME, "SRV"): (0, ["10 5 8001 a.example.", "10 90 8002 b.example.", "20 5 8003 spare.example."])}
    told = Told()
    assert await source(records(server, None)).look(told) == LEAST_WAIT_S  # no busy loop for a time to live of 0
    assert told.urls == ["http://a.example:8001", "http://b.example:8002"]


async def test_a_service_that_says_it_is_not_offered_is_nothing(server: DnsServer) -> None:
    server.zone = {(NAME, "SRV"): (30, ["0 0 0 ."])}
    told = Told()
    await source(records(server, None)).look(told)
    assert told.urls == []


@pytest.mark.parametrize("failure", [dns.rcode.SERVFAIL, dns.rcode.REFUSED])
async def test_a_resolver_that_fails_takes_nobody_away_and_says_so(server: DnsServer, failure: dns.rcode.Rcode) -> None:
    server.zone = {(NAME, "A"): (5, ["10.0.0.1"])}
    told, name = Told(), source(records(server), misses=1)
    await name.look(told)
    server.failure = failure
    for _ in range(5):
        assert await name.look(told) == 10
    assert told.urls == [A]
    assert told.problems == ["no server could answer"] * 5


async def test_a_resolver_that_is_silent_is_not_waited_for_long(
    server: DnsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backends.discovery.lookups.LOOKUP_S", 0.1)
    server.silent = True
    told = Told()
    await source(records(server)).look(told)
    assert told.listing is None
    assert told.problems == ["no answer within 0.1 s"]


async def test_a_name_that_stands_for_nothing_for_some_rounds_loses_its_endpoints(server: DnsServer) -> None:
    server.zone = {(NAME, "A"): (5, ["10.0.0.1"])}
    told, name = Told(), source(records(server))
    await name.look(told)
    server.zone = {}
    for _ in range(2):
        await name.look(told)
        assert told.urls == [A]
    await name.look(told)
    assert told.urls == []
    assert told.problems == ["it stands for nothing"] * 3


def scripted(*answers: Sequence[str]) -> LookUp:
    """Answers one after the other."""
    rest = iter(answers)

    async def look_up() -> Looked:
        return Looked([(host, 8000) for host in next(rest)])

    return look_up


async def test_answers_that_leave_some_out_now_and_then_take_nobody_away() -> None:
    both = ["10.0.0.1", "10.0.0.2"]
    told, name = Told(), source(scripted(both, both[:1], both[1:], both[1:], both, both[:1], both[:1], both[:1]))
    seen = []
    for _ in range(8):
        await name.look(told)
        seen.append(told.urls)
    assert seen == [[A, B]] * 7 + [[A]]


async def test_the_systems_resolver_knows_what_this_machine_knows() -> None:
    told = Told()
    assert await source(SystemLookup("localhost", 8000, "ipv4")).look(told) == 10
    assert told.urls == ["http://127.0.0.1:8000"]


@pytest.mark.parametrize(
    ("number", "outcome"),
    [(socket.EAI_NONAME, []), (socket.EAI_AGAIN, "try later"), (socket.EAI_FAIL, "try later")],
)
async def test_no_such_name_is_told_from_no_answer(
    monkeypatch: pytest.MonkeyPatch, number: int, outcome: object
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise socket.gaierror(number, "try later")

    monkeypatch.setattr("backends.discovery.lookups.socket.getaddrinfo", fails)
    try:
        said: object = list((await SystemLookup("engines.example", 8000)()).places)
    except LookupFailed as failure:
        said = str(failure)
    assert said == outcome


async def test_a_resolver_that_hangs_has_one_thread_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, begun, go_on = asyncio.get_running_loop(), [0], asyncio.Event()

    def hangs(*_: object, **__: object) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        begun[0] += 1
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()
        return [(0, 0, 0, "", ("10.0.0.1", 8000))]

    monkeypatch.setattr("backends.discovery.lookups.socket.getaddrinfo", hangs)
    monkeypatch.setattr("backends.discovery.lookups.LOOKUP_S", 0.05)
    look_up = SystemLookup("engines.example", 8000)
    for _ in range(4):
        with pytest.raises(LookupFailed, match="no answer"):
            await look_up()
    assert begun == [1]
    go_on.set()
    monkeypatch.setattr("backends.discovery.lookups.LOOKUP_S", 10)
    assert (await look_up()).places == [("10.0.0.1", 8000)]
