"""The control port: what is switched on and looked at from outside, whatever state the engine is in.

GET  /faults             what is on                GET  /state      counters, by rank, and who this life is
POST /faults {...}       change what is named      GET  /requests   what it remembers of each request that ended
"""

from collections.abc import Awaitable, Callable

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from backends.simulated.serving.site import Site


def create_control(site: Site) -> Starlette:
    """The ASGI application of the control port of one life of a server."""

    def page(look: Callable[[], object]) -> Callable[[Request], Awaitable[Response]]:
        async def handler(request: Request) -> Response:
            return _json(look())

        return handler

    async def change(request: Request) -> Response:
        try:
            asked = msgspec.json.decode(await request.body(), type=dict[str, object])
            return _json(site.change(**asked))
        except (msgspec.DecodeError, TypeError) as error:
            return _json({"error": str(error)}, 400)

    return Starlette(
        routes=[
            Route("/faults", page(lambda: site.faults)),
            Route("/faults", change, methods=["POST"]),
            Route("/state", page(site.state)),
            Route("/requests", page(lambda: list(site.runner.records))),
        ]
    )


def _json(body: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status, media_type="application/json")
