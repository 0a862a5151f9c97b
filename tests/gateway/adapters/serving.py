"""Engines with adapters, and how tests ask for one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from tests.gateway.conftest import RunningGateway
from tests.gateway.scripted_engine import METRICS, ScriptedEngine, answer_chat, scripted_engine
from tests.hostile import Behaviour

LISTED = [
    {"id": "m", "owned_by": "vllm"},
    *({"id": name, "owned_by": "vllm", "parent": "m"} for name in ("sql", "law")),
]


def listing(engine: ScriptedEngine, *models: dict[str, str]) -> None:
    """Let an engine serve these models."""
    engine.pages["/v1/models"] = {"object": "list", "data": list(models)}


@asynccontextmanager
async def vllm(
    *models: dict[str, str], slots: int = 4, script: Behaviour | None = None
) -> AsyncIterator[ScriptedEngine]:
    """A vLLM with adapters that keeps so many of them ready, and reports no cached tokens."""
    async with scripted_engine(script or answer_chat("Hi", usage=None)) as engine:
        listing(engine, *(models or LISTED))
        info = f'vllm:lora_requests_info{{max_lora="{slots}",running_lora_adapters="",waiting_lora_adapters=""}} 1.0\n'
        engine.metrics = METRICS + info.encode()
        yield engine


async def ask(
    gateway: RunningGateway, client: httpx.AsyncClient, model: str, text: str, **more: object
) -> httpx.Response:
    """One chat."""
    body = {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 2, **more}
    return await client.post(f"{gateway.url}/v1/chat/completions", json=body)
