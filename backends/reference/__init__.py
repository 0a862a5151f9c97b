"""A model server with a real paged prefix cache, in torch on the CPU: a cache hit is work that was not done.

Importing this package loads neither torch nor a model. `embedded.run_engine` serves an engine inside a process,
`python -m backends.reference` serves one alone.
"""

from backends.reference.errors import (
    EngineStopped,
    EventsUnavailable,
    ModelUnavailable,
    ModelUnsupported,
    ReferenceEngineError,
    RequestRefused,
)
from backends.reference.model_files import ensure_model
from backends.reference.types import EngineConfig, KvEventsConfig

__all__ = [
    "EngineConfig",
    "EngineStopped",
    "EventsUnavailable",
    "KvEventsConfig",
    "ModelUnavailable",
    "ModelUnsupported",
    "ReferenceEngineError",
    "RequestRefused",
    "ensure_model",
]
