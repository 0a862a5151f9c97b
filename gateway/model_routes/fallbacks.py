"""The next model, where one cannot answer: never in silence, and never after the first byte.

    request --> pipeline --answers--> done
                    `--no endpoint, full, failed, silent, too long--> the same for the next model --> pipeline ...
                    `--any other error, or none is left--> the first error, about the model that was asked for

Each try is a request of its own to the ledger, the limits and the index: the one that failed is a row in the state
`failed` or none, the next has an id with a number behind it, the price and the hold of its own model.
"""

from typing import Protocol

from backends import NoEndpoint
from gateway.errors import (
    ContextTooLong,
    EndpointBusy,
    GatewayError,
    ModelNotFound,
    NobodyThere,
    QueueFull,
    QueueTimeout,
    UpstreamFailed,
    UpstreamTimeout,
)
from gateway.model_routes.routes import ModelRoutes
from gateway.types import InferenceRequest, Trouble
from gateway.wire import ClientStream


class Serves(Protocol):
    """What answers requests."""

    async def serve(self, request: InferenceRequest, client: ClientStream) -> None:
        """Answer one. Raises only while the client has not been sent anything yet."""


class Fallbacks:
    """Serves requests, by other models where need be. Keeps no state of its own."""

    def __init__(self, pipeline: Serves, routes: ModelRoutes) -> None:
        self._pipeline = pipeline
        self._routes = routes

    async def serve(self, request: InferenceRequest, client: ClientStream) -> None:
        """As `Serves`."""
        if request.routed is None or not request.routed.falls_back_on:
            await self._pipeline.serve(request, client)
            return
        first: GatewayError | NoEndpoint | None = None
        for one in self._routes.in_turn(request):
            try:
                await self._pipeline.serve(one, client)
            except (GatewayError, NoEndpoint) as error:
                first, why = first or error, trouble_of(error)
                assert one.routed is not None
                if client.started or why not in one.routed.falls_back_on:
                    raise first from None
                self._routes.fell_back(one.routed.asked, why)
            else:
                return


def trouble_of(error: GatewayError | NoEndpoint) -> Trouble | None:
    """What an error says of the model; None where another model would change nothing, or is not to be asked."""
    match error:
        case NoEndpoint() | NobodyThere() | ModelNotFound():
            return Trouble.UNAVAILABLE
        case QueueFull() | QueueTimeout() | EndpointBusy():
            return Trouble.FULL
        case UpstreamFailed():
            return Trouble.FAILED
        case UpstreamTimeout():
            return Trouble.SLOW
        case ContextTooLong():
            return Trouble.TOO_LONG
        case _:
            return None
