"""Servers that refuse a stream for being asked for its usage: they are asked again without, and so from then on.

Only streams in which the gateway alone asked for it: what a client asks for is its own, and so is the answer. The usage
of such streams stays unknown.
"""

from typing import Final

from gateway.edge.upstream import asks_for_usage
from gateway.log_lines import LOGGER
from gateway.types import InferenceRequest

_FIELD: Final = "stream_options"
_STREAM_OPTIONS: Final = frozenset({_FIELD})
_NOTHING: Final[frozenset[str]] = frozenset()
_REFUSALS: Final = frozenset({400, 422})


class UsageRefusals:
    """Of one process; by endpoint, until it is another process."""

    def __init__(self) -> None:
        self._holders: dict[str, str] = {}

    def fields(self, request: InferenceRequest, endpoint_id: str, holder: str) -> frozenset[str]:
        """What of our additions an endpoint must not get. 0.1 µs where no endpoint ever refused."""
        if not self._holders or self._holders.get(endpoint_id) != holder or not _is_ours(request):
            return _NOTHING
        return _STREAM_OPTIONS

    def learns(self, request: InferenceRequest, endpoint_id: str, holder: str, status: int, said: bytes) -> bool:
        """Whether an answer, of which `said` came first, refuses what only we asked for: it is worth asking again."""
        if status not in _REFUSALS or _FIELD.encode() not in said or not _is_ours(request):
            return False
        if self._holders.get(endpoint_id) == holder:
            return False
        self._holders[endpoint_id] = holder
        fields = {"endpoint": endpoint_id, "why": "it refuses stream_options: its streams go without usage"}
        LOGGER.warning("usage of streams unknown", extra={"fields": fields})
        return True


def _is_ours(request: InferenceRequest) -> bool:
    return asks_for_usage(request) and not request.has_stream_options
