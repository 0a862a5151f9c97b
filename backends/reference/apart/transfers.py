"""Both sides of a transfer, on the event loop of an engine's server.

P keeps a copy in the host's memory, not blocks in its cache: so what nobody fetches holds up no request, and the cache
evicts as always. A copy is given once, under a name that cannot be guessed, for `LEASE_S`, or until later ones want
its place: all that wait take `MOST_WAITING_BYTES` together.
"""

import asyncio
import secrets
from typing import Final

from backends.reference.apart.blocks import Carried, adopted, copied
from backends.reference.apart.fetching import fetched
from backends.reference.block_pool import HASH_BYTES
from backends.reference.engine import Engine
from backends.reference.sequence import Sequence
from backends.reference.types import GenerationRequest, KvRole
from backends.reference.wire import KvTransferParams

LEASE_S: Final = 30.0
"""How long a copy waits for who fetches it; vLLM's."""
MOST_WAITING_BYTES: Final = 2 << 30
"""Of all copies together, but for the last one, which waits however large it is. Ours."""
_HEADER_BYTES: Final = 64 << 10
"""More than a file of safetensors with two tensors says of them."""


class Transfers:
    """What waits at one engine, and what it fetches from others. Used on one event loop."""

    def __init__(self, engine: Engine, role: KvRole) -> None:
        self._engine = engine
        self._keeps = role in (KvRole.PRODUCER, KvRole.BOTH)
        self._fetches = role in (KvRole.CONSUMER, KvRole.BOTH)
        self._waiting: dict[str, Carried] = {}
        self._waiting_bytes = 0
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
        self._put(name, await asyncio.wrap_future(work))
        asyncio.get_running_loop().call_later(LEASE_S, self._pop, name)
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
        carried = self._pop(name)
        return None if carried is None else await asyncio.to_thread(carried.to_bytes)

    async def fetch(self, request: GenerationRequest, params: KvTransferParams) -> bool:
        """Fetch what another engine has computed of a request's prompt, into the cache; False where that is not asked.

        What finds no free block is left out: the engine computes it itself. Raises `TransferFailed` and
        `EngineStopped`.
        """
        if not (self._fetches and params.do_remote_prefill):
            return False
        data = await fetched(params, self._most_bytes(request))
        carried = await asyncio.to_thread(Carried.from_bytes, data)
        prompt = Sequence(request, self._engine.config.block_size)
        await asyncio.wrap_future(self._engine.between_steps(lambda cache: adopted(cache, prompt, carried)))
        return True

    def _most_bytes(self, request: GenerationRequest) -> int:
        """What the blocks of a prompt take on their way: names, keys and values, and what is said of them."""
        size = self._engine.config.block_size
        blocks = len(request.prompt_tokens) // size
        return HASH_BYTES + blocks * (HASH_BYTES + size * self._engine.shape.kv_bytes_per_token) + _HEADER_BYTES

    def _put(self, name: str, carried: Carried) -> None:
        self._waiting[name] = carried
        self._waiting_bytes += carried.values.nbytes
        while self._waiting_bytes > MOST_WAITING_BYTES and len(self._waiting) > 1:
            self._pop(next(iter(self._waiting)))

    def _pop(self, name: str) -> Carried | None:
        carried = self._waiting.pop(name, None)
        if carried is not None:
            self._waiting_bytes -= carried.values.nbytes
        return carried
