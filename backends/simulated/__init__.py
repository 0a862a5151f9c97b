"""An engine under a virtual clock: blocks, queue, steps and the seconds they take, without computing anything."""

from backends.simulated.types import Dropped, EngineEvent, EngineSpec, Finished, FirstToken, Job, Role

__all__ = ["Dropped", "EngineEvent", "EngineSpec", "Finished", "FirstToken", "Job", "Role"]
