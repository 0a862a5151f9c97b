"""Files and clients for tests of limits: one tenant whose keys have limits, and prices in round figures."""

import asyncio
from pathlib import Path

import httpx
import yaml

from gateway.edge.auth import new_key
from tests.gateway.scripted_engine import USAGE, answer_chat
from tests.hostile import Behaviour, Peer
from tests.until import until

KEY, DIGEST = new_key()
OTHER_KEY, OTHER_DIGEST = new_key()
CHAT = {"model": "m", "messages": [{"role": "user", "content": "Where are the books on gravity?"}], "max_tokens": 2}
MESSAGE = {**CHAT, "max_tokens": 2}
CENT_PER_TOKEN = "10000"
"""Of output, as a price per million: the two tokens that the scripted engine answers cost 2 cents."""


def keys_file(
    folder: Path, *, key: dict[str, object] | None = None, other: dict[str, object] | None = None, **tenant: object
) -> Path:
    """The tenant `acme` with `KEY` and `OTHER_KEY`; `key` and `other` are fields of these, the rest the tenant's."""
    keys = [
        {"id": "acme-1", "sha256": DIGEST, **(key or {})},
        {"id": "acme-2", "sha256": OTHER_DIGEST, **(other or {})},
    ]
    path = folder / "keys.yaml"
    path.write_text(yaml.safe_dump({"tenants": [{"id": "acme", "keys": keys, **tenant}]}))
    return path


def prices_file(folder: Path, model: str = "m") -> Path:
    """Input is next to nothing, output a cent a token."""
    price = {
        "model": model,
        "input_per_mtok": "0.01",
        "cached_input_per_mtok": "0.001",
        "output_per_mtok": CENT_PER_TOKEN,
        "from": "2000-01-01",
    }
    path = folder / "prices.yaml"
    path.write_text(yaml.safe_dump({"currency": "USD", "prices": [price]}))
    return path


def bearer(key: str = KEY) -> dict[str, str]:
    """Headers that present a key."""
    return {"authorization": f"Bearer {key}"}


async def post(client: httpx.AsyncClient, url: str, *, key: str = KEY, **fields: object) -> httpx.Response:
    """One chat at a gateway."""
    return await client.post(f"{url}/v1/chat/completions", json={**CHAT, **fields}, headers=bearer(key))


class Gate:
    """An engine's answers, all held back until it is opened."""

    def __init__(self, usage: object = USAGE) -> None:
        self._open = asyncio.Event()
        self._answer = answer_chat("Hi", usage)
        self.waiting = 0

    @property
    def script(self) -> Behaviour:
        """For a scripted engine."""

        async def keeps_alive(peer: Peer) -> None:
            self.waiting += 1
            await self._open.wait()
            await self._answer(peer)

        return keeps_alive

    def open(self) -> None:
        """Let all answers go, now and later."""
        self._open.set()

    async def reached(self, number: int) -> None:
        """Until so many requests have come to the engine."""
        await until(lambda: self.waiting >= number)
