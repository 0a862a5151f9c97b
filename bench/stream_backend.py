"""An engine that costs next to nothing and really streams: one write a chunk, as engines do, for any number of answers.

    paced      a wheel of 50 slots, one turn of it in 50 ms; an answer gets a chunk whenever its slot comes round

                 slot 0  [answer, answer, ...]  <- now: each of them one chunk, all of them the same bytes
                 slot 1  [answer, ...]          <- 1 ms later
                 ...
    unpaced    one list; each turn of the event loop writes one chunk to each answer in it

The request says what is wanted, in fields that every router passes on: `max_tokens` is the number of chunks, `seed` is
0 for unpaced and else anything. Each chunk holds when it was written, in µs of `time.perf_counter`, behind an `@`.
The other pages are those that routers ask of vLLM and SGLang. Cost: about 3 µs a chunk, nearly all of it the system
call.
"""

import asyncio
import json
import os
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final, cast

SLOTS: Final = 50
SLOT_S: Final = 0.001
PACE_S: Final = SLOTS * SLOT_S
CAPACITY_BLOCKS: Final = 100_000
_LENGTH: Final = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_CHUNKED: Final = re.compile(rb"transfer-encoding: *chunked", re.IGNORECASE)
_CHUNKS: Final = re.compile(rb'"max_(?:completion_)?tokens": ?(\d+)')
_SEED: Final = re.compile(rb'"seed": ?(\d+)')
_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)


LAST_CHUNK: Final = b"0\r\n\r\n"


