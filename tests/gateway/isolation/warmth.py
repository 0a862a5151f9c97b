"""Two engines with caches that take virtual time, and an attacker who looks at everything that its key gets.

    victim     secret 1 ─────────────────────> e0 or e1: warm there
    attacker   secret 1, control 1 (in either order) ──> headers, reported tokens, endpoint, seconds   100 times

Nothing sleeps and no clock of the machine is read: what a prompt takes is what the engines compute of it, with noise
from a seeded source, and what the gateway asks them to tokenise. The attacker is stronger than a real one: it knows
where the victim's prompt went, and nobody else disturbs it.
"""

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import httpx

from tests.hostile import Peer

BLOCK_TOKENS: Final = 16
PROMPT_TOKENS: Final = 64
PREFILL_S: Final = 0.1
"""Of a whole prompt."""
NOISE: Final = 0.06
"""Standard deviation of that, as a part of it."""
TOKENIZE_S: Final = 0.02
"""Of a prompt, at an engine."""
PAIRS: Final = 100
SURE_Z: Final = 6.1
"""Standard normal quantile of 1 - 5e-10: a false alarm in a thousand million runs."""

METRICS: Final = b"""vllm:num_requests_running{engine="0",model_name="m"} 0.0
vllm:num_requests_waiting{engine="0",model_name="m"} 0.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.0
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="100000"} 1.0
process_start_time_seconds 1795961218.5
"""


@dataclass
class World:
    """The one clock of the engines, in virtual seconds."""

    rng: Random
    now_s: float = 0.0
    ids: dict[str, int] = field(default_factory=dict)

    def tokens_of(self, body: dict[str, Any]) -> list[int]:
        """One token a word."""
        text = " ".join(message["content"] for message in body["messages"])
        return [self.ids.setdefault(word, len(self.ids)) for word in text.split()]


