"""A small model server's control pages on a real port, told what to say: for tests of health and registry."""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import uvicorn

CAPTURES = Path(__file__).parents[1] / "data" / "captures"
VLLM_MODELS = json.loads((CAPTURES / "vllm-0.32-models.json").read_text())
VLLM_METRICS = (CAPTURES / "vllm-0.32-metrics.txt").read_text()
VLLM_STARTED_AT_S = 1795961218

Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]


class EnginePage:
    """Serves `pages` (path, or POST and path -> status and body) while it runs; the rest is 404.

    `hangs` makes it accept and never answer, `hangs_at` on some of its pages only.
    Stop and start it to play an outage: it keeps its port.
    """

    def __init__(self, pages: dict[str, tuple[int, bytes]]) -> None:
        self.pages = pages
        self.hangs = False
        self.hangs_at: set[str] = set()
        self.seen: list[tuple[str, str | None]] = []
        self.asked = asyncio.Event()
        self._socket: socket.socket | None = None
        self._server: uvicorn.Server | None = None
        self._task: asyncio.Task[None] | None = None
        self.port = 0

    @classmethod
    def vllm(cls) -> "EnginePage":
        """As the recorded vLLM speaks."""
        return cls(
            {
                "/health": (200, b""),
                "/version": (200, b'{"version":"0.32.0"}'),
                "/v1/models": (200, json.dumps(VLLM_MODELS).encode()),
                "/metrics": (200, VLLM_METRICS.encode()),
            }
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def edit_metrics(self, old: str, new: str) -> None:
        """Replace text on the metrics page; it must be there."""
        status, body = self.pages["/metrics"]
        assert old.encode() in body
        self.pages["/metrics"] = (status, body.replace(old.encode(), new.encode()))

    async def start(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", self.port))
        self.port = self._socket.getsockname()[1]
        config = uvicorn.Config(
            self._app, interface="asgi3", lifespan="off", log_config=None, timeout_graceful_shutdown=1
        )
        self._server = uvicorn.Server(config)
        self._task = asyncio.ensure_future(self._server.serve(sockets=[self._socket]))
        while not self._server.started:
            await asyncio.sleep(0.005)

    async def stop(self) -> None:
        assert self._server is not None
        assert self._task is not None
        assert self._socket is not None
        self._server.should_exit = self._server.force_exit = True
        await self._task
        self._socket.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None and not self._task.done():
            await self.stop()

    async def _app(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        key = headers.get(b"authorization")
        page: str = scope["path"] if scope["method"] == "GET" else f"{scope['method']} {scope['path']}"
        self.seen.append((page, None if key is None else key.decode()))
        self.asked.set()
        if self.hangs or page in self.hangs_at:
            while (await receive())["type"] != "http.disconnect":
                pass
            return
        status, body = self.pages.get(page, (404, b'{"detail":"Not Found"}'))
        await send(
            {"type": "http.response.start", "status": status, "headers": [(b"content-length", b"%d" % len(body))]}
        )
        await send({"type": "http.response.body", "body": body})
