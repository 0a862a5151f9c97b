"""The nouns of the simulated engine: what it is made of, what it is given, what it says and when.

    Job ──submit──> SimulatedEngine ──advance──> FirstToken, Finished, Dropped        all under a virtual clock

Blocks are names of 8 bytes (block hashes or any other): equal name means equal block **and** equal prefix.
"""

from dataclasses import dataclass, field
from typing import Final

from backends.disaggregated.types import Role
from backends.perf import PerfModel

USUAL_BLOCK_TOKENS: Final = 16
USUAL_CAPACITY_TOKENS: Final = 307_328
"""The cache of a pod (Qwen3-32B over two H100) in the benchmark that llm-d publishes; see `presets`."""


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """One engine: its memory, its speed, its habits.

    `capacity_blocks` of `block_size` tokens is the KV cache that it computes from, `host_blocks` the tier below it
    (evicted blocks go there; fetched back at `host_tokens_per_s`). `chunk_tokens`: most tokens of one step (chunked
    prefill and one token for each running answer). `max_running`: most requests that are computed at once.
    `start_s`: how long it takes to start, in which it takes no requests. `transfer_tokens_per_s`: how fast a prefill
    engine's blocks reach a decode engine.
    """

    block_size: int = USUAL_BLOCK_TOKENS
    capacity_blocks: int = USUAL_CAPACITY_TOKENS // USUAL_BLOCK_TOKENS
    perf: PerfModel = field(default_factory=PerfModel)
    chunk_tokens: int = 8192
    max_running: int = 256
    host_blocks: int = 0
    host_tokens_per_s: float = 200_000.0
    role: Role = Role.BOTH
    start_s: float = 0.0
    transfer_tokens_per_s: float = 200_000.0

    def batch(self) -> int:
        """Most requests of a step, each of which has a token of it. Raises `ValueError` if that is none."""
        most = min(self.max_running, self.chunk_tokens)
        if most < 1:
            raise ValueError("an engine runs at least one request, of at least one token a step")
        return most

    def blocks_for(self, tokens: int) -> int:
        """Blocks that so many tokens take."""
        return -(-tokens // self.block_size)


@dataclass(frozen=True, slots=True)
class Job:
    """One request as the engine gets it. `blocks`: 8 bytes a whole block of the prompt; where the answer is known, of
    prompt and answer but for its last token, so that a next turn finds it. `prompt_tokens` counts the partial last
    block too; at least one output token. `hold`: its prompt's blocks stay after its end, until `let_go`.
    `transferred`: its prompt comes computed, from another engine, as all do at a decode engine."""

    number: int
    blocks: bytes
    prompt_tokens: int
    output_tokens: int
    hold: bool = False
    transferred: bool = False


@dataclass(frozen=True, slots=True)
class FirstToken:
    """The prompt is computed, and the first token of the answer is out. `cached_tokens` is what the engine reports as
    reused (host tier included, of which `host_tokens`); a request that was preempted says so only once."""

    number: int
    at_s: float
    cached_tokens: int
    host_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Finished:
    """The last token is out."""

    number: int
    at_s: float


@dataclass(frozen=True, slots=True)
class Dropped:
    """The engine lost the request: it was restarted, or could never hold it (`too_long`)."""

    number: int
    at_s: float
    too_long: bool = False


EngineEvent = FirstToken | Finished | Dropped