@dataclass
class WarmEngine:
    """Speaks as vLLM does; a cache of whole blocks, by salt, that is never full."""

    world: World
    cached: set[tuple[str, tuple[int, ...]]] = field(default_factory=set)

    async def __call__(self, peer: Peer) -> None:
        """One connection."""
        while True:
            head, _, body = (await peer.read_request()).partition(b"\r\n\r\n")
            method, path = head.split(b" ", 2)[:2]
            if method == b"GET":
                await peer.send(_page(path.decode()))
            elif body == b"{}":
                await peer.send(_plain(404, {}))
            else:
                await peer.send(_plain(200, self._said(path.decode(), json.loads(body))))

    def _said(self, path: str, body: dict[str, Any]) -> object:
        tokens = self.world.tokens_of(body)
        if path == "/tokenize":
            self.world.now_s += TOKENIZE_S
            return {"tokens": tokens, "count": len(tokens), "max_model_len": 4096}
        salt = body.get("cache_salt", "")
        blocks = [tuple(tokens[:end]) for end in range(BLOCK_TOKENS, len(tokens) + 1, BLOCK_TOKENS)]
        found = next((n for n, block in enumerate(blocks) if (salt, block) not in self.cached), len(blocks))
        self.cached.update((salt, block) for block in blocks)
        cached_tokens = min(found * BLOCK_TOKENS, (len(tokens) - 1) // BLOCK_TOKENS * BLOCK_TOKENS)
        took_s = PREFILL_S * (len(tokens) - cached_tokens) / PROMPT_TOKENS
        self.world.now_s += took_s * (1 + self.world.rng.gauss(0, NOISE))
        usage = {
            "prompt_tokens": len(tokens),
            "completion_tokens": 1,
            "prompt_tokens_details": {"cached_tokens": cached_tokens},
        }
        return {
            "id": "x",
            "choices": [{"index": 0, "message": {"content": "."}, "finish_reason": "stop"}],
            "usage": usage,
        }


@dataclass(frozen=True)
class Seen:
    """What one probe got: `same` whether it went where the victim's prompt was."""

    headers: tuple[tuple[str, str], ...]
    cached_tokens: int
    same: bool
    took_s: float


async def attack(
    world: World, victim: httpx.AsyncClient, attacker: httpx.AsyncClient, pairs: int = PAIRS
) -> tuple[list[Seen], list[Seen]]:
    """Probes of what the victim has made warm, and of what nobody has sent."""
    secrets: list[Seen] = []
    controls: list[Seen] = []
    for number in range(pairs):
        secret = await victim.post("/v1/chat/completions", json=prompt(f"secret-{number}"))
        where = secret.headers["x-prefixgate-endpoint"]
        both = [("secret", secrets), ("control", controls)]
        world.rng.shuffle(both)
        for kind, found in both:
            began_s = world.now_s
            answer = await attacker.post("/v1/chat/completions", json=prompt(f"{kind}-{number}"))
            assert answer.status_code == 200
            ours = {name: value for name, value in answer.headers.items() if name.startswith("x-prefixgate-")}
            endpoint = ours.pop("x-prefixgate-endpoint")
            cached = answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
            found.append(Seen(tuple(sorted(ours.items())), cached, endpoint == where, world.now_s - began_s))
    return secrets, controls


def prompt(name: str) -> dict[str, Any]:
    words = " ".join(f"{name}-{number}" for number in range(PROMPT_TOKENS))
    return {"model": "m", "messages": [{"role": "user", "content": words}], "max_tokens": 1}


def leaks(secrets: Sequence[Seen], controls: Sequence[Seen]) -> set[str]:
    """By what the two can be told apart."""
    found = set()
    if Counter(one.headers for one in secrets) != Counter(one.headers for one in controls):
        found.add("headers")
    if Counter(one.cached_tokens for one in secrets) != Counter(one.cached_tokens for one in controls):
        found.add("cached tokens")
    if abs(share_z(sum(one.same for one in secrets), sum(one.same for one in controls), len(secrets))) > SURE_Z:
        found.add("endpoint")
    if abs(rank_z([one.took_s for one in secrets], [one.took_s for one in controls])) > SURE_Z:
        found.add("time to the first token")
    return found


def share_z(some: int, others: int, of: int) -> float:
    """Two shares of equally many, as a standard normal: the test of two proportions, pooled."""
    pooled = (some + others) / (2 * of)
    spread = math.sqrt(2 * pooled * (1 - pooled) / of)
    return (some - others) / of / spread if spread else 0.0


def rank_z(some: Sequence[float], others: Sequence[float]) -> float:
    """The rank sum test of Mann and Whitney, as a standard normal; equal values share their ranks. O(n log n)."""
    ordered = sorted([*((value, True) for value in some), *((value, False) for value in others)])
    total, at = 0.0, 0
    while at < len(ordered):
        end = at
        while end < len(ordered) and ordered[end][0] == ordered[at][0]:
            end += 1
        total += (at + end + 1) / 2 * sum(mine for _, mine in ordered[at:end])
        at = end
    n, m = len(some), len(others)
    surplus = total - n * (n + m + 1) / 2
    return surplus / math.sqrt(n * m * (n + m + 1) / 12)


def _page(path: str) -> bytes:
    if path == "/v1/models":
        return _plain(200, {"data": [{"id": "m", "object": "model", "owned_by": "vllm", "max_model_len": 4096}]})
    if path == "/version":
        return _plain(200, {"version": "0.32.0"})
    if path == "/metrics":
        return _head(200, b"text/plain", METRICS) + METRICS
    return _plain(200 if path == "/health" else 404, {})


def _plain(status: int, content: object) -> bytes:
    body = json.dumps(content).encode()
    return _head(status, b"application/json", body) + body


def _head(status: int, kind: bytes, body: bytes) -> bytes:
    return b"HTTP/1.1 %d X\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n" % (status, kind, len(body))
