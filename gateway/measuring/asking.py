"""One request to an address, and what became of it. Nothing is raised: a failure is a thing that was seen.

Time to first token counts from when the request was meant to leave. One that leaves late, since this machine was busy,
has waited; a user would have too (what is called coordinated omission is to leave that out).
"""

import asyncio
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from backends.client import UpstreamClient, UpstreamResponse
from backends.errors import UpstreamError
from backends.types import Deadlines, EndpointConfig, UpstreamRequest
from gateway.measuring.streams import Stream
from gateway.measuring.types import Seen

ROUTE: Final = "/v1/chat/completions"
_PATIENCE: Final = Deadlines(connect_s=10.0, first_byte_s=600.0, idle_s=120.0)
_OK: Final = 200
_SAID_BYTES: Final = 64 * 1024
"""Read of a refusal; so many characters of it are told."""
_SAID_CHARS: Final = 300
_KIND_CHARS: Final = 60
_ENDPOINT: Final = b"x-prefixgate-endpoint"
_HEADERS: Final = ((b"content-type", b"application/json"), (b"accept", b"text/event-stream"))

PrefillSeconds = Callable[[str, int, int], float]
"""Seconds that an endpoint takes to compute a prompt of which so many tokens are uncached, and so many are all."""


@dataclass(slots=True)
class Asker:
    """Sends bodies to one address, and keeps what it saw in `seen`, `gaps_s` and `late_s`, times from `began_s` on.

    Where usage is not told, a piece of text is taken for a token. `why` is what the last failure said, `status` that of
    the last answer, `odd` how many told a usage that cannot be.
    """

    client: UpstreamClient
    address: EndpointConfig
    began_s: float
    prefill_s: PrefillSeconds | None = None
    clock: Callable[[], float] = time.monotonic
    seen: list[Seen] = field(default_factory=list)
    gaps_s: "array[float]" = field(default_factory=lambda: array("d"))
    late_s: "array[float]" = field(default_factory=lambda: array("d"))
    why: str | None = None
    status: int | None = None
    odd: int = 0

    async def ask(self, body: bytes, at_s: float) -> Seen:
        """Send `body`, which was meant to leave at `at_s` by the clock. Cancelling it is seen as cut off."""
        stream = Stream(self.gaps_s)
        self.late_s.append(self.clock() - at_s)
        ended_s, endpoint, is_served = None, "", False
        try:
            request = UpstreamRequest("POST", ROUTE, _HEADERS, body)
            async with await self.client.send(self.address, request, _PATIENCE) as answer:
                named = (value for name, value in answer.headers if name.lower() == _ENDPOINT)
                endpoint = next(named, b"").decode("latin-1")
                self.status = answer.status
                is_served = answer.status == _OK
                await self._read(answer, stream, is_served=is_served)
            ended_s = self.clock()
        except UpstreamError as error:
            self.why, stream.is_broken, ended_s = str(error), True, self.clock()
        finally:
            found = self._seen(stream, at_s, ended_s, endpoint, is_served=is_served)
            self.seen.append(found)
        return found

    async def _read(self, answer: UpstreamResponse, stream: Stream, *, is_served: bool) -> None:
        if not is_served:
            said = (await answer.read(_SAID_BYTES)).decode("utf-8", "replace")
            self.why = f"status {answer.status}: {said[:_SAID_CHARS]}"
            return
        clock = self.clock

        def sink(chunk: bytes) -> bool:
            stream.came(chunk, clock())
            return not stream.is_overlong

        await answer.pump(sink)
        while not stream.is_overlong and (chunk := await answer.read_chunk()):
            stream.came(chunk, clock())
        self.odd += stream.is_odd
        if not stream.is_whole:
            self.why = _why(stream, answer)

    def _seen(self, stream: Stream, at_s: float, ended_s: float | None, endpoint: str, *, is_served: bool) -> Seen:
        first_s, last_s = stream.first_s, stream.last_s
        output_tokens = stream.output_tokens
        if output_tokens is None and stream.is_whole:
            output_tokens = stream.pieces
        return Seen(
            asked_s=at_s - self.began_s,
            first_s=None if first_s is None else first_s - at_s,
            decode_s=None if first_s is None or last_s is None else last_s - first_s,
            ended_s=None if ended_s is None else ended_s - self.began_s,
            is_whole=is_served and stream.is_whole and ended_s is not None,
            prompt_tokens=stream.prompt_tokens,
            cached_tokens=stream.cached_tokens,
            output_tokens=output_tokens,
            prefill_s=self._prefill_s(stream, endpoint, None if first_s is None else first_s - at_s),
            endpoint=endpoint,
        )

    def _prefill_s(self, stream: Stream, endpoint: str, first_s: float | None) -> float | None:
        """Of an address that says nothing of a cache all of the prompt; no longer than the first token took."""
        prompt_tokens = stream.prompt_tokens
        if self.prefill_s is None or prompt_tokens is None:
            return None
        alone_s = self.prefill_s(endpoint, prompt_tokens - (stream.cached_tokens or 0), prompt_tokens)
        return alone_s if first_s is None else min(alone_s, first_s)


def _why(stream: Stream, answer: UpstreamResponse) -> str:
    """What is wrong with a body that was read to its end, or as far as it is one event."""
    kinds = (value.decode("latin-1") for name, value in answer.headers if name.lower() == b"content-type")
    kind = next(kinds, "no content type")
    if stream.said is not None:
        return f"an error in the stream: {stream.said[:_SAID_CHARS]}"
    if stream.is_broken:
        return "a stream with an event that cannot be read"
    if stream.first_s is not None:
        return "a stream that ended without [DONE]"
    if stream.is_done:
        return "a stream without text"
    return f"not a stream of events (text/event-stream) but {kind[:_KIND_CHARS]}"


async def until(at_s: float, clock: Callable[[], float]) -> None:
    """Return at that time; where it has passed, as soon as whoever else is due has had a turn."""
    await asyncio.sleep(max(at_s - clock(), 0.0))
