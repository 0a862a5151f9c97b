"""An engine that answers its control pages properly and plays a script on the inference paths, on a real port.

    async with scripted_engine(reset_before_first_byte, answer_chat("Hi")) as engine: ... engine.url, engine.bodies

The scripts are those of `tests.hostile`, one per inference request, the last one for every further. It stands beside
the real reference engine: what both can do is tested with the real one.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.hostile import Behaviour, HostileServer, Peer

USAGE = {"prompt_tokens": 40, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 32}}


@dataclass
class ScriptedEngine:
    """What happened so far: the bodies of inference requests, in order."""

    model: str
    scripts: list[Behaviour]
    routes: frozenset[str] = frozenset()
    """Routes it speaks beside chat completions and completions."""
    version: str = "0.32.0"
    owner: str = "vllm"
    pages: dict[str, object] = field(default_factory=dict)
    """Further pages for GET, by path."""
    metrics: bytes = b""
    """Its page of metrics, where not `METRICS`; another start time in it is a restart."""
    gets: list[str] = field(default_factory=list)
    """Paths of those that were asked for."""
    silent: bool = False
    """Whether it takes what it is sent and says nothing any more, on any path."""
    unwell: bool = False
    """Whether its health page says so."""
    url: str = ""
    requests: list[bytes] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def bodies(self) -> list[bytes]:
        """The bodies as they arrived."""
        return [request.partition(b"\r\n\r\n")[2] for request in self.requests]

    async def serve(self, peer: Peer) -> None:
        """One connection: control pages, then a script."""
        while True:
            request = await peer.read_request()
            method, path = request.split(b" ", 2)[:2]
            if self.silent:
                await peer.hang()
                return
            if method == b"GET":
                await peer.send(self._page(path.decode()))
                continue
            if request.endswith(b"\r\n\r\n{}"):  # the gateway asks whether this route is spoken here
                await peer.send(_plain(400 if path.decode() in self.routes else 404, {"error": "nothing asked"}))
                continue
            if path == b"/tokenize":
                await peer.send(_plain(200, {"tokens": list(range(40)), "count": 40, "max_model_len": 2048}))
                continue
            script = self.scripts[min(len(self.requests), len(self.scripts) - 1)]
            self.requests.append(request)
            self.asked.set()
            try:
                await script(_AlreadyRead(peer, request))
            finally:
                self.left.set()
            if script.__name__ != "keeps_alive":
                return

    def _page(self, path: str) -> bytes:
        if path in self.pages:
            self.gets.append(path)
            return _plain(200, self.pages[path])
        if path == "/v1/models":
            models = [{"id": self.model, "object": "model", "owned_by": self.owner, "max_model_len": 2048}]
            return _plain(200, {"object": "list", "data": models})
        if path == "/version":
            return _plain(200, {"version": self.version})
        if path == "/metrics":
            page = self.metrics or METRICS
            return _head(200, b"text/plain", page) + page
        if path == "/health":
            return _plain(503 if self.unwell else 200, {})
        return _plain(404, {})


METRICS = b"""vllm:num_requests_running{engine="0",model_name="m"} 0.0
vllm:num_requests_waiting{engine="0",model_name="m"} 0.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.0
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 0.0
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 0.0
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="1000"} 1.0
process_start_time_seconds 1795961218.5
"""


class _AlreadyRead(Peer):
    """The connection for a script that begins with reading the request, which was read to choose the script."""

    def __init__(self, peer: Peer, request: bytes) -> None:
        self.__dict__.update(peer.__dict__)
        self._request: bytes | None = request

    async def read_request(self) -> bytes:
        request, self._request = self._request, None
        return await super().read_request() if request is None else request


@asynccontextmanager
async def scripted_engine(
    *scripts: Behaviour,
    model: str = "m",
    routes: frozenset[str] = frozenset(),
    version: str = "0.32.0",
    owner: str = "vllm",
) -> AsyncIterator[ScriptedEngine]:
    """Run one until the block ends. It speaks chat completions, completions and `routes`, as vLLM of this version."""
    engine = ScriptedEngine(model, list(scripts), routes, version=version, owner=owner)
    async with HostileServer([engine.serve]) as server:
        engine.url = server.url
        yield engine


def answer_json(content: object, status: int = 200) -> Behaviour:
    """A plain JSON answer; the connection stays open."""

    async def keeps_alive(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(_plain(status, content))

    return keeps_alive


def answer_chat(text: str, usage: object = USAGE) -> Behaviour:
    """A plain chat completion."""
    return answer_json({"choices": [{"index": 0, "message": {"content": text}}], "usage": usage})


def event(content: object) -> bytes:
    """One event of a stream."""
    return b"data: " + json.dumps(content).encode() + b"\n\n"


def delta(text: str) -> bytes:
    """One content event of a chat stream."""
    return event({"choices": [{"index": 0, "delta": {"content": text}}]})


def chat_stream(*words: str, usage: object = USAGE) -> list[bytes]:
    """The events of a whole stream that asks for usage."""
    return [*map(delta, words), event({"choices": [], "usage": usage}), b"data: [DONE]\n\n"]


def _plain(status: int, content: object) -> bytes:
    body = json.dumps(content).encode()
    return _head(status, b"application/json", body) + body


def _head(status: int, kind: bytes, body: bytes) -> bytes:
    return b"HTTP/1.1 %d X\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n" % (status, kind, len(body))