def framed(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


@asynccontextmanager
async def streaming_engines(model: str, usage: Mapping[str, object], count: int) -> AsyncIterator[list[int]]:
    """So many engines on this machine, until the block ends; gives their ports."""
    backend = StreamBackend(model, usage)
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        wheel = group.create_task(backend.turn_the_wheel())
        servers = [
            await loop.create_server(lambda: Answering(backend), "127.0.0.1", 0, backlog=4096) for _ in range(count)
        ]
        yield [int(server.sockets[0].getsockname()[1]) for server in servers]
        wheel.cancel()
        for server in servers:
            server.close()
        for connection in list(backend.connections):
            connection.leave()


class StreamBackend:
    """The engine of one model. `connections` are those of routers that are open."""

    def __init__(self, model: str, usage: Mapping[str, object]) -> None:
        """`usage` stands at the end of each answer, whatever its length."""
        self.pages = _pages(model)
        before, after = _event_around(model)
        self._size = len(before) + 16 + len(after)
        self._frame = b"%x\r\n%s%%016d%s\r\n" % (self._size, before.replace(b"%", b"%%"), after.replace(b"%", b"%%"))
        self.end = b"".join(map(framed, _ending(model, usage))) + LAST_CHUNK
        self._slots: list[list[Answering]] = [[] for _ in range(SLOTS)]
        self._next_slot = 0
        self._unpaced: list[Answering] = []
        self._turning = False
        self.connections: set[Answering] = set()

    def begin(self, answer: "Answering", *, paced: bool) -> None:
        """From now on this answer gets its chunks."""
        if paced:
            self._slots[self._next_slot].append(answer)
            self._next_slot = (self._next_slot + 1) % SLOTS
            return
        self._unpaced.append(answer)
        if not self._turning:
            self._turning = True
            asyncio.get_running_loop().call_soon(self._turn)

    async def turn_the_wheel(self) -> None:
        """Serve the paced answers until cancelled. A turn that comes late catches up."""
        at = 0
        due_s = time.perf_counter()
        while True:
            await asyncio.sleep(due_s - time.perf_counter())
            while due_s <= time.perf_counter():
                self._give(self._slots[at])
                at, due_s = (at + 1) % SLOTS, due_s + SLOT_S

    def _turn(self) -> None:
        self._give(self._unpaced)
        self._turning = bool(self._unpaced)
        if self._turning:
            asyncio.get_running_loop().call_soon(self._turn)

    def _give(self, answers: list["Answering"]) -> None:
        """One chunk to each; those that got their last one are taken off the list."""
        frame = self._frame % int(time.perf_counter() * 1e6)
        ended = False
        for answer in answers:
            ended |= answer.give(frame)
        if ended:
            answers[:] = [answer for answer in answers if answer.left]


class Answering(asyncio.Protocol):
    """One connection to the engine; `left` chunks of its answer are to come."""

    def __init__(self, backend: StreamBackend) -> None:
        self._backend = backend
        self._begun = b""
        self._choked = False
        self.left = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember the socket: a write of its own for each chunk, where the event loop would join them."""
        self._transport = cast(asyncio.Transport, transport)
        self._fd = int(transport.get_extra_info("socket").fileno())
        self._backend.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The router has left."""
        self.left = 0
        self._fd = -1
        self._backend.connections.discard(self)

    def leave(self) -> None:
        """Close the connection."""
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take requests, one at a time."""
        self._begun += data
        head_end = self._begun.find(b"\r\n\r\n")
        if head_end < 0:
            return
        if (length := _LENGTH.search(self._begun, 0, head_end)) is not None:
            end = head_end + 4 + int(length[1])
        elif _CHUNKED.search(self._begun, 0, head_end) is not None:
            end = self._begun.find(LAST_CHUNK, head_end) + len(LAST_CHUNK)
            if end < len(LAST_CHUNK):
                return
        else:
            end = head_end + 4
        if len(self._begun) < end:
            return
        request, self._begun = self._begun[:end], b""
        self._answer(request, request[head_end + 4 :])

    def give(self, frame: bytes) -> bool:
        """Write one chunk, and the end behind the last one; whether that was it. Drops none: a full socket waits."""
        if self._fd < 0:
            return True
        if self._choked:
            if self._transport.get_write_buffer_size():
                return False
            self._choked = False
        self.left -= 1
        if not self.left:
            frame += self._backend.end
        try:
            written = os.write(self._fd, frame)
        except BlockingIOError:
            written = 0
        except OSError:
            self.left = 0
            return True
        if written < len(frame):
            self._transport.write(frame[written:])
            self._choked = True
        return not self.left

    def _answer(self, request: bytes, body: bytes) -> None:
        method, path = request.split(b" ", 2)[:2]
        if method == b"PRI":  # does this engine speak gRPC?
            self._transport.close()
        elif method == b"POST" and len(body) > len(b"{}"):
            chunks, seed = _CHUNKS.search(body), _SEED.search(body)
            self.left = int(chunks[1]) if chunks else 1
            self._transport.write(_HEAD)
            self._backend.begin(self, paced=seed is not None and seed[1] != b"0")
        elif method == b"POST":  # is this route spoken here?
            self._transport.write(_page(400 if b"completions" in path else 404, b"{}"))
        else:
            page = self._backend.pages.get(path.partition(b"?")[0])
            self._transport.write(_page(404, b"{}") if page is None else page)


def _page(status: int, body: bytes, kind: bytes = b"application/json") -> bytes:
    return b"HTTP/1.1 %d X\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n%s" % (status, kind, len(body), body)


def _pages(model: str) -> dict[bytes, bytes]:
    """What routers ask an engine: vLLM's pages, and SGLang's."""
    listed = {"id": model, "object": "model", "owned_by": "vllm", "max_model_len": 8192}
    known = {"model_path": model, "served_model_name": model, "tokenizer_path": "", "is_generation": True}
    told: dict[bytes, object] = {
        b"/health": {},
        b"/health_generate": {},
        b"/v1/models": {"object": "list", "data": [listed]},
        b"/version": {"version": "0.32.0"},
        b"/model_info": known,
        b"/get_model_info": known,
        b"/server_info": known,
        b"/get_server_info": known,
        b"/get_load": [],
        b"/v1/loads": {"loads": []},
    }
    metrics = "".join(
        f'vllm:{name}{{engine="0",model_name="{model}"{extra}}} {value}\n'
        for name, extra, value in (
            ("num_requests_running", "", 0),
            ("num_requests_waiting", "", 0),
            ("kv_cache_usage_perc", "", 0),
            ("prefix_cache_queries_total", "", 0),
            ("prefix_cache_hits_total", "", 0),
            ("cache_config_info", f',block_size="16",num_gpu_blocks="{CAPACITY_BLOCKS}"', 1),
        )
    )
    pages = {path: _page(200, json.dumps(content).encode()) for path, content in told.items()}
    pages[b"/metrics"] = _page(200, metrics.encode() + b"process_start_time_seconds 1795961218.5\n", b"text/plain")
    return pages


def _event(model: str, **more: object) -> bytes:
    content = {"id": "chatcmpl-0", "object": "chat.completion.chunk", "created": 1795961218, "model": model, **more}
    return b"data: " + json.dumps(content, separators=(",", ":")).encode() + b"\n\n"


def _event_around(model: str) -> tuple[bytes, bytes]:
    """A content event before and after the 16 digits of its time."""
    choice = {"index": 0, "delta": {"content": " word"}, "logprobs": None, "finish_reason": None}
    before, at, after = _event(model, system_fingerprint="@", choices=[choice]).partition(b"@")
    return before + at, after


def _ending(model: str, usage: Mapping[str, object]) -> tuple[bytes, ...]:
    """The events behind the content."""
    limited = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "length"}
    return _event(model, choices=[limited]), _event(model, choices=[], usage=usage), b"data: [DONE]\n\n"
