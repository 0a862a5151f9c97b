"""A copy, fetched from the engine that keeps it: whatever that one does, it costs a bounded time and bounded memory.

The way is HTTP on the event loop and not in a thread, so that an engine that hangs holds up nobody else's request, nor
the end of this process. A request names host and port, but not what is asked for there: only blocks.
"""

import asyncio
import re
from typing import Final

import httpx

from backends.reference.errors import TransferFailed
from backends.reference.wire import KvTransferParams

SILENCE_S: Final = 10.0
"""How long the other engine may say nothing: a copy is there before anybody is told of it, and is sent at once."""
PATIENCE_S: Final = 30.0
"""How long a fetch may take, from connecting to its last byte."""
PATH: Final = "/kv_transfer/"
_NAME: Final = re.compile(r"[\w-]+", re.ASCII)


async def fetched(params: KvTransferParams, most_bytes: int) -> bytes:
    """What waits where a request says, `most_bytes` at most. Raises `TransferFailed`."""
    host, port, name = params.remote_host, params.remote_port, params.remote_request_id
    if not host or port is None or name is None or _NAME.fullmatch(name) is None:
        raise TransferFailed("kv_transfer_params name no host, port and request")
    where = f"{host}:{port}"
    try:
        url = httpx.URL(scheme="http", host=host, port=port, path=PATH + name)
        async with asyncio.timeout(PATIENCE_S):
            return await _posted(url, where, most_bytes)
    except (TimeoutError, httpx.TimeoutException):
        raise TransferFailed(
            f"no blocks from {where}: it was silent for {SILENCE_S:g} s, or not done within {PATIENCE_S:g} s"
        ) from None
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        raise TransferFailed(f"no answer from {where}: {error}") from None


async def _posted(url: httpx.URL, where: str, most_bytes: int) -> bytes:
    received = bytearray()
    async with (
        httpx.AsyncClient(trust_env=False, timeout=SILENCE_S, verify=False) as http,  # noqa: S501 - plain HTTP
        http.stream("POST", url) as answer,
    ):
        if answer.status_code != httpx.codes.OK:
            raise TransferFailed(f"{where} has no such blocks ({answer.status_code})")
        async for part in answer.aiter_raw():
            received += part
            if len(received) > most_bytes:
                raise TransferFailed(f"{where} sends more than the blocks of this prompt: another model's, or none")
    return bytes(received)
