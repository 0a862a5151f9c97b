"""Clients that are programs of their own: curl, Node's fetch, and a page in Chromium that reads an event stream."""

import asyncio
import json
import os
import shutil
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from tempfile import TemporaryDirectory
from typing import Final
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.gateway.first_token import CHAT, ROUND_S, Client, Seen
from tests.hostile import HostileServer, Peer

_READ_EVENTS: Final = """
async function readEvents(url, times, seen) {
  for (let time = 0; time < times; time++) await readOnce(url, seen);
}
async function readOnce(url, seen) {
  const headers = {"content-type": "application/json"};
  const answer = await fetch(url, {method: "POST", headers, body: JSON.stringify(CHAT)});
  if (answer.status !== 200) throw new Error(`status ${answer.status}`);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let text = "";;) {
    const {done, value} = await reader.read();
    if (done) return;
    text += value;
    for (let end; (end = text.indexOf("\\n\\n")) >= 0; text = text.slice(end + 2))
      if (text.slice(0, end).includes('"content"')) await seen(performance.timeOrigin + performance.now());
  }
}
""".replace("CHAT", json.dumps(CHAT))
"""What pages do that need POST, where `EventSource` knows only GET."""


def program(name: str) -> str:
    """Where a program is; fails where it is not."""
    if (found := shutil.which(name)) is None:
        pytest.fail(f"{name} is not on this machine")
    return found


async def curl(url: str, times: int, seen: Seen) -> None:
    """curl -N, its output read line by line; a program for each answer."""
    path = program("curl")
    options = ("-sS", "-N", "--fail", "-H", "content-type: application/json", "-d", json.dumps(CHAT))
    for _ in range(times):
        async with _lines(path, *options, f"{url}/v1/chat/completions") as lines:
            async for line in lines:
                if b'"content"' in line:
                    await seen(time.time())


async def node(url: str, times: int, seen: Seen) -> None:
    """Node's own fetch."""
    script = _READ_EVENTS + (
        "await readEvents(process.argv[1], Number(process.argv[2]), at => console.log(`seen ${at}`));"
        'console.log("done");'
    )
    path = program("node")
    last = b""
    async with _lines(path, "--input-type=module", "-e", script, f"{url}/v1/chat/completions", str(times)) as lines:
        async for line in lines:
            last = line
            if line.startswith(b"seen "):
                await seen(float(line.split()[1]) / 1000)
    assert last.strip() == b"done", last


async def chromium(url: str, times: int, seen: Seen) -> None:
    """A page in headless Chromium. It comes from another origin than the stream, which the browser is told to allow."""
    path = program("chromium")
    done = asyncio.Event()

    async def serve(peer: Peer) -> None:
        while True:
            target = urlsplit((await peer.read_request()).split(b" ", 2)[1].decode())
            if target.path == "/seen":
                await seen(float(parse_qs(target.query)["at"][0]) / 1000)
            if target.path == "/done":
                done.set()
            page = _page(f"{url}/v1/chat/completions", times) if target.path == "/" else b""
            await peer.send(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: %d\r\n\r\n" % len(page) + page
            )

    flags = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-web-security")
    with TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        async with HostileServer([serve]) as pages, _running(path, *flags, f"--user-data-dir={profile}", pages.url):
            await done.wait()


def _page(url: str, times: int) -> bytes:
    return f"""<!doctype html><title>stream</title><link rel="icon" href="data:,"><script type="module">
{_READ_EVENTS}
await readEvents({json.dumps(url)}, {times}, at => fetch(`/seen?at=${{at}}`));
await fetch("/done");
</script>""".encode()


PROGRAMS: Final[dict[str, Client]] = {"curl -N": curl, "Node fetch": node, "Chromium fetch": chromium}


@asynccontextmanager
async def _running(*command: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A program that is ended with the block, with all that it has started."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, start_new_session=True
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


@asynccontextmanager
async def _lines(*command: str) -> AsyncIterator[AsyncIterator[bytes]]:
    """What a program prints; it must end well."""
    async with _running(*command) as process:
        assert process.stdout is not None
        yield aiter(process.stdout)
        assert await asyncio.wait_for(process.wait(), ROUND_S) == 0
