"""An engine under a virtual clock: blocks, queue, steps and the seconds they take, without computing anything.

What is simplified: blocks are found by others once the step that computed them has ended, so requests admitted in the
same step share nothing that is not cached yet; an answer is found by a next turn only where its job names its blocks,
and once it is complete; blocks come back from the host tier within the step (not beside it), transfers from a prefill
engine beside the steps, each at full speed, and again after a preemption. A decode engine computes the last token of a
prompt itself, in the step that gives its first token, and reports what it had without the transfer.

`serving` puts such an engine behind a port, under the real clock.
"""

from backends.disaggregated import Role
from backends.simulated.engine import SimulatedEngine
from backends.simulated.kv_cache import CacheListener, KvCache
from backends.simulated.presets import PRESETS
from backends.simulated.requests import LoadSample, Work
from backends.simulated.types import Dropped, EngineEvent, EngineSpec, Finished, FirstToken, Job

__all__ = [
    "PRESETS",
    "CacheListener",
    "Dropped",
    "EngineEvent",
    "EngineSpec",
    "Finished",
    "FirstToken",
    "Job",
    "KvCache",
    "LoadSample",
    "Role",
    "SimulatedEngine",
    "Work",
]
