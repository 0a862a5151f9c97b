"""Two engines of a kind, one for prompts and one for answers, and what is asked of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from backends.simulated import Role
from backends.simulated.serving import ServerSpec, SimulatedServer, expected_text

FAST = 500.0
WORDS = "cite the shelf and do not guess " * 20
CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": WORDS}], "max_tokens": 6}
TEXT = expected_text(f"<|im_start|>user\n{WORDS}<|im_end|>\n<|im_start|>assistant\n", 6)
ASK = {"do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None, "remote_block_ids": None}

Pair = tuple[SimulatedServer, SimulatedServer]


@contextmanager
def pair_of(dialect: str, **more: Any) -> Iterator[Pair]:
    common = {"dialect": dialect, "model": "m", "speed": FAST, "lease_s": 5000.0, **more}
    prefill = SimulatedServer(ServerSpec(role=Role.PREFILL, **common))
    with prefill, SimulatedServer(ServerSpec(role=Role.DECODE, **common)) as decode:
        yield prefill, decode


def chat(server: SimulatedServer, **more: Any) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/chat/completions", json={**CHAT, **more}, timeout=30)


def said(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["message"]["content"])


def cached(answer: httpx.Response) -> int:
    return int(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"])


def metric(server: SimulatedServer, name: str) -> float:
    page = httpx.get(f"{server.url}/metrics", timeout=30).text
    [line] = [line for line in page.splitlines() if line.startswith(f"{name}{{")]
    return float(line.split()[-1])
