"""A request as one endpoint's engine gets it: its bytes, and what the fleet knows of that engine, put together."""

import asyncio
from functools import partial
from typing import Final

from gateway.edge.upstream import Outgoing, outgoing
from gateway.fleet import Fleet
from gateway.types import InferenceRequest

LOOP_SAFE_SPLICED_BYTES: Final = 512 * 1024
"""A body that may be spliced, or read for a few fields, on the event loop: under 2 ms."""
_NOTHING: Final[frozenset[str]] = frozenset()


async def body_for(
    request: InferenceRequest,
    fleet: Fleet,
    endpoint_id: str,
    *,
    inject_salt: bool,
    priority: float | None = None,
    refused: frozenset[str] = _NOTHING,
) -> Outgoing:
    """The request for an endpoint. O(body), in a thread where that is long.

    `inject_salt`: share groups are kept apart by salts, where the engine has any; `priority`: what it is told of that;
    `refused`: fields that it has refused a request for, beside those that its kind refuses. Raises `BadRequest` for a
    body that cannot be spliced.
    """
    adapters, natively = fleet.adapters, fleet.speaks(endpoint_id, request)
    make = partial(
        outgoing,
        request,
        natively=natively,
        inject_salt=inject_salt and fleet.takes_salt(endpoint_id),
        priority=priority,
        adapter=None if adapters is None else adapters.form(request, endpoint_id, natively=natively),
        refuses=fleet.refused_by(endpoint_id) | refused,
    )
    return await asyncio.to_thread(make) if len(request.body) > LOOP_SAFE_SPLICED_BYTES else make()
