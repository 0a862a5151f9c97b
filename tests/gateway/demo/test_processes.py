"""Processes of the demo end with it, however it ends."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from gateway.demo.processes import started_process
from gateway.demo.types import DemoFailed

SERVE = """
import json, os, signal, socket, sys
listener = socket.create_server(("127.0.0.1", 0))
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(json.dumps({"url": f"http://127.0.0.1:{listener.getsockname()[1]}", "pid": os.getpid()}), flush=True)
signal.pause()
"""
SPAWN = """
import asyncio, os, sys
from pathlib import Path
from gateway.demo.processes import started_process
async def main():
    command, log = [sys.executable, "-c", sys.argv[1]], Path(sys.argv[2])
    async with started_process("child", command, log=log, environment=os.environ, ready_within_s=20) as one:
        print(await one.url(), flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", code, *arguments]


async def start_and_tell(command: Iterable[str], log: Path, within_s: float = 20.0) -> str:
    async with started_process("it", list(command), log=log, environment=os.environ, ready_within_s=within_s) as one:
        return await one.url()


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


async def is_gone(url: str) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port_of(url))
    except ConnectionRefusedError:
        return True
    writer.close()
    return False


@asynccontextmanager
async def seen_to_end(url: str) -> AsyncIterator[None]:
    """Waits, at the end of the block, for the process at this address to be gone: its connections end with it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(url))
    yield
    async with asyncio.timeout(20):
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
    writer.close()


async def test_a_process_runs_inside_the_block_and_is_gone_after_it(tmp_path: Path) -> None:
    async with started_process(
        "it", python(SERVE), log=tmp_path / "log", environment=os.environ, ready_within_s=20
    ) as one:
        url = await one.url()
        assert not await is_gone(url)
    assert await is_gone(url)


async def test_a_process_is_gone_when_the_block_fails(tmp_path: Path) -> None:
    urls: list[str] = []

    async def fail() -> None:
        async with started_process(
            "it", python(SERVE), log=tmp_path / "log", environment=os.environ, ready_within_s=20
        ) as one:
            urls.append(await one.url())
            raise RuntimeError("the block failed")

    with pytest.raises(RuntimeError, match="the block failed"):
        await fail()
    assert await is_gone(urls[0])


async def test_a_process_that_ignores_term_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.demo.processes.STOP_WITHIN_S", 0.2)
    assert await is_gone(await start_and_tell(python(SERVE, "stubborn"), tmp_path / "log"))


async def test_a_process_does_not_outlive_a_demo_that_was_killed(tmp_path: Path) -> None:
    demo = await asyncio.create_subprocess_exec(
        *python(SPAWN, SERVE, str(tmp_path / "log")), stdout=asyncio.subprocess.PIPE
    )
    assert demo.stdout is not None
    url = (await demo.stdout.readline()).decode().strip()
    async with seen_to_end(url):
        demo.send_signal(signal.SIGKILL)
        await demo.wait()
    assert await is_gone(url)


async def test_a_process_that_ends_at_once_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(DemoFailed, match="it did not start: no such model"):
        await start_and_tell(python("import sys; sys.exit('no such model')"), tmp_path / "log")


async def test_a_process_that_keeps_silent_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    with pytest.raises(DemoFailed, match=r"it was not ready in 0\.3 s: it said nothing"):
        await start_and_tell(python("import signal; signal.pause()"), tmp_path / "log", within_s=0.3)


async def test_a_process_that_prints_something_else_did_not_start(tmp_path: Path) -> None:
    with pytest.raises(DemoFailed, match="it did not start"):
        await start_and_tell(python("import signal; print('hello', flush=True); signal.pause()"), tmp_path / "log")
