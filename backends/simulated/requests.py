"""One request inside the simulated engine, and the figures that an engine shows of itself."""

from dataclasses import dataclass

from backends.simulated.kv_cache import BLOCK_NAME_BYTES, names_of
from backends.simulated.types import Job


class Active:
    """A request that has not ended: what of it is known, computed and held. Mutable, owned by one engine."""

    __slots__ = (
        "cached_tokens",
        "computed",
        "delay_s",
        "gone",
        "host_tokens",
        "job",
        "joined_step",
        "known",
        "names",
        "order",
        "output_tokens",
        "published",
        "ready_s",
        "transferred",
        "written",
    )

    def __init__(self, job: Job, output_tokens: int, transferred: bool = False) -> None:
        self.job = job
        self.transferred = transferred
        """Its prompt comes computed, from another engine."""
        self.names = names_of(job.blocks)
        self.output_tokens = output_tokens
        self.order = 0
        """Counts admissions: the larger, the younger."""
        self.written = 0
        """Tokens of the answer that were out when it last joined or left the decoding ones."""
        self.known = 0
        """Tokens whose keys and values the engine must have before it writes on, as of admission."""
        self.computed = 0
        """How many of those it has."""
        self.published = 0
        """Blocks of the chain that it has pinned by name."""
        self.joined_step: int | None = None
        """Count of decode steps when it joined the decoding ones; None before."""
        self.ready_s = 0.0
        """When its transfer ends, where there is one."""
        self.delay_s = 0.0
        """Seconds that its next chunk takes beside the computing."""
        self.cached_tokens: int | None = None
        """What it found at its first admission; None before."""
        self.host_tokens = 0
        self.gone = False
        """Aborted: it leaves at the end of the step."""


@dataclass(frozen=True, slots=True)
class LoadSample:
    """What an engine's metrics say. `kv_use`: 0 to 1. `prefix_hits` of `prefix_queries` tokens of prompts since the
    engine started were found in its cache."""

    running: int
    waiting: int
    kv_use: float
    prefix_hits: int
    prefix_queries: int


@dataclass(slots=True)
class Work:
    """What an engine has done since it was made, restarts included.

    `uncached_tokens` counts prompt tokens computed (again, after a preemption), `fetched_tokens` those from the host
    tier, `transferred_tokens` those from prefill engines. `busy_s`: seconds in which a step ran.
    """

    uncached_tokens: int = 0
    fetched_tokens: int = 0
    transferred_tokens: int = 0
    output_tokens: int = 0
    busy_s: float = 0.0
    preemptions: int = 0


def check_job(job: Job, block_size: int, is_known: bool) -> None:
    """Raises `ValueError` for a job without a token, with more blocks than whole ones, or whose number is in use."""
    if job.prompt_tokens < 1 or job.output_tokens < 1:
        raise ValueError(f"job {job.number} has no prompt or no answer: each has at least one token")
    stored_tokens = job.prompt_tokens + job.output_tokens - 1
    if len(job.blocks) > stored_tokens // block_size * BLOCK_NAME_BYTES:
        raise ValueError(f"job {job.number} names more blocks than its {stored_tokens} tokens fill")
    if is_known:
        raise ValueError(f"job {job.number} is here already")
