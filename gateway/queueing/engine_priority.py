"""The priority of a class in an engine's own terms.

    engine          field `priority`         sooner           for the classes 0, 1, 2 (0 is the highest)
    vLLM            whole number             lower            0, 1, 2          with --scheduling-policy priority
    SGLang          whole number             higher           0, -1, -2        with --enable-priority-scheduling
    TensorRT-LLM    0 to 1                   higher           1, 1/2, 1/3      with a waiting queue by priority

vLLM refuses what is not 0 where it does not schedule by priority, so engines are told only where the configuration says
so. What a client writes into the field never reaches an engine.
"""

from backends import PriorityForm
from gateway.types import Route

_ROUTES = frozenset({Route.CHAT, Route.COMPLETIONS})


def engine_priority(form: PriorityForm | None, rank: int) -> float | None:
    """The value for a class, `rank` being its place, 0 the highest; None where the engine takes none."""
    match form:
        case PriorityForm.LOWER_FIRST:
            return rank
        case PriorityForm.HIGHER_FIRST:
            return -rank
        case PriorityForm.SHARE:
            return 1 / (1 + rank)
    return None


def takes_priority(route: Route, *, natively: bool) -> bool:
    """Whether the body that an engine gets has a place for it: chats and completions, and what becomes a chat."""
    return route in _ROUTES or not natively
