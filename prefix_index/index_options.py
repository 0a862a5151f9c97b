"""How patient the shared index is, and how much it keeps."""

from dataclasses import dataclass

from prefix_index.radix import DEFAULT_CAPACITY_BLOCKS, SPECULATIVE_S
from prefix_index.redis_radix import DEFAULT_MAX_BYTES


@dataclass(frozen=True, slots=True)
class SharedIndexOptions:
    """Durations in seconds."""

    deadline_s: float = 0.005
    """A match that Redis has not answered by then is answered by the twin."""
    write_deadline_s: float = 1.0
    """A pipeline that Redis has not answered by then is given up; writes in it are sent again later."""
    stale_after_s: float = 10.0
    """Loads of a replica that has not published for so long no longer count."""
    heartbeat_s: float = 1.0
    """Longest time between two publications of this replica's loads."""
    load_interval_s: float = 0.05
    """Shortest time between two publications of this replica's loads."""
    probe_every_s: float = 1.0
    """Longest time between two probes of a Redis that failed; the first come sooner."""
    log_every_s: float = 10.0
    """Shortest time between two log lines of one kind, however often Redis comes and goes."""
    speculative_s: float = SPECULATIVE_S
    """A speculative claim counts no longer than this after it was made."""
    shards: int = 1
    """Parts of the pool, each in a slot of its own; the same on every replica."""
    capacity_blocks: int = DEFAULT_CAPACITY_BLOCKS
    """Capacity of a holder whose own is not known, in each shard."""
    max_bytes: int = DEFAULT_MAX_BYTES
    """Memory of the whole pool in Redis; least recently used tails go beyond it."""
    max_queued_writes: int = 10_000
    """Writes kept for each shard while Redis is away; further observations are dropped."""
    max_queued_bytes: int = 64 << 20
    """Bytes of chains kept for all shards while Redis is away."""
    max_matches_in_flight: int = 256
    """Matches of each shard that wait for Redis at once; the twin answers further ones at once."""
