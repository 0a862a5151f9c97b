"""Pages of the admin API as data for the dashboard: the same code, asked from within, and of all workers.

    dashboard --page--> this worker's own admin pages ---------------> merged
                  `---> ui:/admin/... to the other workers, which answer by `serve` --^

A path that begins with `ui:` cannot be asked for over HTTP, and only what is read is passed on.
"""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from gateway.errors import BadRequest, NotFound, RateLimited, Unavailable
from gateway.team.inner_calls import answered
from gateway.team.member import Team
from gateway.team.messages import Call, Reply
from gateway.team_admin import MERGES
from gateway.wire import ASGIApp

INSIDE: Final = "ui:"
"""Begins the path of a call from one worker's dashboard to another's."""
_FOUND: Final = "/admin/requests/"
"""Pages that one of the workers has."""
_OK: Final = 200


class Inside:
    """Asks the admin pages of this worker, and of the others where each knows a part."""

    def __init__(self, app: ASGIApp, team: Team | None) -> None:
        self._app = app
        self._team = team

    async def page(self, path: str, query: Mapping[str, str] | None = None) -> Any:
        """A page of the whole gateway. Raises `BadRequest`, `NotFound`, `RateLimited` or `Unavailable`, with words."""
        call = Call("GET", path, urlencode(query or {}).encode(), (), b"")
        own, merge = await answered(self._app, call), MERGES.get(path)
        if path.startswith(_FOUND) and own.status != _OK:
            own = next(iter(await self._others(call)), own)
        content = _content(own)
        if merge is None or self._team is None:
            return content
        return merge([content, *(_content(reply) for reply in await self._others(call))])

    async def serve(self, call: Call) -> Reply:
        """What this worker alone says to a dashboard at another one."""
        path = call.path.removeprefix(INSIDE)
        return await answered(self._app, Call("GET", path, call.query, (), b""))

    async def _others(self, call: Call) -> list[Reply]:
        if self._team is None:
            return []
        asked = Call("GET", f"{INSIDE}{call.path}", call.query, (), b"")
        return [reply for reply in await self._team.ask(asked) if reply.status == _OK]


def _content(reply: Reply) -> Any:
    content = msgspec.json.decode(reply.body)
    if reply.status == _OK:
        return content
    said = content.get("detail") if isinstance(content, dict) else None
    words = said if isinstance(said, str) else "the question is not as it should be"
    match reply.status:
        case 404:
            raise NotFound(words)
        case 429:
            raise RateLimited(words, "reports", 1, ())
        case 400 | 422:
            raise BadRequest(words)
        case _:
            raise Unavailable(words)
