"""One server of several data-parallel ranks, on a real port: real reference engines behind one address, as vLLM's.

    async with ranked_engine(engine_a, engine_b) as server: ... server.url, server.asked

A header chooses the rank; who sends none gets one after the other. Its pages are as vLLM's: series labelled by rank.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx

from tests.hostile import HostileServer, Peer

RANK = re.compile(rb"\r\nx-data-parallel-rank: *([^\r]*)\r\n", re.IGNORECASE)


@dataclass
class RankedEngine:
    """What happened so far: for each inference request the rank it asked for, None where it left that to the server,
    and what its answer said of the prompt."""

    ranks: Sequence[str]
    http: httpx.AsyncClient
    version: str = "0.32.0"
    started_at_s: float = 1795961218.5
    url: str = ""
    asked: list[bytes | None] = field(default_factory=list)
    usages: list[tuple[int, int, int]] = field(default_factory=list)
    """Rank, prompt tokens, cached tokens."""

    def by_rank(self) -> list[int]:
        """How many requests each rank computed."""
        return [sum(rank == number for rank, _, _ in self.usages) for number in range(len(self.ranks))]

    async def serve(self, peer: Peer) -> None:
        """One connection."""
        while True:
            request = await peer.read_request()
            head, _, body = request.partition(b"\r\n\r\n")
            method, path = (part.decode() for part in head.split(b" ", 2)[:2])
            if method == "GET":
                await peer.send(await self._page(path))
            elif path in ("/v1/chat/completions", "/v1/completions"):
                await peer.send(await self._answer(path, head + b"\r\n", body))
            else:
                await peer.send(await self._forwarded(0, path, body))

    async def _answer(self, path: str, head: bytes, body: bytes) -> bytes:
        named = [found.group(1) for found in RANK.finditer(head)]
        assert len(named) <= 1, "a rank is named twice"
        self.asked.append(named[0] if named else None)
        rank = int(named[0]) if named else len(self.asked) % len(self.ranks)
        if rank >= len(self.ranks):
            return _response(400, "application/json", b'{"error": {"message": "no such rank"}}')
        return await self._forwarded(rank, path, body)

    async def _forwarded(self, rank: int, path: str, body: bytes) -> bytes:
        answer = await self.http.post(
            f"{self.ranks[rank]}{path}", content=body, headers={"content-type": "application/json"}
        )
        usage = re.search(r'"prompt_tokens":\s*(\d+).*?"cached_tokens":\s*(\d+)', answer.text, re.DOTALL)
        if usage is not None:
            self.usages.append((rank, int(usage[1]), int(usage[2])))
        return _response(answer.status_code, answer.headers.get("content-type", "text/plain"), answer.content)

    async def _page(self, path: str) -> bytes:
        if path == "/metrics":
            return _response(200, "text/plain", (await self._metrics()).encode())
        if path == "/version":
            return _response(200, "application/json", json.dumps({"version": self.version}).encode())
        if path == "/kv_event_sources":
            return _response(404, "application/json", b"{}")
        page = await self.http.get(f"{self.ranks[0]}{path}")
        return _response(page.status_code, "application/json", page.content.replace(b"prefixgate-reference", b"vllm"))

    async def _metrics(self) -> str:
        pages = await asyncio.gather(*(self.http.get(f"{url}/metrics") for url in self.ranks))
        lines = [
            line.replace('engine="0"', f'engine="{rank}"')
            for rank, page in enumerate(pages)
            for line in page.text.splitlines()
            if line.startswith("vllm:") and "_created" not in line
        ]
        return "\n".join([*lines, f"process_start_time_seconds {self.started_at_s}", ""])


def _response(status: int, kind: str, body: bytes) -> bytes:
    return b"HTTP/1.1 %d X\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n%b" % (
        status,
        kind.encode(),
        len(body),
        body,
    )


@asynccontextmanager
async def ranked_engine(*ranks: str, version: str = "0.32.0") -> AsyncIterator[RankedEngine]:
    """Run one in front of these engines until the block ends; it says that it is a vLLM of this version."""
    async with httpx.AsyncClient(timeout=60) as http:
        engine = RankedEngine(ranks, http, version)
        async with HostileServer([engine.serve]) as server:
            engine.url = server.url
            yield engine
