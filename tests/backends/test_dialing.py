"""Addresses of a name, tried one after the other and overlapping, on real sockets."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from backends.dialing import Address, dial, families_in_turn
from tests.hostile import HostileServer, hang

V4, V6 = socket.AF_INET, socket.AF_INET6


class Quiet(asyncio.Protocol):
    """Remembers its transport."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport


async def reached(host: str, port: int) -> str:
    """The address of the server that was reached."""
    protocol = await dial(Address(host, port), Quiet)
    address = str(protocol.transport.get_extra_info("peername")[0])
    assert isinstance(protocol.transport, asyncio.Transport)
    protocol.transport.abort()
    return address


def name_means(monkeypatch: pytest.MonkeyPatch, *hosts: str) -> None:
    """Let the name `engine` have these addresses."""

    async def look_up(name: str, port: int, **_: object) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        assert name == "engine"
        return [(V6 if ":" in host else V4, socket.SOCK_STREAM, 6, "", (host, port)) for host in hosts]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)


@pytest.fixture
def never_accepts() -> Iterator[socket.socket]:
    """A listener at 127.0.0.2 whose queue is full: who connects hears nothing."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.2", 0))
        listener.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield listener


def test_families_take_turns_beginning_with_the_resolvers_first_choice() -> None:
    found = [(V6, "a"), (V6, "b"), (V6, "c"), (V4, "1"), (V4, "2"), (V6, "a")]
    assert families_in_turn(found) == ["a", "1", "b", "2", "c"]
    assert families_in_turn([(V4, "1")]) == ["1"]
    assert families_in_turn([]) == []


async def test_an_address_needs_no_look_up(monkeypatch: pytest.MonkeyPatch) -> None:
    name_means(monkeypatch)
    async with HostileServer([hang]) as server:
        assert await reached("127.0.0.1", server.port) == "127.0.0.1"


async def test_a_name_with_one_address_is_reached_there(monkeypatch: pytest.MonkeyPatch) -> None:
    name_means(monkeypatch, "127.0.0.1")
    async with HostileServer([hang]) as server:
        assert await reached("engine", server.port) == "127.0.0.1"


async def test_an_address_that_refuses_is_passed_over_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    name_means(monkeypatch, "127.0.0.2", "127.0.0.1")
    async with HostileServer([hang]) as server:
        assert await reached("engine", server.port) == "127.0.0.1"


async def test_a_silent_address_does_not_hold_up_the_next(
    monkeypatch: pytest.MonkeyPatch, never_accepts: socket.socket
) -> None:
    name_means(monkeypatch, "127.0.0.2", "127.0.0.1")
    async with HostileServer([hang], port=never_accepts.getsockname()[1]) as server, asyncio.timeout(5):
        assert await reached("engine", server.port) == "127.0.0.1"


async def test_where_no_address_answers_the_last_failure_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    name_means(monkeypatch, "127.0.0.2", "127.0.0.1")
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectionRefusedError):
            await reached("engine", held.getsockname()[1])


async def test_once_one_address_answers_the_others_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    name_means(monkeypatch, *["127.0.0.1"] * 2, "127.0.0.2")
    async with HostileServer([hang]) as server:
        await reached("engine", server.port)
        await server.peers[0].gone.wait()
        assert len(server.peers) == 1


async def test_a_name_without_addresses_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    name_means(monkeypatch)
    with pytest.raises(socket.gaierror):
        await reached("engine", 80)


async def test_giving_up_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch, never_accepts: socket.socket) -> None:
    name_means(monkeypatch, "127.0.0.2", "127.0.0.2", "127.0.0.2")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await reached("engine", never_accepts.getsockname()[1])
    assert asyncio.all_tasks() == {asyncio.current_task()}
