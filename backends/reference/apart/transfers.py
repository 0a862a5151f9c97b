"""Both sides of a transfer, on the event loop of an engine's server.

P keeps a copy in the host's memory, not blocks in its cache: so what nobody fetches holds up no request, and the cache
evicts as always. A copy is given once, under a name that cannot be guessed, for `LEASE_S`. How many wait has no bound
but that: as many as there are prompts in that time.
"""

import asyncio
import http.client
import secrets
from typing import Final

from backends.reference.apart.blocks import Carried, adopted, copied
from backends.reference.block_pool import HASH_BYTES
from backends.reference.engine import Engine
from backends.reference.errors import TransferFailed
from backends.reference.sequence import Sequence
from backends.reference.types import GenerationRequest, KvRole
from backends.reference.wire import KvTransferParams

LEASE_S: Final = 30.0
"""How long a copy waits for who fetches it; vLLM's."""
FETCH_PATIENCE_S: Final = 30.0
"""How long the other engine may say nothing, when it is connected to and between any two parts of its answer."""
PATH: Final = "/kv_transfer/"


class Transfers:
    """What waits at one engine, and what it fetches from others. Used on one event loop."""

    def __init__(self, engine: Engine, role: KvRole) -> None:
        self._engine = engine
        self._keeps = role in (KvRole.PRODUCER, KvRole.BOTH)
        self._fetches = role in (KvRole.CONSUMER, KvRole.BOTH)
        self._waiting: dict[str, Carried] = {}
        self._id = secrets.token_hex(8)

    @property
    def waiting(self) -> int:
        """Copies that nobody has fetched."""
        return len(self._waiting)

    def is_to_keep(self, params: KvTransferParams) -> bool:
        """Whether a request is one whose blocks are kept for another engine."""
        return self._keeps and params.do_remote_decode

    async def keep(self, request: GenerationRequest, cached_tokens: int, address: tuple[str, int]) -> KvTransferParams:
        """Keep a copy of what is cached of a request's prompt; returns what tells another engine where it is.

        `cached_tokens` is what this engine found of the prompt, `address` where it is asked. Raises `EngineStopped`.
        """
        prompt = Sequence(request, self._engine.config.block_size)
        name = secrets.token_urlsafe(24)
        work = self._engine.between_steps(lambda cache: copied(cache, prompt))
        self._waiting[name] = await asyncio.wrap_future(work)
        asyncio.get_running_loop().call_later(LEASE_S, self._waiting.pop, name, None)
        return KvTransferParams(
            do_remote_prefill=True,
            remote_engine_id=self._id,
            remote_request_id=name,
            remote_host=address[0],
            remote_port=address[1],
            remote_num_tokens=len(request.prompt_tokens),
            remote_prefill_cached_tokens=cached_tokens,
        )

    async def take(self, name: str) -> bytes | None:
        """A copy, for once; None where there is none under that name, or none any more."""
        carried = self._waiting.pop(name, None)
        return None if carried is None else await asyncio.to_thread(carried.to_bytes)

    async def fetch(self, request: GenerationRequest, params: KvTransferParams) -> bool:
        """Fetch what another engine has computed of a request's prompt, into the cache; False where that is not asked.

        What finds no free block is left out: the engine computes it itself. Raises `TransferFailed` and
        `EngineStopped`.
        """
        if not (self._fetches and params.do_remote_prefill):
            return False
        data = await asyncio.to_thread(_fetched, params)
        carried = await asyncio.to_thread(Carried.from_bytes, data, HASH_BYTES)
        prompt = Sequence(request, self._engine.config.block_size)
        await asyncio.wrap_future(self._engine.between_steps(lambda cache: adopted(cache, prompt, carried)))
        return True


def _fetched(params: KvTransferParams) -> bytes:
    if params.remote_host is None or params.remote_port is None or params.remote_request_id is None:
        raise TransferFailed("kv_transfer_params name no host, port and request")
    connection = http.client.HTTPConnection(params.remote_host, params.remote_port, timeout=FETCH_PATIENCE_S)
    try:
        connection.request("POST", PATH + params.remote_request_id)
        answer = connection.getresponse()
        body = answer.read()
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise TransferFailed(f"no answer from {params.remote_host}:{params.remote_port}: {error}") from None
    finally:
        connection.close()
    if answer.status != http.client.OK:
        raise TransferFailed(f"{params.remote_host}:{params.remote_port} has no such blocks ({answer.status})")
    return body
