"""`grpc.health.v1`, as gateways and kubelets ask it.

liveness                                                   serving while the process answers
"" readiness envoy.service.ext_proc.v3.ExternalProcessor   serving while `/ready` is 200: an endpoint is up, the
                                                           ledger works, and nobody has told the process to stop
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from gateway.epp.messages import SERVICE

LIVENESS: Final = "liveness"
READINESS: Final = frozenset({"", "readiness", SERVICE})
_LOOK_S: Final = 0.5


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # the package has no types
    """By whether requests can be served, which `is_ready` asks; who watches is let go once `stops` says so."""

    def __init__(self, is_ready: Callable[[], Awaitable[bool]], stops: Callable[[], bool]) -> None:
        self._is_ready = is_ready
        self._stops = stops

    async def Check(self, request: Any, context: Any) -> Any:
        """Once."""
        status = await self._status(request.service)
        if status is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
        return health_pb2.HealthCheckResponse(status=status)

    async def Watch(self, request: Any, _context: Any) -> AsyncIterator[Any]:
        """At each change."""
        last = None
        while not self._stops():
            status = await self._status(request.service)
            if status is None:
                status = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
            if status != last:
                last = status
                yield health_pb2.HealthCheckResponse(status=status)
            await asyncio.sleep(_LOOK_S)

    async def _status(self, service: str) -> int | None:
        """None for a service that is none of ours."""
        if service != LIVENESS and service not in READINESS:
            return None
        serving = service == LIVENESS or await self._is_ready()
        known = health_pb2.HealthCheckResponse
        return int(known.SERVING if serving else known.NOT_SERVING)


def add_to(server: "grpc.aio.Server", health: Health) -> None:
    """Serve it there."""
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
