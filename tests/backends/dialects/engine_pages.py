"""The control pages of engines: recorded ones, and ones written after the documentation of engines that were not."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.hostile import HostileServer, Peer

DATA = Path(__file__).parents[2] / "data"
CAPTURES = DATA / "captures"
WRITTEN = DATA / "engine_pages"

Pages = dict[str, tuple[int, bytes]]


def written(name: str) -> Pages:
    """Path to status and body, from `tests/data/engine_pages`."""
    pages: dict[str, dict[str, Any]] = json.loads((WRITTEN / f"{name}.json").read_text())
    return {
        path: (page["status"], json.dumps(page["json"]).encode() if "json" in page else page["text"].encode())
        for path, page in pages.items()
    }


def recorded_vllm() -> Pages:
    """vLLM 0.32.0 on a CPU."""
    return {
        "/health": (200, b""),
        "/version": _recorded("vllm-0.32-version.json"),
        "/v1/models": _recorded("vllm-0.32-models.json"),
        "/metrics": _recorded("vllm-0.32-metrics.txt"),
        "/kv_event_sources": _recorded("vllm-0.32-kv_event_sources.json"),
    }


def recorded_llamacpp() -> Pages:
    """llama.cpp's server, with metrics."""
    return {
        "/health": _recorded("llamacpp-health.json"),
        "/v1/models": _recorded("llamacpp-models.json"),
        "/metrics": _recorded("llamacpp-metrics.txt"),
        "/props": _recorded("llamacpp-props.json"),
        "/slots": _recorded("llamacpp-slots.json"),
        "/lora-adapters": (200, b"[]"),
    }


def llamacpp_without_metrics() -> Pages:
    """The same as it answers without its flag."""
    refusal = {"error": {"code": 501, "message": "This server does not support metrics endpoint.", "type": "x"}}
    return recorded_llamacpp() | {"/metrics": (501, json.dumps(refusal).encode())}


SERVERS: dict[str, Callable[[], Pages]] = {
    "vllm-0.32": recorded_vllm,
    "llamacpp": recorded_llamacpp,
    "llamacpp-no-metrics": llamacpp_without_metrics,
    **{path.stem: partial(written, path.stem) for path in sorted(WRITTEN.glob("*.json"))},
}


def pages_of(server: str) -> Pages:
    """The pages of one of `SERVERS`, to change at will."""
    return SERVERS[server]()


class PageServer:
    """Serves `pages` (path to status and body) on a real port; the rest is 404."""

    def __init__(self, pages: Pages) -> None:
        self.pages = pages

    async def serve(self, peer: Peer) -> None:
        """One request."""
        method, path, _ = (await peer.read_request()).split(b" ", 2)
        status, body = self.pages.get(path.decode() if method == b"GET" else "", (404, b'{"detail":"Not Found"}'))
        head = b"HTTP/1.1 %d X\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % (status, len(body))
        await peer.send(head + body)


@asynccontextmanager
async def page_server(pages: Pages, port: int = 0) -> AsyncIterator[tuple[PageServer, HostileServer]]:
    """The pages, which may be changed, and the server."""
    served = PageServer(pages)
    async with HostileServer([served.serve], port) as server:
        yield served, server


def _recorded(name: str) -> tuple[int, bytes]:
    return 200, (CAPTURES / name).read_bytes()
