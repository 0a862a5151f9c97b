"""An engine under a virtual clock: blocks, queue, steps and the seconds they take, without computing anything."""

from backends.simulated.engine import SimulatedEngine
from backends.simulated.kv_cache import CacheListener, KvCache
from backends.simulated.presets import PRESETS
from backends.simulated.requests import LoadSample, Work
from backends.simulated.types import Dropped, EngineEvent, EngineSpec, Finished, FirstToken, Job, Role

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
