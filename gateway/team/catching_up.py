"""A worker that starts beside others takes connections once it knows of as many healthy endpoints as they do.

The first look at an endpoint has a deadline, and one that is busy may miss it: a successor that took connections then
would refuse what the one before it serves.
"""

import asyncio
from contextlib import suppress

import msgspec

from backends import Registry
from gateway.team.member import Team
from gateway.team.messages import Healthy, Reply

CATCH_UP_S = 15.0
"""An endpoint that has just gone down keeps nobody from starting."""
_LOOK_S = 0.05


def healthy_here(registry: Registry) -> Reply:
    """The answer to `Healthy`: the ids of the endpoints that take requests."""
    return Reply(200, b"", msgspec.msgpack.encode(sorted(_healthy(registry))))


async def caught_up(team: Team, registry: Registry, *, others_may_come: bool = False) -> None:
    """Wait until what others find healthy is so here, or for `CATCH_UP_S`. Polls must be running.

    Endpoints that are not known here are those of a configuration before, unless `others_may_come`: then they may be
    found yet.
    """
    replies = await team.ask(Healthy())
    wanted = {name for reply in replies for name in msgspec.msgpack.decode(reply.body, type=list[str])}
    if not others_may_come:
        wanted &= {one.id for one in registry.snapshot()}
    with suppress(TimeoutError):
        async with asyncio.timeout(CATCH_UP_S):
            while wanted - _healthy(registry):  # noqa: ASYNC110 - the registry has no event for it
                await asyncio.sleep(_LOOK_S)


def _healthy(registry: Registry) -> set[str]:
    return {one.id for one in registry.snapshot() if one.healthy}
